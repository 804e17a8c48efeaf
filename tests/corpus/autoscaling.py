"""An autoscaler on a stage: sessions in which pods are placed on nodes that exist or not."""

import json

from extender.faces.grpc.server import best_options, decode_options, encode_expansion
from extender.tools.intake import at_once
from tests.corpus.machines import CONTROLLER, GROUP, ZONE, machine
from tests.corpus.stage import Stage
from tests.corpus.waiting import party
from tests.kit.clusters import DRIVER, Object, node
from tests.kit.protobuf import answer, request


async def autoscale(stage: Stage) -> None:
    """One session, or a call outside of sessions."""
    draw = stage.draw
    session = ""
    if draw(0.8):
        body = {"Drivers": draw.of([[DRIVER], ["other.example.com"], [DRIVER, CONTROLLER]])} if draw(0.25) else None
        session = str((await stage.call("start", "POST", "/autoscaler/start", body)).get("Session", ""))
    for _ in range(draw.number(1, 3)):
        await draw.of([_filter, _select, _ready, _estimate, _estimate, _expand, _prioritize])(stage, session)


async def _call(stage: Stage, verb: str, body: object, session: str) -> object:
    headers = {"session": "unknown" if stage.draw(0.04) else session} if session else {}
    return await stage.call(f"autoscaler {verb}", "POST", f"/autoscaler/{verb}", body, **headers)


async def _pod(stage: Stage) -> Object:
    """A pod that waits, or one that does not exist."""
    waiting = stage.pending()
    if waiting and stage.draw(0.7):
        return await stage.pod(stage.draw.of(waiting).key)
    made = party(stage.draw, f"auto{stage.draw.number(0, 99)}", stage.world.has)
    found = [each for each in made if each["kind"] == "Pod"]
    return found[0] if found else {"metadata": {"name": "x"}, "spec": {"containers": []}}


def _machine(name: str, group: str) -> Object:
    """A node that does not exist."""
    labels = {GROUP: group, ZONE: "a"}
    made = node(name, labels=labels, allocatable={"cpu": "8", "memory": "64Gi", "pods": "110"})
    made["metadata"] |= {"uid": ""}
    return made


async def _nodes(stage: Stage, raw: Object) -> Object:
    """ExtenderArgs with nodes that do not exist, and maybe others."""
    made = [_machine(f"new-{number}", stage.draw.of(["falcon", "eagle"])) for number in range(stage.draw.number(1, 2))]
    if stage.draw(0.3):
        return {"Pod": raw, "Nodes": None, "NodeNames": stage.nodes()}
    return {"Pod": raw, "Nodes": {"items": made}, "NodeNames": None}


async def _filter(stage: Stage, session: str) -> None:
    raw = await _pod(stage)
    await _call(stage, "filter", await _nodes(stage, raw), session)
    if stage.draw(0.3):  # An autoscaler that calls the scheduler's extender.
        await stage.call("simulated filter", "POST", "/filter", await _nodes(stage, raw))
        await stage.call("simulated prioritize", "POST", "/prioritize", await _nodes(stage, raw))


async def _prioritize(stage: Stage, session: str) -> None:
    await _call(stage, "prioritize", await _nodes(stage, await _pod(stage)), session)


async def _select(stage: Stage, session: str) -> None:
    chosen = _machine("new-0", stage.draw.of(["falcon", "eagle"]))
    if stage.draw(0.3):
        (chosen,) = [each for each in machine(stage.draw, "node-a", stage.world.has) if each["kind"] == "Node"]
    await _call(stage, "NodeSelected", {"Pod": await _pod(stage), "Node": chosen}, session)


async def _ready(stage: Stage, session: str) -> None:
    await _call(stage, "NodeReady", {"NodeName": stage.draw.of([*stage.nodes(), "absent"])}, session)


async def _expand(stage: Stage, _: str) -> None:
    """Cluster Autoscaler asks which of its groups to expand, in the form of gRPC."""
    draw = stage.draw
    pods = [await stage.pod(pod.key) for pod in stage.pending()]
    options = {name: (draw.number(0, 3), draw.some(pods)) for name in draw.some(["falcon", "eagle", "crow"], 1)}
    nodes = {name: _machine(f"template-{name}", name) for name in options}
    args = at_once(decode_options(request(options, nodes)))  # The bytes of the request have any order.
    found = await best_options(stage.autoscaler, args, 10.0)
    asked = json.dumps([options, nodes])
    stage.answered("autoscaler expand", asked, json.dumps(answer(encode_expansion(found, args))))


async def _estimate(stage: Stage, session: str) -> None:
    draw = stage.draw
    pods = [await stage.pod(pod.key) for pod in stage.pending()[: draw.number(0, 4)]]
    groups = [
        {
            "Name": name,
            "Template": _machine("template", name),
            "Limit": draw.number(0, 4),
            "Priority": draw.number(0, 2),
        }
        for name in draw.some(["falcon", "eagle", "crow"], 1)
    ]
    expander = draw.of(["least-waste", "least-nodes", "most-pods", "priority", "", "fewest-nodes"])
    body = {"Pods": {"items": pods}, "NodeGroups": groups} | ({"Expander": expander} if expander else {})
    await _call(stage, "estimate", body, session)
