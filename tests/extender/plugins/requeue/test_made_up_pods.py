"""Pods that a caller makes up and says to be newer than the watch: what is remembered of them has a bound."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE, Pod
from extender.framework.decisions.verdict import UNKNOWN_NODE, Reasons
from extender.framework.filter import FilterResult, filter_nodes
from extender.framework.task import UNSEEN, Rejection, share_of
from extender.kube.api import ObjectKey
from extender.plugins.gangs.gang import GANG
from extender.plugins.gangs.rejected_members import MOST_UNSEEN, RejectedMember
from extender.plugins.gangs.task import KEPT_SECONDS, Watch
from extender.plugins.requeue.requeue import MOST_PODS
from extender.plugins.requeue.rescan import PAUSE_SECONDS
from tests.extender.plugins.gangs.scenes import Scene as GangScene
from tests.extender.plugins.gangs.scenes import members, nodes
from tests.extender.plugins.requeue.scenes import NODE_NAMES, WORLD, Scene, waiting
from tests.kit.clusters import local_slice, parsed, pod, snapshot_of

NEWEST = "99999"
REFUSED = FilterResult((), unresolvable=Reasons.alike(NODE_NAMES, UNKNOWN_NODE))


def made_up(number: int, gang: str = "") -> Pod:
    """A pod in a namespace that does not exist, either."""
    raw = pod(f"made-up-{number}", "missing")
    raw["metadata"] |= {"namespace": f"no-{number}", "resourceVersion": NEWEST}
    if gang:
        raw["metadata"]["annotations"] = {GROUP: gang, GROUP_SIZE: "2"}
    return parsed(raw)


def hear(scene: GangScene, asked: Pod) -> None:
    """Filter rejects a pod of a gang; the task hears of it."""
    snapshot = scene.cluster.state.snapshot
    result = filter_nodes(asked, ["a"], snapshot, scene.solver)
    assert GANG in result.by
    scene.task.on_rejected(Rejection(asked, ["a"], result, snapshot))


def number_of(kind: type) -> int:
    """How many values of a type there are."""
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


@contextmanager
def memory() -> Iterator[Callable[[], int]]:
    """Within, the function says how many bytes have been taken."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.fixture
def scene() -> GangScene:
    return GangScene(*nodes("ab"))


async def test_gangs_that_are_made_up_are_not_watched(scene: GangScene) -> None:
    before = number_of(Watch)
    for number in range(100):
        asked = made_up(number, f"gang-{number}")
        hear(scene, asked)
        scene.task.on_passed(asked)
        await scene.task.before_preempt(asked, ["a"])
    assert number_of(Watch) == before


async def test_members_that_are_made_up_are_remembered_up_to_a_bound_and_for_a_time(scene: GangScene) -> None:
    before = number_of(RejectedMember)
    for number in range(2 * MOST_UNSEEN):
        hear(scene, made_up(number, "gang"))
    assert number_of(RejectedMember) == before + MOST_UNSEEN
    await scene.turns(1, KEPT_SECONDS + 1)
    assert number_of(RejectedMember) == before


async def test_gangs_that_are_gone_are_forgotten_if_there_is_no_other() -> None:
    scene = GangScene(*nodes("a"), *members("x", 2))
    before = number_of(Watch), number_of(RejectedMember)
    await scene.schedule()
    await scene.turns(1)
    assert (number_of(Watch), number_of(RejectedMember)) > before
    await scene.end("x0", "x1")
    await scene.turns(1)
    assert (number_of(Watch), number_of(RejectedMember)) == before


async def test_room_that_is_made_for_members_that_are_made_up_is_not_remembered() -> None:
    scene = GangScene(*nodes("ab"), *members("x", 2))
    await scene.schedule()
    await scene.turns(1)
    kept = scene.known("x0").kept
    assert kept.node
    asked = replace(scene.known("x0"), kept=kept)
    with memory() as taken:
        for number in range(10_000):
            await scene.task.before_preempt(replace(asked, uid=f"made-up-{number}"), [kept.node])
        assert taken() < 100_000, "10,000 uids take a megabyte"


# --- rejected pods ------------------------------------------------------------------------------------------


async def test_namespaces_that_are_made_up_have_one_share_together() -> None:
    scene = Scene.of(*WORLD, *waiting("p", "q"))
    scene.reject("p", "q")
    snapshot = scene.cluster.state.snapshot
    for number in range(2 * MOST_PODS):
        scene.hear(Rejection(made_up(number), NODE_NAMES, REFUSED, snapshot))
    assert set(scene.requeue.missed()) == set()
    await scene.put(local_slice("a", 2))
    assert await scene.woken() == ["p", "q"]
    assert set(scene.requeue.missed()) == {UNSEEN}


def test_a_pod_is_in_the_share_of_its_own_namespace_whatever_a_caller_sends() -> None:
    snapshot = snapshot_of(pod("p", "c"))
    there = parsed(pod("p", "c"))
    assert share_of(there, snapshot) == share_of(replace(there, namespace="another"), snapshot) == "ns"
    assert share_of(made_up(1), snapshot) == UNSEEN


async def test_a_pod_that_was_rejected_before_the_watch_shows_it_is_woken_once_it_is_shown() -> None:
    scene = Scene.of(*WORLD)
    raw, claimed = waiting("p")
    asked = replace(parsed(raw), resource_version=NEWEST)
    scene.hear(Rejection(asked, NODE_NAMES, REFUSED, scene.cluster.state.snapshot))
    await scene.put(local_slice("a"))
    assert await scene.woken() == []
    scene.cluster.load(claimed)
    scene.cluster.load(raw)
    assert await scene.woken() == ["p"]


async def test_pods_that_were_forgotten_before_the_watch_has_shown_them_are_found() -> None:
    """Their namespace is not known for sure, so pods of all namespaces are looked for."""
    scene = Scene.of(*WORLD, *waiting("early"))
    scene.reject("early", asked=["b"])
    await scene.turns(1.0)
    scene.requeue.on_woken(scene.cluster.state.snapshot.pods[ObjectKey("ns", "early")])
    for number in range(2 * MOST_PODS):
        scene.hear(Rejection(made_up(number), NODE_NAMES, REFUSED, scene.cluster.state.snapshot))
    await scene.put(local_slice("a"))
    assert await scene.turns(PAUSE_SECONDS + 2) == ["early"]
