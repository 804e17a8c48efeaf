"""Waking: who is woken when devices appear, how often, and who is left alone."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from allocator import Limits
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.cluster_with_kept import ClusterWithKept
from extender.framework.filter import FilterResult
from extender.framework.rejected_pods import AGAIN_SECONDS, LONGEST_SECONDS, LOOK_SECONDS, MOST_AT_ONCE
from extender.framework.task import Rejection
from extender.framework.wire import FilterArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS, SLICES
from extender.plugins.requeue.requeue import ANSWER_SECONDS, Requeue
from tests.extender.plugins.requeue.scenes import NODE_NAMES, WORLD, Scene, mark, waiting
from tests.kit.clusters import (
    Object,
    claim,
    device_class,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    taint_rule,
)


async def test_a_slice_wakes_the_pod_that_waits_for_it_once() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    scene.reject("p")
    assert await scene.woken() == []
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["p"]
    await scene.put(local_slice("b"))
    assert await scene.woken() == []


async def test_a_device_that_was_taken_and_is_free_again_since_the_last_look_wakes_a_pod() -> None:
    scene = Scene.of(*WORLD, *waiting("p"), local_slice("a"), claim("taken"))
    await scene.woken()
    await scene.put(claim("taken", allocated=["a/gpu-0"], at="a"))
    scene.reject("p")
    await scene.put(claim("taken"))
    assert await scene.woken() == ["p"]


async def test_what_no_snapshot_tells_while_a_pod_is_judged_has_the_pod_judged_once_more() -> None:
    looks: list[int] = []

    async def count(work: Callable[[], Any]) -> Any:
        found = work()
        looks.append(len(looks))
        if len(looks) == 1:
            scene.requeue.judge_anew(waiter)
        return found

    scene = Scene.of(*WORLD, *waiting("p"))
    state, waiter = scene.cluster.state, scene.cluster.state.snapshot.pods[ObjectKey("ns", "p")]
    scene.requeue = Requeue(state, ClusterWithKept(scene.decider, state), scene.writer, lambda _: None, count)
    scene.reject("p")
    scene.requeue.judge_anew(waiter)
    await scene.turns(2.0)
    assert len(looks) == 2


async def test_a_pod_that_is_rejected_again_is_woken_again() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    for name in NODE_NAMES:
        scene.reject("p", asked=[name])
        await scene.put(local_slice(name))
        assert await scene.woken() == ["p"]


CHANGES: list[tuple[str, list[Object], Callable[[Scene], Awaitable[None]], bool]] = [
    ("a slice", [], lambda s: s.put(local_slice("a")), True),
    ("a slice for many nodes", [], lambda s: s.put(network_slice("net")), True),
    ("a slice that got a device", [local_slice("a", 0)], lambda s: s.put(local_slice("a")), True),
    ("a slice without devices", [], lambda s: s.put(local_slice("a", 0)), False),
    ("a slice of a node that was not asked about", [node("c")], lambda s: s.put(local_slice("c")), False),
    ("a slice with a taint", [taint_rule("r", pool="a")], lambda s: s.put(local_slice("a")), False),
    ("a taint rule less", [local_slice("a"), taint_rule("r")], lambda s: s.take_away(taint_rule("r")), True),
    ("a taint rule for others", [local_slice("a"), taint_rule("r")], lambda s: s.put(taint_rule("r", pool="x")), True),
    ("another taint rule", [local_slice("a"), taint_rule("r")], lambda s: s.put(taint_rule("new")), False),
    (
        "a claim that is freed",
        [local_slice("a"), claim("held", allocated=["a/gpu-0"], at="a", users=["u"])],
        lambda s: s.put(claim("held")),
        True,
    ),
    (
        "a claim that is gone",
        [local_slice("a"), claim("held", allocated=["a/gpu-0"], at="a", users=["u"])],
        lambda s: s.take_away(claim("held")),
        True,
    ),
    (
        "a claim that is freed, which is not enough",
        [
            local_slice("a", 2),
            claim("held", allocated=["a/gpu-0"]),
            claim("kept", allocated=["a/gpu-1"]),
            claim("p-c", request(count=2)),
        ],
        lambda s: s.put(claim("held")),
        False,
    ),
    (
        "its own claim, that is to be had elsewhere",
        [local_slice("a"), claim("p-c", allocated=["x/gpu-0"], at="x")],
        lambda s: s.put(claim("p-c")),
        True,
    ),
    ("its class", [device_class(selectors=["false"]), local_slice("a")], lambda s: s.put(device_class()), True),
    (
        "a pod that was nominated",
        [local_slice("a"), *waiting("n", nominated="a", priority=9)],
        lambda s: s.take_away(pod("n")),
        True,
    ),
]


@pytest.mark.parametrize(("there", "change", "wakes"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
async def test_what_wakes_a_pod(there: list[Object], change: Callable[[Scene], Awaitable[None]], wakes: bool) -> None:
    objects = {(each["kind"], each["metadata"]["name"]): each for each in (*WORLD, *waiting("p"), *there)}
    scene = Scene.of(*objects.values())
    scene.reject("p")
    await change(scene)
    assert await scene.woken() == (["p"] if wakes else [])


async def test_a_node_that_was_not_known_wakes_the_pod_when_it_arrives() -> None:
    scene = Scene.of(*WORLD, network_slice("net"), *waiting("p"))
    scene.reject("p", asked=["new"])
    await scene.put(node("other"))
    assert await scene.woken() == []
    await scene.put(node("new"))
    assert await scene.woken() == ["p"]


async def test_what_came_while_filter_was_at_work_counts() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    snapshot = scene.cluster.state.snapshot
    await scene.put(local_slice("a"))
    assert await scene.woken() == []
    asked = snapshot.pods[ObjectKey("ns", "p")]
    scene.requeue.on_rejected(Rejection(asked, NODE_NAMES, FilterResult(()), snapshot))
    assert await scene.woken() == ["p"]


CORDON: Object = {
    "spec": {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}
}


@pytest.mark.parametrize(
    ("there", "spec", "mended"),
    [
        (node("a") | CORDON, {}, node("a")),
        (node("a"), {"nodeSelector": {"zone": "east"}}, node("a", labels={"zone": "east"})),
    ],
    ids=["cordoned", "not selected"],
)
async def test_a_device_on_a_node_that_the_scheduler_rejects_wakes_no_pod(
    there: Object, spec: Object, mended: Object
) -> None:
    asking, asked = waiting("p")
    scene = Scene.of(device_class(), there, node("b"), {**asking, "spec": asking["spec"] | spec}, asked)
    scene.reject("p")
    await scene.put(local_slice("a"))
    assert await scene.woken() == []
    await scene.put(mended)
    assert await scene.woken() == ["p"]


async def test_pods_that_select_other_nodes_are_judged_apart() -> None:
    """The same claims, and the first pod finds nothing."""
    (picky, first), (plain, second) = waiting("p"), waiting("q")
    picky["spec"]["nodeSelector"] = {"zone": "east"}
    scene = Scene.of(*WORLD, picky, first, plain, second)
    scene.reject("p", "q")
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["q"]


async def test_who_has_found_a_node_is_left_alone() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    scene.reject("p")
    scene.requeue.on_woken(parsed(pod("p", "p-c")))
    await scene.put(local_slice("a"))
    assert await scene.woken() == []


@pytest.mark.parametrize(
    "now",
    [pod("p", "p-c", on="a"), pod("p", "p-c", deleting=True), {**pod("p", "p-c"), "status": {"phase": "Failed"}}],
    ids=["bound", "being deleted", "finished"],
)
async def test_who_waits_no_more_is_left_alone(now: Object) -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    scene.reject("p")
    await scene.take_away(pod("p"))
    await scene.put(now)
    await scene.put(local_slice("a"))
    assert await scene.woken() == []
    await scene.take_away(pod("p"))
    await scene.put(local_slice("b"))
    assert await scene.woken() == []


async def test_while_the_cluster_is_not_known_nobody_is_woken() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    scene.reject("p")
    scene.cluster.state.doubt(SLICES, "silent")
    await scene.put(local_slice("a"))
    assert await scene.woken() == []
    scene.cluster.state.trust(SLICES)
    assert await scene.woken() == ["p"]


# --- as many as the devices suffice for ---------------------------------------------------------------------


async def test_one_device_wakes_one_pod_the_most_important_first_then_who_has_waited_longest() -> None:
    scene = Scene.of(*WORLD, *waiting("old", "new"), *waiting("urgent", priority=5))
    scene.reject("old", "new", "urgent")
    for name, expected in (("a", ["urgent"]), ("b", ["old"])):
        await scene.put(local_slice(name))
        assert await scene.woken() == expected


async def test_of_pods_of_one_priority_the_oldest_is_woken_first() -> None:
    scene = Scene.of(*WORLD, *waiting("new"), *waiting("old", created="2025-01-01T00:00:00Z"))
    scene.reject("new", "old")
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["old"]


async def test_a_device_that_a_woken_pod_did_not_take_is_for_the_next() -> None:
    scene = Scene.of(*WORLD, *waiting("first", "second"))
    scene.reject("first", "second")
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["first"]
    assert await scene.woken() == []
    scene.now = ANSWER_SECONDS
    assert await scene.woken() == ["second"]


async def test_a_woken_pod_that_is_rejected_after_all_leaves_the_device_to_the_next() -> None:
    scene = Scene.of(*WORLD, *waiting("first", "second"))
    scene.reject("first", "second")
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["first"]
    scene.reject("first", asked=["b"])
    assert await scene.woken() == ["second"]


async def test_a_device_that_a_woken_pod_has_taken_wakes_nobody_else() -> None:
    scene = Scene.of(*WORLD, *waiting("first", "second"))
    scene.reject("first", "second")
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["first"]
    await scene.put(claim("first-c", allocated=["a/gpu-0"], at="a", users=["first"]))
    await scene.cluster.api.bind_pod(ObjectKey("ns", "first"), "a", uid="uid-first")
    assert await scene.woken() == []
    scene.now = ANSWER_SECONDS
    assert await scene.woken() == []


async def test_many_are_woken_in_portions() -> None:
    names = [f"p{number:02}" for number in range(MOST_AT_ONCE + 3)]
    scene = Scene.of(*WORLD, *waiting(*names))
    scene.reject(*names)
    await scene.put(local_slice("a", len(names)))
    assert [len(await scene.woken()) for _ in range(3)] == [MOST_AT_ONCE, 3, 0]


async def test_a_look_that_takes_too_long_goes_on_in_the_next() -> None:
    names = [f"p{number}" for number in range(MOST_AT_ONCE)]
    scene = Scene.of(*WORLD, *waiting(*names), ticking=LOOK_SECONDS / 20)
    scene.reject(*names)
    await scene.put(local_slice("a", len(names)))
    portions = [await scene.woken() for _ in names]
    assert 0 < len(portions[0]) < len(names)
    assert sorted(name for portion in portions for name in portion) == names


# --- searches that were stopped -----------------------------------------------------------------------------

BUSY = LOOK_SECONDS / 20
"""Seconds from one look at the clock to the next: longer than a search may take, and much shorter than a look."""

HURRY = Limits(seconds=BUSY / 2)


async def test_a_pod_whose_search_was_stopped_is_looked_at_again_later_each_time() -> None:
    scene = Scene.of(*WORLD, local_slice("a"), *waiting("p"), ticking=BUSY, limits=HURRY)
    scene.reject("p")
    for pause in (AGAIN_SECONDS, 2 * AGAIN_SECONDS, 4 * AGAIN_SECONDS):
        since = scene.now
        scene.now, scene.ticking = since + 0.9 * pause, 0.0
        assert await scene.woken() == [], "not before it is due, though a search would come to an end now"
        scene.now, scene.ticking = since + pause, BUSY
        assert await scene.woken() == [], "stopped again"
    scene.now, scene.ticking = scene.now + LONGEST_SECONDS, 0.0
    assert await scene.woken() == ["p"]


async def test_a_search_that_is_stopped_when_something_has_changed_is_made_again() -> None:
    scene = Scene.of(*WORLD, *waiting("p", "q"), limits=HURRY)
    scene.reject("p", "q")
    await scene.put(local_slice("a", 2))
    scene.ticking = BUSY
    assert await scene.woken() == []
    scene.now, scene.ticking = scene.now + AGAIN_SECONDS, 0.0
    assert await scene.woken() == ["p", "q"]


async def test_what_a_search_finds_out_in_the_end_is_not_asked_again() -> None:
    taken = claim("other", allocated=["a/gpu-0"], at="a", users=["other"])
    scene = Scene.of(
        *WORLD, local_slice("a"), taken, pod("other", "other", on="a"), *waiting("p"), ticking=BUSY, limits=HURRY
    )
    scene.reject("p")
    scene.now, scene.ticking = scene.now + AGAIN_SECONDS, 0.0
    assert await scene.woken() == []
    solved = scene.decider.asked
    scene.now += LONGEST_SECONDS
    assert await scene.woken() == []
    assert scene.decider.asked == solved


async def test_the_service_looks_again_for_whom_a_search_was_stopped() -> None:
    scene = Scene.of(*WORLD, local_slice("a"), *waiting("p"), ticking=BUSY, limits=HURRY)
    cluster = scene.cluster
    service = make_extender(cluster.api, cluster.state, scene.solver, Settings()).service
    asking = FilterArgs(parsed(pod("p", "p-c")), ["a"])
    assert (await service.filter(asking)).is_undecided
    scene.now, scene.ticking = scene.now + AGAIN_SECONDS, 0.0
    await service.background.tick()
    assert mark(await cluster.api.get(PODS, ObjectKey("ns", "p")))
    scene.ticking = BUSY
    assert list((await service.filter(asking)).passed) == ["a"], "what was found is remembered"
