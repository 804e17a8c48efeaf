"""Simulation: pending pods one after the other, by the verbs that the service runs."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest
import yaml

import allocator
import extender
from allocator import Quantity
from extender import Cluster, ManifestsError, Placement, UnknownPodError, UnreadableFilesError
from extender.cluster.objects.extended_resources import asked
from extender.cluster.objects.pods import parse_pod
from extender.config.sources import load
from tests.extender.answers.explain.scenes import with_spec
from tests.kit.clusters import DRIVER, GPU, Object, claim, claim_template, device_class, local_slice, node, pod, request
from tests.kit.places import ROOT

PLUGIN = "plugin.example.com/gpu"
SERVED_HERE = "example.com/gpu"


def wanting(amount: int, **fields: object) -> Object:
    return {"name": "c", "image": "i", "resources": {"requests": {PLUGIN: str(amount)}}, **fields}


def placed(*objects: Object, settings: str = "") -> dict[str, Placement]:
    cluster = Cluster.from_objects(objects, settings=load(settings))
    return {each.pod: each for each in cluster.schedule()}


def template(name: str) -> Object:
    spec = {"spec": {"devices": {"requests": [request()]}}}
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def pod_from_template(name: str, created: str) -> Object:
    found = pod(name, created=created)
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return found


def test_pods_go_in_order_of_their_age_until_nothing_is_left() -> None:
    days = {"third": "2026-01-03", "first": "2026-01-01", "second": "2026-01-02"}
    pods = [pod_from_template(name, f"{day}T00:00:00Z") for name, day in days.items()]
    found = placed(GPU, node("a"), local_slice("a", 2), template("t"), *pods)
    assert list(found) == ["ns/first", "ns/second", "ns/third"]
    assert [(each.node, [d.result.device.device for d in each.devices]) for each in found.values()] == [
        ("a", ["gpu-0"]),
        ("a", ["gpu-1"]),
        ("", []),
    ]
    assert found["ns/third"].reason == "1 no free device for request gpu"


def test_a_pod_of_higher_priority_goes_before_older_pods_as_in_the_queue_of_kube_scheduler() -> None:
    urgent = pod("young", "d", created="2026-01-02T00:00:00Z", priority=7)
    older = pod("old", "c", created="2026-01-01T00:00:00Z")
    found = placed(GPU, node("a"), local_slice("a"), claim("c"), claim("d"), older, urgent)
    assert [(name, each.node) for name, each in found.items()] == [("ns/young", "a"), ("ns/old", "")]


def test_equal_reasons_of_nodes_are_counted() -> None:
    cordoned = {**node("d"), "spec": {"unschedulable": True}}
    found = placed(
        GPU,
        node("a"),
        node("b"),
        node("c"),
        cordoned,
        local_slice("c"),
        claim("c", request(count=2)),
        pod("p", "c"),
    )
    assert found["ns/p"].reason == (
        "2 no device for request gpu, 1 node is unschedulable, 1 not enough free devices for request gpu"
    )


def test_a_cluster_without_nodes_is_the_reason() -> None:
    assert (placed(GPU, claim("c"), pod("p", "c")))["ns/p"].reason == "there are no nodes"


def test_pods_that_run_or_are_done_are_left_alone() -> None:
    done = pod("done")
    done["status"]["phase"] = "Succeeded"
    found = placed(node("a"), pod("running", on="a"), done, pod("new"))
    assert {name: each.node for name, each in found.items()} == {"ns/new": "a"}


def test_a_claim_that_a_pod_shares_takes_it_to_the_same_node() -> None:
    found = placed(GPU, node("a"), node("b"), local_slice("b"), claim("c"), pod("p", "c"), pod("q", "c"))
    assert [each.node for each in found.values()] == ["b", "b"]
    assert found["ns/p"].devices == found["ns/q"].devices


def test_what_device_plugins_have_left_is_counted_as_pods_are_placed() -> None:
    pods = [pod(f"p{number}", resources={PLUGIN: "2"}) for number in range(3)]
    running = [pod("running", on="a", resources={PLUGIN: "1"}), pod("done", on="b", resources={PLUGIN: "4"})]
    running[1]["status"]["phase"] = "Succeeded"
    found = placed(node("a", allocatable={PLUGIN: "4"}), node("b", allocatable={PLUGIN: "2"}), *running, *pods)
    assert sorted(each.node for each in found.values()) == ["", "a", "b"]
    assert found["ns/p2"].reason == f"2 Insufficient {PLUGIN}"


OFFERED: dict[str, tuple[Object, list[str]]] = {
    "both": ({"allocatable": {PLUGIN: "1"}, "capacity": {PLUGIN: "2"}}, ["a", ""]),
    "only the capacity, as in the text of KEP-5004": ({"capacity": {PLUGIN: 2}}, ["a", "a"]),
    "null": ({"allocatable": None, "capacity": {PLUGIN: "2"}}, ["a", "a"]),
    "nothing is allocatable": ({"allocatable": {}, "capacity": {PLUGIN: "2"}}, ["", ""]),
    "nothing": ({}, ["", ""]),
}


@pytest.mark.parametrize(("status", "nodes"), OFFERED.values(), ids=OFFERED)
def test_the_capacity_of_a_node_is_allocatable_if_the_node_does_not_say(status: Object, nodes: list[str]) -> None:
    """An API server copies it."""
    pods = [pod(f"p{number}", resources={PLUGIN: "1"}) for number in range(2)]
    found = placed({**node("a"), "status": status}, *pods)
    assert [each.node for each in found.values()] == nodes


def test_where_no_plugin_offers_a_resource_devices_of_its_class_are_counted() -> None:
    extended = device_class(selectors=[f'device.driver == "{DRIVER}"'], extended=SERVED_HERE)
    nodes = [
        node("plugin", allocatable={SERVED_HERE: "1"}),
        node("devices"),
        node("nothing", allocatable={SERVED_HERE: "0"}),
    ]
    pods = [pod(f"p{number}", resources={SERVED_HERE: "1"}) for number in range(3)]
    found = placed(extended, *nodes, local_slice("devices", 1), *pods)
    assert sorted(each.node for each in found.values()) == ["", "devices", "plugin"]
    assert f"1 Insufficient {SERVED_HERE}" in found["ns/p2"].reason


PEAKS: dict[str, tuple[list[Object], list[Object], int]] = {
    "containers together": ([], [wanting(1), wanting(2)], 3),
    "the largest init container, if that is more": ([wanting(4), wanting(5)], [wanting(3)], 5),
    "or else the containers": ([wanting(2)], [wanting(3)], 3),
    "sidecars beside the containers": ([wanting(1, restartPolicy="Always")], [wanting(3)], 4),
    "sidecars beside init containers that start later": (
        [wanting(3), wanting(1, restartPolicy="Always"), wanting(3)],
        [wanting(1)],
        4,
    ),
}


@pytest.mark.parametrize(("init", "containers", "peak"), PEAKS.values(), ids=PEAKS)
def test_a_pod_needs_as_much_as_it_does_at_its_peak(init: list[Object], containers: list[Object], peak: int) -> None:
    raw = pod()
    raw["spec"] |= {"initContainers": init, "containers": containers}
    assert asked(parse_pod(raw).containers) == {PLUGIN: Quantity.from_int(peak).nano}


def test_a_pod_without_a_spec_needs_nothing() -> None:
    bare = pod("bare")
    del bare["spec"]
    assert (placed(node("a"), bare))["ns/bare"].node == "a"


NOT_MODELED: Object = {
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
}
OVERLOOKED: dict[str, tuple[list[Object], tuple[str, ...]]] = {
    "devices alone": ([node("a"), pod(resources={PLUGIN: "1"})], ()),
    "cpu": ([pod("p", "c", resources={"cpu": "1"})], ()),
    "cpu of a pod without devices": ([pod(resources={"cpu": "1"})], ()),
    "much": (
        [with_spec(pod("p", "c"), **NOT_MODELED)],
        ("volumes (ns/p)",),
    ),
    "ports of the host": (
        [with_spec(pod("p", "c"), containers=[{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}])],
        (),
    ),
    "affinity to nodes": ([with_spec(pod("p", "c"), affinity={"nodeAffinity": {}})], ()),
}


@pytest.mark.parametrize(("objects", "found"), OVERLOOKED.values(), ids=OVERLOOKED)
def test_what_is_not_looked_at_is_named_where_it_is_there(objects: list[Object], found: tuple[str, ...]) -> None:
    assert Cluster.from_objects(objects).ignored == found


def test_the_same_manifests_give_the_same_result() -> None:
    objects = [GPU, node("a"), local_slice("a"), template("t"), pod_from_template("p", "2026-01-01T00:00:00Z")]
    first, second = placed(*objects)["ns/p"], placed(*objects)["ns/p"]
    assert first.as_json() == second.as_json()
    assert first.as_json()["node"] == "a"


def test_a_pod_with_a_scheduling_gate_is_not_tried() -> None:
    gated = with_spec(pod("p"), schedulingGates=[{"name": "example.com/quota"}])
    assert (placed(node("a"), gated))["ns/p"].reason == (
        "scheduling gate example.com/quota keeps the pod from its scheduler"
    )


def test_a_pod_of_a_scheduler_that_does_not_call_us_is_not_tried() -> None:
    theirs, ours = pod("theirs"), with_spec(pod("ours"), schedulerName="dra-scheduler")
    found = placed(node("a"), theirs, ours, settings="scheduling: {schedulerNames: [dra-scheduler]}")
    assert [(each.node, each.reason) for each in found.values()] == [
        ("", "no scheduler of ours is asked: schedulerName is default-scheduler; write dra-scheduler"),
        ("a", ""),
    ]


def test_a_resource_that_nobody_offers_keeps_a_pod_off_every_node() -> None:
    found = placed(node("a"), node("b", allocatable={PLUGIN: "1"}), pod("p", resources={"amd.com/gpu": "1"}))
    assert found["ns/p"].reason == "2 neither a device plugin nor a device class offers extended resource amd.com/gpu"


# The library: ``from extender import Cluster``.


HEAVY = ("fastapi", "uvicorn", "httpx", "kubernetes_asyncio", "aiohttp", "opentelemetry", "typer")
WORLD = (GPU, node("a"), local_slice("a"), claim("c"), claim("d"), pod("p", "c"), pod("q", "d"))


async def python(code: str) -> str:
    """What a process prints on both streams."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE, stderr=STDOUT, cwd=ROOT)
    return (await process.communicate())[0].decode()


def test_manifests_and_objects_are_the_same_cluster(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(WORLD))
    assert Cluster.from_manifests([file]).schedule() == Cluster.from_objects(WORLD).schedule()


def test_one_path_or_object_needs_no_list(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(yaml.safe_dump(node("a")))
    made = (Cluster.from_manifests(str(file)), Cluster.from_manifests(file), Cluster.from_objects(node("a")))
    assert [list(cluster.snapshot.nodes) for cluster in made] == [["a"]] * 3


def test_a_placement_has_node_and_devices_or_the_reason() -> None:
    placed, pending = Cluster.from_objects(WORLD).schedule()
    assert (placed.pod, placed.node, [str(each) for each in placed.devices]) == ("ns/p", "a", [f"{DRIVER}/a/gpu-0"])
    assert (pending.node, pending.devices, pending.reason) == ("", (), "1 no free device for request gpu")


def test_a_pending_pod_is_tried_again_once_another_is_gone() -> None:
    cluster = Cluster.from_objects(WORLD)
    cluster.schedule()
    assert [each.pod for each in cluster.schedule()] == ["ns/q"]
    cluster.remove("Pod", "p", "ns")
    assert [(each.pod, each.node) for each in cluster.schedule()] == [("ns/q", "a")]
    assert [(each.name, each.node_name) for each in cluster.pods] == [("q", "a")]


def test_a_new_object_gets_no_uid_that_another_object_has_already() -> None:
    new, old = pod("new"), pod("old")
    del new["metadata"]["uid"]
    (made,) = Cluster.from_objects([new]).pods
    old["metadata"]["uid"] = made.uid
    uids = {each.name: each.uid for each in Cluster.from_objects([new, old]).pods}
    assert (uids["old"], uids["new"] == made.uid) == (made.uid, False)


def test_an_explanation_is_of_the_cluster_as_it_is() -> None:
    cluster = Cluster.from_objects(WORLD)
    assert cluster.explain("ns/q").verdict.value == "fits"
    cluster.schedule(before="ns/q")
    assert cluster.explain("ns/q").verdict.value == "fits nowhere"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ns/pp", "pod ns/pp does not exist; did you mean ns/p?"),
        ("p", "pod default/p does not exist; did you mean ns/p?"),
    ],
)
def test_an_unknown_pod_is_told_with_the_name_that_is_near(name: str, told: str) -> None:
    with pytest.raises(UnknownPodError, match=re.escape(told)):
        Cluster.from_objects(WORLD).explain(name)


WRONG: dict[str, tuple[list[Object], str]] = {
    "a field": ([{**node("b"), "spec": {"unschedulable": "x"}}], 'objects: Node b: spec.unschedulable: "x"'),
    "twice": ([node("b"), node("b")], "Node b is in objects and again in objects"),
    "there already": ([node("a")], "objects: Node a exists already"),
    "no object": (["x"], "objects: document "),  # type: ignore[list-item]  # what users give
}


@pytest.mark.parametrize(("objects", "told"), WRONG.values(), ids=WRONG)
def test_objects_that_are_refused_are_an_error_and_nothing_is_added(objects: list[Object], told: str) -> None:
    cluster = Cluster.from_objects(WORLD)
    before = cluster.snapshot
    with pytest.raises(ManifestsError, match=re.escape(told)):
        cluster.add(node("new"), *objects)
    assert cluster.snapshot is before


@pytest.mark.parametrize(("objects", "told"), WRONG.values(), ids=WRONG)
def test_the_others_are_used_if_the_caller_takes_the_problems(objects: list[Object], told: str) -> None:
    cluster, problems = Cluster.from_objects(WORLD), list[str]()
    cluster.add(*objects, node("new"), refused=problems.append)
    assert [problem.startswith(told) for problem in problems] == [True]
    assert "new" in cluster.snapshot.nodes


def test_files_that_cannot_be_opened_are_an_error_in_any_case() -> None:
    with pytest.raises(UnreadableFilesError, match="/nowhere: no such file or folder"):
        Cluster.from_manifests(["/nowhere"], refused=print)


def test_what_is_to_be_removed_has_to_exist() -> None:
    with pytest.raises(KeyError, match="Pod ns/nobody"):
        Cluster.from_objects(WORLD).remove("Pod", "nobody", "ns")


def test_progress_is_told_pod_by_pod() -> None:
    told: list[tuple[int, int]] = []
    Cluster.from_objects(WORLD).schedule(progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


async def test_a_caller_may_have_an_event_loop() -> None:
    assert len(Cluster.from_objects(WORLD).schedule()) == 2


async def test_nothing_is_printed() -> None:
    asks = claim_template("gpu")
    asks["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    refused = pod("r")
    refused["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    code = f"""
from extender import Cluster
cluster = Cluster.from_objects({[*WORLD, asks, refused]!r}, refused=str)
cluster.schedule()
cluster.explain("ns/r")
"""
    assert await python(code) == ""


async def test_importing_the_package_imports_no_library_and_using_it_no_server() -> None:
    assert await python(
        "import sys, extender; print('extender.faces.simulation' in sys.modules, 'pydantic' in sys.modules)"
    ) == ("False False\n")
    used = f"import sys; from extender import Cluster; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert await python(used) == "[]\n"


@pytest.mark.parametrize("name", extender.__all__)
def test_every_name_of_the_library_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(extender, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Clutser"):
        extender.Clutser  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("package", [extender, allocator])
def test_both_packages_are_typed(package: object) -> None:
    assert (Path(str(getattr(package, "__file__", ""))).parent / "py.typed").is_file()


PAGE = (ROOT / "docs" / "tutorial" / "library.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n\n^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
async def test_the_programs_of_the_tutorial_print_what_it_shows(program: str, printed: str) -> None:
    assert await python(program) == printed


def test_every_program_of_the_tutorial_is_run() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") == 6
