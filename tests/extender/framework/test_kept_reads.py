"""What a pod gets of the devices that are kept for it is searched once, and again when it may be something else."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from allocator.policies import BEST_FIT, fragmentation
from extender.framework.decisions.solver import Remembered
from extender.framework.held_devices import held_for_nominated, kept_reads
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.extender.plugins.negotiation.scenes import negotiated_class
from tests.kit.clusters import GPU, Object, claim, device_class, local_slice, node, pod, taint_rule


async def kept(*requests: Object, there: Sequence[Object] = nodes("ab")) -> Scene:
    """A device of node a or b is kept for pod x0 of a gang of two."""
    scene = Scene(*there, *members("x", 2, *requests), pod("s", "s-c"), claim("s-c"))
    for name in ("x0", "x1"):
        scene.filter(name)
    await scene.turns(1)
    assert scene.known("x0").kept.devices
    return scene


def basis(scene: Scene) -> tuple[object, ...] | None:
    return kept_reads(scene.known("x0"), scene.cluster.state.snapshot, scene.solver)


async def bind_other(scene: Scene) -> None:
    assert await scene.bind("x1", scene.known("x1").kept.node) == ""


async def more_nodes(scene: Scene) -> None:
    for each in (node("c"), local_slice("c")):
        scene.cluster.load(each)


async def more_devices(scene: Scene) -> None:
    scene.cluster.load({**local_slice(scene.known("x0").kept.node), "metadata": {"name": "more"}})


async def new_class(scene: Scene) -> None:
    scene.cluster.load(device_class("other"))


async def new_rule(scene: Scene) -> None:
    scene.cluster.load(taint_rule("r"))


async def patched_claim(scene: Scene) -> None:
    await scene.cluster.api.patch(CLAIMS, ObjectKey("ns", "x0-c"), {"metadata": {"labels": {"a": "b"}}})


async def taken_device(scene: Scene, *, user_leaves: bool = False) -> None:
    there = scene.known("x0").kept.node
    scene.cluster.load(pod("thief", "thief", on=there, deleting=user_leaves))
    scene.cluster.load(claim("thief", allocated=[f"{there}/gpu-0"], at=there, users=["thief"]))


@pytest.mark.parametrize("change", [bind_other, more_nodes])
async def test_it_stays_while_others_start_and_other_nodes_come(change: Callable[[Scene], Awaitable[None]]) -> None:
    assert await known_after(change) == "known"


@pytest.mark.parametrize("change", [more_devices, new_class, new_rule, patched_claim, taken_device])
async def test_it_is_another_after_a_change_that_the_search_reads(change: Callable[[Scene], Awaitable[None]]) -> None:
    assert await known_after(change) is None


async def known_after(change: Callable[[Scene], Awaitable[None]]) -> str | None:
    """What is remembered for a pod after a change, of an answer from before it."""
    scene = await kept()
    before, memory = basis(scene), Remembered[str]()
    assert before is not None
    memory.keep("x0", before, "known")
    await change(scene)
    now = basis(scene)
    assert now is not None
    return memory.find("x0", now)


async def test_a_controller_of_another_class_does_not_count() -> None:
    assert basis(await kept(there=[*nodes("ab"), negotiated_class()])) is not None


async def test_there_is_none_while_somebody_who_leaves_has_the_device() -> None:
    scene = await kept()
    await taken_device(scene, user_leaves=True)
    assert basis(scene) is None


async def test_a_search_that_found_nothing_is_not_repeated() -> None:
    scene, looks = await kept(), list[None]()
    await taken_device(scene)
    snapshot = scene.cluster.state.snapshot

    def clock() -> float:
        """A search looks at it."""
        looks.append(None)
        return 0.0

    for is_searched, policy in ((True, BEST_FIT), (False, BEST_FIT), (False, fragmentation())):
        looks.clear()
        solver = replace(scene.solver, clock=clock, policy=policy)  # the default one is made anew as shapes come
        held = held_for_nominated(scene.known("s"), snapshot, solver)
        assert bool(looks) == is_searched
        assert len(held.usage.pools) == len(snapshot.usage.pools) + 1, "what is kept for x1 alone is held"


ALL: Object = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
SHARED = local_slice("a", 2, allowMultipleAllocations=True)


@pytest.mark.parametrize(
    ("requests", "there"),
    [
        pytest.param((ALL,), nodes("ab"), id="all devices"),
        pytest.param((), (GPU, node("a"), SHARED), id="devices for several claims"),
    ],
)
async def test_there_is_none_if_it_depends_on_what_others_have(
    requests: Sequence[Object], there: Sequence[Object]
) -> None:
    assert basis(await kept(*requests, there=there)) is None


async def test_with_other_features_it_is_another() -> None:
    scene = await kept()
    before, features = basis(scene), scene.solver.features
    scene.solver = replace(scene.solver, features=replace(features, device_taints=not features.device_taints))
    assert basis(scene) != before
