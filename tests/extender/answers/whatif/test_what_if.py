"""What if: each change that a question can ask for, and what it does to the pods."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from httpx import AsyncClient

from extender.config.settings import Settings
from extender.config.sources import load
from extender.faces.assembly import make_extender
from extender.kube.api import ApiError
from extender.kube.resources import PRIORITY_CLASSES
from tests.cluster.priority_cases import CLASSES, DEFAULT, HIGH
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    app_over,
    budget,
    claim,
    claim_template,
    client_of,
    device_class,
    local_slice,
    node,
    pod,
    request,
    solver,
)
from tests.kit.servers.memory import Fault, Transport

JSON = {"accept": "application/json"}
TEMPLATES = """
nodeTemplates:
- name: big
  labels: {machine: big}
  slices:
  - driver: gpu.example.com
    devices: [{name: gpu-0}, {name: gpu-1}]
"""


def made_by(kind: str, made: Object) -> Object:
    """A pod with a controller."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "set", "uid": "uid-set", "controller": True}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}}


def world() -> tuple[Object, ...]:
    """Node a is full, node b has two free devices; "p" fits, and "many" fits nowhere."""
    return (
        GPU,
        device_class("nic", selectors=['device.driver == "nic.example.com"']),
        node("a"),
        local_slice("a"),
        node("b", labels={"machine": "small"}),
        local_slice("b", devices=2),
        claim("held", allocated=["a/gpu-0"], at="a", users=["runs"]),
        made_by("ReplicaSet", pod("runs", "held", on="a", priority=1, labels={"app": "x"})),
        claim("c"),
        claim("three", request(count=3)),
        pod("p", "c"),
        pod("many", "three"),
    )


async def asked(question: object, objects: Iterable[Object] | None = None, tmp: Path | None = None) -> Any:
    """The answer to a question over a cluster; with a folder, there are node templates."""
    settings = Settings()
    if tmp is not None:
        (tmp / "templates.yaml").write_text(TEMPLATES)
        settings = load(environment={"DRA_EXTENDER__AUTOSCALER__NODE_TEMPLATES": str(tmp / "templates.yaml")})
    async with client_of(Cluster.of(*(world() if objects is None else objects)).app(settings)) as client:
        reply = await client.post("/what-if", content=yaml.safe_dump(question), headers=JSON)
    return reply.json() if reply.status_code == 200 else (reply.status_code, reply.json()["error"])


def of(answer: Any, name: str) -> Any:
    (found,) = [each for each in answer["pods"] if each["pod"] == f"ns/{name}"]
    return found


def devices(fate: Any) -> list[str]:
    return [f"{each['device']['pool']}/{each['device']['device']}" for each in fate["devices"]]


async def test_without_changes_everything_is_as_today() -> None:
    answer = await asked({})
    assert {each["pod"]: each["difference"] for each in answer["pods"]} == {"ns/p": "as today", "ns/many": "waits"}
    assert of(answer, "p")["then"] == of(answer, "p")["today"]
    assert of(answer, "many")["then"]["reasons"] == [
        {"reason": "no free device for request gpu", "nodes": 1},
        {"reason": "not enough free devices for request gpu", "nodes": 1},
    ]


@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        ({"count": 2}, "gets a place"),
        ({"count": 4}, "waits"),
        ({"selectors": ["false"]}, "waits"),
        ({"count": 1, "deviceClassName": "nic"}, "waits"),
        ({"allocationMode": "All"}, "gets a place"),
        ({"count": 1, "capacity": {"memory": "1Gi"}}, "waits"),
    ],
)
async def test_an_edited_request_is_judged_as_filter_judges_it(edit: Object, difference: str) -> None:
    answer = await asked({"edits": [{"pod": "ns/many", "request": "gpu", **edit}]})
    assert of(answer, "many")["difference"] == difference
    assert of(answer, "many")["edited"] is True


async def test_pods_take_devices_from_each_other() -> None:
    answer = await asked({"edits": [{"pod": "ns/many", "request": "gpu", "count": 2}]})
    assert devices(of(answer, "many")["then"]) == ["b/gpu-0", "b/gpu-1"]
    assert of(answer, "p")["difference"] == "loses its place"


async def test_a_new_node_by_a_template_has_the_devices_of_the_template(tmp_path: Path) -> None:
    answer = await asked({"nodes": [{"template": "big", "count": 2}]}, tmp=tmp_path)
    assert [(each["node"], each["devices"], each["origin"]) for each in answer["nodes"]] == [
        ("new-big-1", 2, "template big"),
        ("new-big-2", 2, "template big"),
    ]
    assert {row["node"] for row in answer["picture"]["rows"]} == {"new-big-1", "new-big-2"}


async def test_a_new_node_is_like_another_one_with_free_devices_and_without_its_cordon() -> None:
    cordoned = {**node("c"), "spec": {"unschedulable": True}}
    objects = (*world(), cordoned, local_slice("c", devices=3))
    answer = await asked({"nodes": [{"like": "c"}]}, objects)
    assert (of(answer, "many")["difference"], of(answer, "many")["then"]["node"]) == ("gets a place", "new-c-1")
    assert answer["nodes"][0]["stranded"] == 0
    assert answer["nodes"][0]["pods"][0]["pod"] == "ns/many"


async def test_labels_of_a_new_node_count() -> None:
    wanting = pod("wanting", "w")
    wanting["spec"]["nodeSelector"] = {"zone": "z"}
    objects = (*world(), claim("w"), wanting)
    assert of(await asked({"nodes": [{"like": "a"}]}, objects), "wanting")["difference"] == "waits"
    answer = await asked({"nodes": [{"like": "a", "labels": {"zone": "z"}}]}, objects)
    assert of(answer, "wanting")["then"]["node"] == "new-a-1"


async def test_pods_of_a_drained_node_come_again() -> None:
    answer = await asked({"drain": ["a"]})
    moved = of(answer, "runs")
    assert (moved["origin"], moved["difference"], moved["caution"]) == ("drained", "moves", "")
    assert (devices(moved["today"]), devices(moved["then"])) == (["a/gpu-0"], ["b/gpu-0"])
    answer = await asked({"drain": ["a", "b"]})
    assert of(answer, "runs")["then"]["reasons"] == [{"reason": "node is unschedulable", "nodes": 2}]


async def test_a_claim_from_a_template_is_made_again_for_a_drained_pod() -> None:
    own = claim(
        "own",
        allocated=["a/gpu-0"],
        at="a",
        users=["q"],
        metadata={
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "uid-q", "controller": True}],
        },
    )
    drained = made_by("ReplicaSet", pod("q", on="a"))
    drained["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    drained["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "own"}]
    objects = (GPU, claim_template(), node("a"), local_slice("a"), node("b"), local_slice("b"), own, drained)
    answer = await asked({"drain": ["a"]}, objects)
    assert devices(of(answer, "q")["then"]) == ["b/gpu-0"]


@pytest.mark.parametrize(
    ("runs", "others", "told"),
    [
        (pod("runs", "held", on="a"), (), "no controller makes it again"),
        (
            made_by("ReplicaSet", pod("runs", "held", on="a", labels={"app": "x"})),
            (budget("few", {"app": "x"}, 0),),
            "PodDisruptionBudget ns/few allows no eviction",
        ),
    ],
)
async def test_what_makes_a_drain_hard_is_told(runs: Object, others: tuple[Object, ...], told: str) -> None:
    objects = [each for each in world() if each["metadata"]["name"] != "runs"]
    answer = await asked({"drain": ["a"]}, (*objects, runs, *others))
    assert told in of(answer, "runs")["caution"]
    assert told in answer["text"]


async def test_pods_of_daemon_sets_stay() -> None:
    objects = [each for each in world() if each["metadata"]["name"] != "runs"]
    answer = await asked({"drain": ["a"]}, (*objects, made_by("DaemonSet", pod("runs", "held", on="a"))))
    assert answer["staying"] == [{"pod": "ns/runs", "reason": "DaemonSet set runs it on this node"}]


async def test_new_pods_ask_for_devices_and_have_names_of_their_own() -> None:
    requests = [{"name": "gpu", "deviceClassName": "gpu"}]
    answer = await asked({"pods": [{"namespace": "ns", "count": 3, "priority": 5, "requests": requests}]})
    fates = {each["pod"]: bool(each["then"]["node"]) for each in answer["pods"] if each["origin"] == "new"}
    assert fates == {"ns/what-if-1": True, "ns/what-if-2": True, "ns/what-if-3": False}
    assert of(answer, "what-if-1")["today"] is None
    assert of(answer, "p")["difference"] == "loses its place"


async def test_who_would_be_evicted_is_told() -> None:
    requests = [{"name": "gpu", "deviceClassName": "gpu", "count": 1, "selectors": ["true"]}]
    question = {"pods": [{"namespace": "ns", "count": 3, "priority": 5, "requests": requests}]}
    preemption = of(await asked(question), "what-if-3")["preemption"]
    assert (preemption["node"], [each["pod"] for each in preemption["victims"]]) == ("a", ["ns/runs"])


PRIORITIES: dict[str, tuple[dict[str, object], int | str]] = {
    "a class": ({"priorityClassName": HIGH}, 1000),
    "a class of Kubernetes": ({"priorityClassName": "system-node-critical"}, 2_000_001_000),
    "the default": ({}, 7),
    "a priority": ({"priority": 5}, 5),
    "both": (
        {"priority": 5, "priorityClassName": HIGH},
        "pods[0].priority: priorityClassName says it: only one of them",
    ),
    "no such class": (
        {"priorityClassName": "priority-hihg"},
        "pods[0].priorityClassName: there is no PriorityClass priority-hihg; did you mean priority-high?",
    ),
}


@pytest.mark.parametrize(("fields", "expected"), PRIORITIES.values(), ids=PRIORITIES)
async def test_new_pods_have_the_priority_of_their_class(fields: dict[str, object], expected: int | str) -> None:
    cluster = Cluster.of(*world())
    for each in (*CLASSES, DEFAULT):
        await cluster.api.create(PRIORITY_CLASSES, each)
    requests = [{"name": "gpu", "deviceClassName": "gpu"}]
    question = {"pods": [{"namespace": "ns", "name": "new", "requests": requests, **fields}]}
    async with client_of(cluster.app()) as client:
        reply = await client.post("/what-if", content=yaml.safe_dump(question), headers=JSON)
    found = of(reply.json(), "new")["priority"] if reply.status_code == 200 else reply.json()["error"]
    assert found == expected


async def test_pods_of_a_class_without_preemption_evict_nobody() -> None:
    cluster = Cluster.of(*world())
    for each in CLASSES:
        await cluster.api.create(PRIORITY_CLASSES, {**each, "preemptionPolicy": "Never"})
    requests = [{"name": "gpu", "deviceClassName": "gpu", "count": 1, "selectors": ["true"]}]
    question = {"pods": [{"namespace": "ns", "count": 3, "priorityClassName": HIGH, "requests": requests}]}
    async with client_of(cluster.app()) as client:
        reply = await client.post("/what-if", content=yaml.safe_dump(question), headers=JSON)
    assert of(reply.json(), "what-if-3")["preemption"] is None


async def test_that_classes_can_not_be_read_is_told() -> None:
    cluster = Cluster.of(*world())
    refused = ApiError(403, "Forbidden", "priorityclasses is forbidden")
    transport = Transport(cluster.api)
    transport.script("select priorityclasses", *[Fault(refused=refused)] * 2)
    requests = [{"name": "gpu", "deviceClassName": "gpu"}]
    app = app_over(make_extender(transport, cluster.state, solver(), Settings()))
    async with client_of(app) as client:
        question: Object = {"pods": [{"requests": requests}]}
        plain = await client.post("/what-if", content=yaml.safe_dump(question))
        question = {"pods": [{"requests": requests, "priorityClassName": "mine"}]}
        named = await client.post("/what-if", content=yaml.safe_dump(question), headers=JSON)
    told = "new pods without a priority have priority 0 here: priorityclasses is forbidden"
    assert told in " ".join(plain.text.split())
    problem = "pods[0].priorityClassName: PriorityClass mine can't be read: priorityclasses is forbidden"
    assert (named.status_code, named.json()["error"]) == (400, problem)


async def test_nothing_changes_in_the_cluster() -> None:
    cluster = Cluster.of(*world())
    before = cluster.state.snapshot
    async with client_of(cluster.app()) as client:
        requests = [{"name": "gpu", "deviceClassName": "gpu"}]
        question = {"drain": ["a"], "nodes": [{"like": "b"}], "pods": [{"requests": requests}]}
        reply = await client.post("/what-if", content=yaml.safe_dump(question))
        first = (await client.get("/pods?state=pending", headers=JSON)).json()
    assert (reply.status_code, reply.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert "Nothing was written" in reply.text
    assert cluster.state.snapshot is before
    assert {each["pod"] for each in first["items"]} == {"p", "many"}


MISTAKES: dict[str, tuple[str, str]] = {
    "no such pod": (
        "edits: [{pod: ns/manny, request: gpu, count: 1}]",
        "edits[0].pod: pod ns/manny does not exist; did you mean ns/many?",
    ),
    "a pod that runs": (
        "edits: [{pod: ns/runs, request: gpu, count: 1}]",
        "edits[0].pod: pod ns/runs is not pending",
    ),
    "no such request": (
        "edits: [{pod: ns/p, request: gpus, count: 1}]",
        "edits[0].request: pod ns/p has no request gpus; did you mean gpu?",
    ),
    "no such claim": (
        "edits: [{pod: ns/p, claim: d, request: gpu, count: 1}]",
        "edits[0].claim: pod ns/p has no entry d in spec.resourceClaims",
    ),
    "nothing to change": (
        "edits: [{pod: ns/p, request: gpu}]",
        "edits[0]: changes nothing: give it allocationMode, capacity, count, deviceClassName, selectors",
    ),
    "no devices": (
        "edits: [{pod: ns/p, request: gpu, count: 0}]",
        "edits[0].count: 0 is not 1 or more",
    ),
    "a count as text": (
        "edits: [{pod: ns/p, request: gpu, count: '2'}]",
        'edits[0].count: "2" is not a whole number of 64 bits',
    ),
    "no expression": (
        "edits: [{pod: ns/p, request: gpu, selectors: [a +]}]",
        "edits[0].selectors[0]: 1:4: Syntax error: unexpected end of the expression",
    ),
    "no quantity": (
        "edits: [{pod: ns/p, request: gpu, capacity: {memory: x}}]",
        'edits[0].capacity[memory]: "x" is not a quantity',
    ),
    "an edit twice": (
        "edits: [{pod: ns/p, request: gpu, count: 1}, {pod: ns/p, request: gpu, count: 1}]",
        "edits[1]: request gpu of pod ns/p is there twice",
    ),
    "no such node": (
        "drain: [c]",
        "drain[0]: node c does not exist",
    ),
    "no such template": (
        "nodes: [{template: big}]",
        "nodes[0].template: node template big does not exist: there are none (setting autoscaler.nodeTemplates)",
    ),
    "no such model": (
        "nodes: [{like: x}]",
        "nodes[0].like: node x does not exist",
    ),
    "template and model": (
        "nodes: [{like: a, template: b}]",
        "nodes[0]: needs template (the name of a node template) or like (the name of a node), one of them",
    ),
    "a label that is none": (
        "nodes: [{like: a, labels: {'-': x}}]",
        'nodes[0].labels["-"]',
    ),
    "too many nodes": (
        "nodes: [{like: a, count: 101}]",
        "nodes: at most 100 are possible, not 101",
    ),
    "too many pods": (
        "pods: [{count: 200, requests: [{name: g, deviceClassName: gpu}]}]",
        "pods: at most 100 are possible, not 200",
    ),
    "a pod without requests": (
        "pods: [{}]",
        "pods[0].requests: is required: the devices that each of the pods asks for",
    ),
    "a request without a class": (
        "pods: [{requests: [{name: gpu}]}]",
        "pods[0].requests[0].deviceClassName: is required",
    ),
    "a pod that exists": (
        "pods: [{name: p, namespace: ns, requests: [{name: g, deviceClassName: gpu}]}]",
        "pods[0].name: pod or claim ns/p exists already",
    ),
    "an unknown field": (
        "drains: [a]",
        'drains: unknown field, did you mean "drain"?',
    ),
    "no list": (
        "drain: a",
        'drain: "a" is not a list',
    ),
    "no object": (
        "[drain]",
        "expected keys and values at the top",
    ),
}


@pytest.mark.parametrize(("question", "error"), MISTAKES.values(), ids=MISTAKES.keys())
async def test_a_mistake_is_told_with_its_object_and_field(question: str, error: str) -> None:
    status, told = await asked(yaml.safe_load(question))
    assert (status, error in told) == (400, True), told


async def test_an_edit_names_the_claim_if_several_have_the_request() -> None:
    both = (*world(), claim("other"), pod("both", "c", "other"))
    edit = {"pod": "ns/both", "request": "gpu", "count": 2}
    status, told = await asked({"edits": [edit]}, both)
    assert (status, told) == (
        400,
        "edits[0].claim: claims c, other of pod ns/both have a request gpu: say which claim",
    )
    assert of(await asked({"edits": [{**edit, "claim": "other"}]}, both), "both")["edited"] is True


async def test_the_form_has_what_can_be_edited(client: AsyncClient) -> None:
    found = (await client.get("/console/what-if?pod=ns/many")).json()
    assert found["requests"] == [
        {"claim": "three", "request": "gpu", "deviceClassName": "gpu", "count": 3, "selectors": [], "capacity": {}}
    ]
    missing = await client.get("/console/what-if?pod=ns/mani")
    assert (missing.status_code, missing.json()["error"]) == (404, "pod ns/mani does not exist; did you mean ns/many?")


OBJECTS = world()
