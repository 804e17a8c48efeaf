"""What people ask on a stage: explanations, what would happen if, and tables."""

from typing import Any, Final
from urllib.parse import quote, urlencode

import yaml

from tests.corpus.machines import OWN
from tests.corpus.stage import Stage
from tests.corpus.waiting import party
from tests.kit.clusters import DRIVER, Object

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_YAML: Final = "application/yaml"
_TABLES: Final = (
    "/cluster",
    "/pools",
    "/pools?node=node-a",
    "/devices",
    "/devices?wide=true",
    "/devices?class=gpu&free=true",
    "/devices?count=true",
    "/devices?state=allocated",
    "/resources",
    "/resources?by=class",
    "/resources?by=properties&properties=model",
    "/resources?wide=true",
    "/claims",
    "/claims?wide=true",
    "/claims?state=pending",
    "/pods",
    "/pods?state=pending",
    "/quotas",
    "/problems",
    "/decisions",
    "/decisions?verb=filter",
    "/metrics",
    "/readyz?verbose",
    "/",
    "/console/fleet",
    "/console/matches?class=large",
    "/console/matches?attribute=model%3Dh100",
    f"/console/history?driver={DRIVER}&pool=node-a&device=gpu-0",
    "/console/what-if",
    "/console/sessions",
    "/pods?nod=x",
    "/devics",
)


_POD: Final = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}}
_MISTAKES: Final[tuple[tuple[str, object], ...]] = (
    ("/filter", b""),
    ("/filter", b"{"),
    ("/filter", b"[]"),
    ("/filter", b'"\\ud800"'),
    ("/filter", {"Pod": _POD}),
    ("/filter", {"Pod": None, "NodeNames": []}),
    ("/filter", {"Pod": _POD, "NodeNames": ["a", 1]}),
    ("/filter", {"Pod": {"metadata": {"name": 1}}, "NodeNames": ["a"]}),
    ("/filter", {"Pod": {"metadata": {"name": "x" * 300}}, "NodeNames": ["a"]}),
    ("/filter", {"Pod": _POD, "Nodes": {"items": [{"metadata": {}}]}}),
    ("/prioritize", {"Pod": _POD, "Nodes": "all"}),
    ("/preempt", {"Pod": _POD}),
    ("/preempt", {"Pod": _POD, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": ""}]}}}),
    ("/preempt", {"Pod": _POD, "NodeNameToMetaVictims": {"a": {"Pods": "x"}}}),
    ("/bind", {"PodName": "p", "PodNamespace": "ns", "PodUID": "u"}),
    ("/bind", {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n" * 400}),
    ("/bind", {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "node-a"}),
    ("/explain", b""),
    ("/explain", b"metadata: [\n"),
    ("/explain", {"spec": 1}),
    ("/what-if", {"edit": []}),
    ("/what-if", {"edits": [{"pod": "ns/p"}], "drain": "node-a"}),
    ("/autoscaler/start", {"Drivers": []}),
    ("/autoscaler/start", {"Drivers": ["Not A Driver", 1]}),
    ("/autoscaler/estimate", {"Pods": {"items": [_POD, _POD]}, "NodeGroups": []}),
    ("/autoscaler/estimate", {"Pods": {}, "NodeGroups": [{"Name": "x", "Template": {}, "Limit": -1}]}),
    ("/autoscaler/NodeSelected", {"Pod": _POD, "Node": {"metadata": {}}}),
    ("/autoscaler/NodeReady", {}),
    ("/filtre", {}),
)


async def err(stage: Stage) -> None:
    """Somebody sends what cannot be understood."""
    path, body = stage.draw.of(_MISTAKES)
    await stage.call(f"mistake {path}", "POST", path, body)


async def explain(stage: Stage) -> None:
    """Ask about a pod or a claim of the cluster, or about a pod that does not exist."""
    draw, accept = stage.draw, stage.draw.of([_JSON, _JSON, _TEXT])
    kind = draw.number(0, 9)
    claims = sorted(stage.state.snapshot.claims)
    if kind < 2 and claims:
        key = draw.of(claims)
        await stage.call(f"explain claim {key}", "GET", f"/explain/{key.namespace}/claims/{key.name}", accept=accept)
    elif kind < 4:
        await _explain_other(stage, accept)
    elif pods := stage.pending() or stage.pods():
        key = draw.of(pods).key
        node = f"?node={draw.of(stage.nodes())}" if draw(0.3) else ""
        await stage.call(f"explain {key}", "GET", f"/explain/{key.namespace}/{key.name}{node}", accept=accept)
    else:
        await stage.call("explain nobody", "GET", "/explain/ns/nobody", accept=accept)


async def _explain_other(stage: Stage, accept: str) -> None:
    made = party(stage.draw, f"other{stage.draw.number(0, 99)}", stage.world.has)
    pod = next((each for each in made if each["kind"] == "Pod"), None)
    if pod is None:
        return
    if stage.draw(0.5):
        body: Any = yaml.safe_dump(pod).encode()
        await stage.call("explain other", "POST", "/explain", body, accept=accept, **{"content-type": _YAML})
    else:
        asked = {"Pod": pod, "Nodes": None, "NodeNames": stage.nodes()}
        await stage.call("explain other", "POST", "/explain", asked, accept=accept)


async def what_if(stage: Stage) -> None:
    """Ask what would happen if some things were different."""
    draw = stage.draw
    question: Object = {}
    for _ in range(draw.of([1, 1, 2])):
        field, entries = draw.of([_edits, _drained, _new_pods, _new_nodes])(stage)
        if entries:
            question[field] = entries
    accept = draw.of([_JSON, _JSON, _TEXT])
    if draw(0.2):
        await stage.call("what if", "GET", f"/what-if?question={quote(yaml.safe_dump(question))}", accept=accept)
    else:
        await stage.call("what if", "POST", "/what-if", question, accept=accept)


def _edits(stage: Stage) -> tuple[str, list[Object]]:
    draw, pods = stage.draw, [str(pod) for pod in stage.pending()] or ["ns/nobody"]
    changes = [
        {"count": draw.number(1, 3)},
        {"deviceClassName": draw.of(["gpu", "large", "none"])},
        {"selectors": []},
        {"selectors": [f'{OWN}.model == "a100"']},
        {"capacity": {"memory": "20Gi"}},
        {"allocationMode": "All"},
        {"count": 0},
        {},
    ]
    requests = ["r0", "r0", "gpu", "r1", "r0/best", "license"]
    return "edits", [{"pod": draw.of(pods), "request": draw.of(requests), **draw.of(changes)}]


def _drained(stage: Stage) -> tuple[str, list[Any]]:
    return "drain", stage.draw.some([*stage.nodes(), *(["absent"] if stage.draw(0.1) else [])], 1, 2)


def _new_pods(stage: Stage) -> tuple[str, list[Object]]:
    draw = stage.draw
    request: Object = {"name": "gpu", "deviceClassName": draw.of(["gpu", "large"]), "count": draw.number(1, 2)}
    if draw(0.2):
        request["selectors"] = [draw.of([f'{OWN}.model == "h100"', "device."])]
    wanted = {"namespace": draw.of(["ns", "team"]), "name": draw.of(["new", "ant"]), "requests": [request]}
    return "pods", [{**wanted, "count": draw.number(1, 3), "priority": draw.of([0, 500])}]


def _new_nodes(stage: Stage) -> tuple[str, list[Object]]:
    draw = stage.draw
    source = draw.of([{"template": "falcon"}, {"like": "node-a"}, {"template": "absent"}, {"like": "node-b"}])
    return "nodes", [{**source, "count": draw.number(1, 2), "labels": {"zone": draw.of("ab")}}]


async def look(stage: Stage) -> None:
    """Read a table, the console or the metrics."""
    path = stage.draw.of(_TABLES)
    if path == "/console/what-if" and stage.pending():
        path += "?" + urlencode({"pod": str(stage.draw.of(stage.pending()))})
    await stage.call(f"look {path}", "GET", path, accept=stage.draw.of([_JSON, _TEXT, "*/*"]))
