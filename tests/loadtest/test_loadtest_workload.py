"""Workload files: what they hold, what is refused, and the objects that are made of them."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from httpx import ASGITransport, AsyncClient

from extender.kube.api import ObjectKey
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, PODS
from loadtest.endtoend.files import FileError
from loadtest.endtoend.objects import NAMESPACE, RESIDENTS, batch, device_classes
from loadtest.endtoend.workload import FOLDER, Arrival, Churn, Devices, Hopeless, Wish, Workload, named
from loadtest.idle_extender import IdleExtender
from tests.kit.clusters import NOW, Cluster, claim, node, pod, request

NODES = [f"node-{number}" for number in range(20)]
SHIPPED = {path.stem: named(path.stem)[1] for path in FOLDER.glob("*.yaml")}
ONE_CLAIM = "about: x\nselectors: {any: 'true'}\nwishes: [{selector: any}]\n"


def written(folder: Path, text: str) -> Workload:
    path = folder / "w.yaml"
    path.write_text(text)
    return named(str(path))[1]


# --- files


def test_the_workloads_that_are_shipped() -> None:
    assert set(SHIPPED) == {"churn", "claims", "crowded", "mixed", "negotiated", "none", "short", "templates"}
    assert {each.undisturbed for each in SHIPPED.values()} - {""} <= set(SHIPPED)


def test_a_file_elsewhere_is_a_workload_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(ONE_CLAIM + "nodes: [10, 20]\narrival: {when: during, perSecond: 5}\nchurn: {living: 0.5}\n")
    name, workload = named(str(path))
    assert name == "mine"
    assert (workload.nodes, workload.arrival.per_second, workload.churn.living) == ((10, 20), 5, 0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("about: x\npots: 5\n", 'pots: unknown key, did you mean "pods"?'),
        (ONE_CLAIM + "arrival: {wen: during}\n", 'arrival.wen: unknown key, did you mean "when"?'),
        ("about: x\nwishes: [{selector: a, count: 1}]\n", 'wishes.0.count: unknown key, did you mean "counts"?'),
        ("about: x\nstatus_updates_per_second: 5\n", 'unknown key, did you mean "statusUpdatesPerSecond"?'),
        ("pods: 5\n", "about: is missing"),
        ("about: x\npods: 1\n", "pods: expected 2 or more, not 1"),
        ("about: x\npods: yes\n", "pods: expected a whole number, not true"),
        ("about: x\nnodes: [5, no]\n", "nodes.1: expected a whole number, not false"),
        ("about: x\nchurn: {living: 1.5}\n", "churn.living: "),
        ("about: x\nsubjects: [ours]\n", "subjects.0: expected 'in-tree', 'dra-extender' or 'idle', not \"ours\""),
        ("about: x\nsubjects: [idle, idle]\n", "subjects: one is there twice: idle, idle"),
        (
            ONE_CLAIM.replace("selector: any", "selector: ayn"),
            'wishes.0.selector: there is no "ayn", did you mean "any"',
        ),
        (ONE_CLAIM + "hopeless: {wish: {selector: none}}\n", 'hopeless.wish.selector: there is no "none"'),
        (ONE_CLAIM + "hopeless: {wish: {selector: any}}\n", 'subjects: "idle" decides nothing'),
        (ONE_CLAIM + "classes: {whole: 'true'}\n", 'wishes.0.deviceClass: there is no "gpu.example.com"'),
        ("about: x\narrival: {perSecond: 5}\n", 'arrival.perSecond: 5, but pods come "before"'),
        ("about: x\nclaims: from-templates\n", 'claims: "from-templates", but there are no wishes'),
        ("about: x\ntransports: [Http, Http]\n", "transports: one is there twice: Http, Http"),
        ("about: [\n", "line "),
        ("- about\n", "expected one document of keys and values"),
        ("about: x\n---\nabout: y\n", "expected one document of keys and values"),
    ],
)
def test_what_is_wrong_is_told_by_file_field_and_value(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(FileError) as caught:
        written(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'w.yaml'}: ")
    assert problem in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        written(tmp_path, "pods: many\nlivng: 3\n")
    assert len(caught.value.problems) == 3


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(FileError, match='there is no workload "clams", did you mean "claims"'):
        named("clams")
    with pytest.raises(FileError, match=r"nowhere\.yaml: No such file"):
        named("nowhere.yaml")


def test_controllers_are_asked_in_one_way_after_the_other() -> None:
    negotiated = SHIPPED["negotiated"].by_transport("negotiated")
    assert {name: each.asked for name, each in negotiated.items()} == {
        "negotiated by Http": ("Http", "Http"),
        "negotiated by PodSchedulingContext": ("PodSchedulingContext", "PodSchedulingContext"),
    }
    assert SHIPPED["claims"].by_transport("claims") == {"claims": SHIPPED["claims"]}
    assert SHIPPED["claims"].asked == ()


# --- objects


@pytest.mark.parametrize(
    ("name", "templates", "claims", "hopeless", "residents"),
    [
        ("claims", 0, 50, 0, 0),
        ("none", 0, 0, 0, 0),
        ("templates", 1, 0, 0, 0),
        ("mixed", 0, 50, 0, 0),
        ("churn", 0, 50, 0, 0),
        ("crowded", 0, 100, 50, RESIDENTS),
        ("short", 2, 0, 0, RESIDENTS),
    ],
)
def test_what_a_workload_consists_of(name: str, templates: int, claims: int, hopeless: int, residents: int) -> None:
    made = batch(SHIPPED[name], 50, NODES)
    found = (len(made.templates), len(made.claims), len(made.hopeless), len(made.residents))
    assert found == (templates, claims, hopeless, residents)
    assert len(made.fitting) == 50


@pytest.mark.parametrize("workload", SHIPPED.values(), ids=SHIPPED)
def test_each_pod_refers_to_what_is_made_for_it(workload: Workload) -> None:
    made = batch(workload, 7, NODES)
    there = {each["metadata"]["name"] for each in (*made.claims, *made.templates)}
    for each in (*made.fitting, *made.hopeless):
        for entry in each["spec"]["resourceClaims"]:
            assert (entry.get("resourceClaimName") or entry["resourceClaimTemplateName"]) in there
    assert {each["metadata"]["namespace"] for each in (*made.claims, *made.fitting)} == {NAMESPACE}


def test_mixed_pods_have_twenty_shapes_in_turn() -> None:
    shapes = [orjson.dumps(each["spec"]) for each in batch(SHIPPED["mixed"], 40, NODES).claims]
    assert len(set(shapes)) == 20
    assert shapes[:20] == shapes[20:]


def test_pods_from_templates_have_their_shapes_in_turn() -> None:
    entries = [each["spec"]["resourceClaims"][0] for each in batch(SHIPPED["short"], 4, NODES).fitting]
    assert [each["resourceClaimTemplateName"] for each in entries] == ["shape-0", "shape-1", "shape-0", "shape-1"]


def test_a_starting_scheduler_meets_the_hopeless_first() -> None:
    made = batch(SHIPPED["crowded"], 5, NODES)
    names = [[each["metadata"]["name"] for each in pods] for pods in (made.hopeless, made.fitting)]
    assert max(names[0]) < min(names[1])


def test_a_claim_says_what_its_wish_does(tmp_path: Path) -> None:
    text = "about: x\nselectors: {a: '1 == 1', b: '2 == 2'}\nclasses: {whole: 'true', part: 'false'}\nwishes:\n"
    workload = written(
        tmp_path,
        text + "- {selector: a, counts: [2, 1], match: root, deviceClass: whole}\n- {selector: b, deviceClass: part}\n",
    )
    first, second = (each["spec"]["devices"] for each in batch(workload, 2, NODES).claims)
    asked = [
        (each["exactly"]["deviceClassName"], each["exactly"]["count"], each["exactly"]["selectors"])
        for each in (*first["requests"], *second["requests"])
    ]
    a, b = ([{"cel": {"expression": text}}] for text in ("1 == 1", "2 == 2"))
    assert asked == [("whole", 2, a), ("whole", 1, a), ("part", 1, b)]
    assert first["constraints"] == [{"matchAttribute": "root"}]
    assert "constraints" not in second
    classes = list(device_classes(workload.classes.items()))
    assert [each["metadata"]["name"] for each in classes] == ["whole", "part"]
    assert classes[1]["spec"] == {"selectors": [{"cel": {"expression": "false"}}]}


def test_the_documentation_has_every_key() -> None:
    text = (FOLDER.parents[1] / "docs" / "reference" / "load-tests.md").read_text()
    for kind in (Workload, Devices, Wish, Arrival, Churn, Hopeless):
        for field in kind.model_fields.values():
            assert f"`{field.alias}`" in text


# The extender that decides nothing: it says yes, and writes what we write.


def idle(cluster: Cluster, *known: Any) -> AsyncClient:
    app: Any = IdleExtender(cluster.api, known, lambda: NOW)
    return AsyncClient(transport=ASGITransport(app=app), base_url="http://idle")


async def call(http: AsyncClient, verb: str, **args: Any) -> Any:
    return (await http.post(f"/{verb}", json=args)).raise_for_status().json()


async def test_every_node_will_do_and_all_the_same() -> None:
    async with idle(Cluster.of()) as http:
        asked = {"Pod": pod("p", "c"), "NodeNames": ["a", "b"]}
        assert await call(http, "filter", **asked) == {"NodeNames": ["a", "b"]}
        assert await call(http, "prioritize", **asked) == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 0}]
        victims = {"a": {"Pods": [{"UID": "u"}]}}
        assert await call(http, "preempt", NodeNameToMetaVictims=victims) == {"NodeNameToMetaVictims": victims}
        assert (await http.get("/readyz")).status_code == 200


async def test_a_pod_whose_claim_has_no_name_yet_waits() -> None:
    raw = pod("p")
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    async with idle(Cluster.of()) as http:
        reply = await call(http, "filter", Pod=raw, NodeNames=["a"])
        assert reply["NodeNames"] == []
        assert list(reply["FailedAndUnresolvableNodes"]) == ["a"]


@pytest.mark.parametrize("is_known", [True, False])
async def test_it_writes_what_we_write(*, is_known: bool) -> None:
    cluster = Cluster.of(node("a"), claim("c", request("x", count=2), request("y")), pod("p", "c"))
    key = ObjectKey("ns", "c")
    known = [await cluster.api.get(CLAIMS, key)] if is_known else []
    async with idle(cluster, *known) as http:
        await call(http, "filter", Pod=await cluster.api.get(PODS, ObjectKey("ns", "p")), NodeNames=["a"])
        assert await call(http, "bind", PodName="p", PodNamespace="ns", PodUID="uid-p", Node="a") == {}
    written = await cluster.api.get(CLAIMS, key)
    assert written["metadata"]["finalizers"] == [FINALIZER]
    results = written["status"]["allocation"]["devices"]["results"]
    assert [each["request"] for each in results] == ["x", "x", "y"]
    assert len({each["device"] for each in results}) == 3
    assert [each["uid"] for each in written["status"]["reservedFor"]] == ["uid-p"]
    assert await cluster.node_of("p") == "a"


async def test_a_write_that_is_refused_is_told() -> None:
    async with idle(Cluster.of(node("a"))) as http:
        reply = await call(http, "bind", PodName="p", PodNamespace="ns", PodUID="uid-p", Node="a")
        assert "not found" in reply["Error"].lower() or "404" in reply["Error"]
