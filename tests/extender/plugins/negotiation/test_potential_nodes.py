"""Which nodes are posted in a PodSchedulingContext: those that suit the pod apart from its controllers come first."""

from pathlib import Path

import pytest

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import CLAIMS
from extender.plugins.negotiation.scheduling_contexts import MOST_NODES
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, Scene, negotiated_class, pods
from tests.extender.plugins.negotiation.transport_scenes import ByQuestions, KitScene, Licenses
from tests.kit.clusters import GPU, Object, claim, local_slice, node, pod, request
from tests.kit.servers.memory import Fault
from tests.kit.virtualtime import in_virtual_time

NAMES = [f"n{number:03}" for number in range(600)]
LAST = NAMES[-1]
OTHER = "fabric.example.com"


def both(*more: Object) -> list[Object]:
    """A pod with a structured claim and a negotiated one."""
    return [pod("p", "gpu-c", "p-c"), claim("gpu-c", request("gpu")), claim("p-c", LICENSE), *more]


@in_virtual_time
async def test_pod_gets_the_only_node_with_a_device_however_many_nodes_its_controller_accepts(tmp_path: Path) -> None:
    world = (GPU, negotiated_class(), *map(node, NAMES), local_slice(LAST))
    scene = KitScene(tmp_path, *both(), contexts=True, controllers={NAME: Licenses()}, world=world)
    assert await schedule(scene) == LAST


@in_virtual_time
async def test_node_that_is_new_is_asked_about_if_only_it_has_a_device(tmp_path: Path) -> None:
    world = (GPU, negotiated_class(), node("m"), node("n"))
    scene = KitScene(tmp_path, *both(), contexts=True, controllers={NAME: Licenses()}, world=world)
    await scene.filter()
    await scene.turn()
    assert not (await scene.filter()).passed
    for each in (node("new"), local_slice("new")):
        scene.cluster.load(each)
    assert await schedule(scene, "m", "n", "new") == "new"
    posted = await scene.context()
    assert posted is None or posted["spec"]["potentialNodes"] == ["new", "m", "n"]


@in_virtual_time
async def test_device_that_becomes_free_on_a_node_that_was_not_posted_is_found(tmp_path: Path) -> None:
    user = claim("other", request("gpu"), allocated=[f"{LAST}/gpu-0"], users=["q"])
    world = (GPU, negotiated_class(), *map(node, NAMES), local_slice(LAST), pod("q", "other", on=LAST))
    scene = KitScene(tmp_path, *both(user), contexts=True, controllers={NAME: Licenses()}, world=world)
    assert await schedule(scene, rounds=3) not in NAMES
    posted = await scene.context()
    assert posted is not None
    assert len(posted["spec"]["potentialNodes"]) == MOST_NODES
    await scene.cluster.api.patch_status(
        CLAIMS, ObjectKey("ns", "other"), {"status": {"allocation": None, "reservedFor": None}}
    )
    assert await schedule(scene, rounds=20) == LAST


@in_virtual_time
async def test_nodes_that_another_controller_refuses_are_posted_last(tmp_path: Path) -> None:
    """The other controller is asked by HTTP: its answer is known before nodes are posted."""
    told = [{"name": NAME, "transport": "PodSchedulingContext"}, {"name": OTHER, "url": "http://localhost:1"}]
    world = (negotiated_class(), negotiated_class("other", OTHER), *map(node, NAMES))
    objects = (
        pod("p", "p-c", "q-c"),
        claim("p-c", LICENSE),
        claim("q-c", request("license", device_class="other")),
    )
    scene = KitScene(tmp_path, *objects, contexts=True, controllers={NAME: Licenses()}, world=world)
    fabric = KitScene(tmp_path, contexts=False, controllers={OTHER: Licenses(refuses=NAMES[:-1])}, world=())
    scene.controllers = {OTHER: ByQuestions(fabric.kit[OTHER])}
    service = Scene.another(scene, controllers=told).service
    await Scene.filter(scene, "p", *NAMES, by=service)
    posted = await scene.context()
    assert posted is not None
    assert posted["spec"]["potentialNodes"][0] == LAST


@pytest.mark.parametrize("count", [2, 600])
@in_virtual_time
async def test_pod_that_fits_nowhere_is_asked_about_all_the_same(tmp_path: Path, count: int) -> None:
    """Others may be evicted for it: then the answer is known."""
    world = (GPU, negotiated_class(), *map(node, NAMES[:count]))
    scene = KitScene(tmp_path, *both(), contexts=True, controllers={NAME: Licenses()}, world=world)
    await scene.filter("p", *NAMES[:count])
    posted = await scene.context()
    assert posted is not None
    assert posted["spec"]["potentialNodes"] == NAMES[: min(count, MOST_NODES)]


async def schedule(scene: KitScene, *names: str, rounds: int = 8) -> str:
    """Try the pod as kube-scheduler does; its node, or the first reason."""
    reason = ""
    for _ in range(rounds):
        result = await scene.filter("p", *(names or NAMES))
        reason = next(iter(sorted(set(result.unresolvable.in_words().values()))), "")
        if result.passed:
            assert await scene.bound("p", result.passed[0]) == ""
            return str(result.passed[0])
        await scene.turn(2.0)
    return reason


@in_virtual_time
async def test_nodes_whose_context_could_not_be_written_are_asked_about_next_time(tmp_path: Path) -> None:
    good = NAMES[MOST_NODES]
    licenses = Licenses(refuses=[each for each in NAMES if each != good])
    world = (negotiated_class(), *map(node, NAMES))
    scene = KitScene(tmp_path, *pods("p"), contexts=True, controllers={NAME: licenses}, world=world)
    await scene.filter("p", *NAMES)
    scene.transport.script("create podschedulingcontexts", Fault(refused=ApiError(500, "InternalError", "no disk")))
    await scene.turn()
    assert await scene.context() is None
    for _ in range(3):
        assert not (await scene.filter("p", *NAMES)).passed
        await scene.turn()
    assert list((await scene.filter("p", *NAMES)).passed) == [good]
