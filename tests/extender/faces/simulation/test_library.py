"""The library: ``from extender import Cluster``."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest
import yaml

import allocator
import extender
from extender import Cluster, ManifestsError, UnknownPodError, UnreadableFilesError
from tests.kit.clusters import DRIVER, GPU, Object, claim, claim_template, local_slice, node, pod

ROOT = Path(__file__).parents[4]
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


def test_a_caller_may_have_an_event_loop() -> None:
    async def caller() -> int:
        return len(Cluster.from_objects(WORLD).schedule())

    assert asyncio.run(caller()) == 2


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
    assert len(PROGRAMS) == PAGE.count("```python") == 4
