"""Rescan: pods that wait and of which nothing is known, after a start and beyond the bounds of memories."""

import time

import pytest

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.verdict import UNKNOWN_NODE, Reasons
from extender.framework.filter import FilterResult, filter_nodes
from extender.framework.task import BackgroundTask, Found, Rejection
from extender.plugins.requeue.requeue import MOST_PODS
from extender.plugins.requeue.rescan import (
    FOUND_AT_ONCE,
    GRACE_SECONDS,
    PROBE_SECONDS,
    PROBES,
    READ_AT_ONCE,
    UNTRIED_SECONDS,
    WOKEN_AT_ONCE,
)
from tests.extender.plugins.requeue.scenes import NODE_NAMES, WORLD, Scene, waiting
from tests.kit.clusters import Object, claim, local_slice, pod, rejected, request


def of_scheduler(name: str, *objects: Object) -> list[Object]:
    """The same objects; the pods have a scheduler."""
    return [
        each | {"spec": each["spec"] | {"schedulerName": name}} if each["kind"] == "Pod" else each for each in objects
    ]


def in_namespace(name: str, *objects: Object) -> list[Object]:
    return [each | {"metadata": each["metadata"] | {"namespace": name}} for each in objects]


def hopeless(number: int, namespace: str = "a") -> list[Object]:
    """Pods of one namespace whose claim does not exist."""
    return in_namespace(namespace, *rejected(*(pod(f"{namespace}{each}", "missing") for each in range(number))))


# --- after a start ------------------------------------------------------------------------------------------


async def test_pods_that_were_rejected_before_the_start_are_found_once_their_scheduler_asks() -> None:
    ours, others = waiting("early"), of_scheduler("another", *waiting("foreign"))
    scene = Scene.of(*WORLD, *ours, *others, *waiting("p"))
    scene.reject("p", asked=["b"])
    await scene.put(local_slice("a", 3))
    assert "early" in await scene.turns(GRACE_SECONDS + 1)


async def test_pods_that_no_scheduler_has_tried_are_left_to_their_scheduler_for_a_while() -> None:
    untried = pod("q", "q-c"), claim("q-c")
    scene = Scene.of(*WORLD, *untried, *waiting("p"))
    scene.reject("p", asked=["b"])
    await scene.put(local_slice("a", 3))
    assert "q" not in await scene.turns(UNTRIED_SECONDS)
    assert "q" in await scene.turns(GRACE_SECONDS + 1)


async def test_after_a_start_one_pod_of_each_scheduler_is_woken_to_find_out_who_asks() -> None:
    scene = Scene.of(*WORLD, *waiting("p", "q"), *of_scheduler("another", *waiting("x", "y")))
    assert len(woken := await scene.turns(1.0)) == 2
    assert {each in {"p", "q"} for each in woken} == {True, False}
    assert len(await scene.turns(PROBES * PROBE_SECONDS)) == 4, "the other ones: the first may be in their backoff"
    assert await scene.turns(60.0) == []


async def test_a_namespace_with_many_schedulers_of_its_own_delays_no_other() -> None:
    """Anybody may write the name of a scheduler that does not exist."""
    made_up = (of_scheduler(f"none-{each}", pod(f"a{each}", "missing"))[0] for each in range(100))
    scene = Scene.of(*WORLD, *in_namespace("a", *made_up), *waiting("p"))
    assert "p" in (woken := await scene.turns(0.01))
    assert len(woken) == WOKEN_AT_ONCE


async def test_pods_of_schedulers_that_do_not_call_are_left_alone() -> None:
    theirs = of_scheduler("theirs", *waiting("p"))
    scene = Scene(Scene.of(*WORLD, *theirs, *of_scheduler("ours", *waiting("q"))).cluster, schedulers=("ours",))
    assert await scene.turns(10.0) == ["q"]


async def test_pods_of_another_replica_are_found_once_their_scheduler_asks_this_one() -> None:
    """They have come and were rejected since this process has started."""
    scene = Scene.of(*WORLD)
    await scene.turns(1.0)
    for each in (*waiting("theirs", "p"), local_slice("a", 2)):
        await scene.put(each)
    scene.reject("p", asked=["b"])
    assert await scene.turns(GRACE_SECONDS + 0.5) == ["theirs"]


async def test_pods_of_a_scheduler_that_answers_a_probe_are_found_although_there_is_no_room_for_others() -> None:
    told: list[str] = []

    class Full(BackgroundTask):
        def on_found(self, pod: Pod, _: Snapshot) -> Found:
            told.append(pod.name)
            return Found.FULL if pod.namespace == "full" else Found.KNOWN

    theirs = of_scheduler("another", *waiting("x", "y"))
    scene = Scene.of(*WORLD, *hopeless(3, "full"), *theirs, *waiting("p"))
    scene.follow([Full()])
    scene.reject("p")
    await scene.turns(1.0)
    assert "x" not in told
    scene.reject("x")
    await scene.turns(GRACE_SECONDS + 0.5)
    assert {"x", "y"} <= {*told}


@pytest.mark.parametrize(
    "now",
    [
        pod("p", "p-c", on="a"),
        pod("p", "p-c", deleting=True),
        pod("p"),
        {**pod("p", "p-c"), "spec": {**pod("p", "p-c")["spec"], "schedulingGates": [{"name": "later"}]}},
    ],
    ids=["bound", "being deleted", "without devices", "gated"],
)
async def test_who_waits_for_no_scheduler_is_left_alone(now: Object) -> None:
    scene = Scene.of(*WORLD, now)
    assert await scene.turns(10.0) == []


# --- more pods than are remembered --------------------------------------------------------------------------


async def test_ten_thousand_hopeless_pods_of_one_namespace_delay_no_other() -> None:
    """Another namespace's pod is woken in the first turn, and a turn takes no longer the more pods there are."""
    scene = Scene.of(*WORLD, *waiting("p"), *hopeless(10_000))
    scene.reject("p")
    snapshot = scene.cluster.state.snapshot
    refused = FilterResult((), unresolvable=Reasons.alike(NODE_NAMES, UNKNOWN_NODE))
    for each in [each for each in snapshot.pods.values() if each.namespace == "a"]:
        scene.hear(Rejection(each, NODE_NAMES, refused, snapshot))
    await scene.put(local_slice("a"))
    assert await scene.woken() == ["p"]
    seconds = []
    for number in range(20):
        await scene.put(local_slice("a", 2 + number))
        began = time.process_time()
        scene.now += 0.2
        await scene.rescan.tick()
        await scene.requeue.look()
        seconds.append(time.process_time() - began)
    assert sorted(seconds)[10] < 0.5, "a turn is bounded by what is remembered, not by what waits"


async def test_costly_pods_of_high_priority_of_one_namespace_leave_the_others_their_turn() -> None:
    costly = [
        each
        for number in range(40)
        for name in [f"h{number}"]
        for each in in_namespace(
            "a", pod(name, f"{name}-c", priority=1000), claim(f"{name}-c", request(selectors=[f"{number} < 0"]))
        )
    ]
    scene = Scene.of(*WORLD, *costly, *waiting("p"), ticking=0.01)
    scene.reject("p")
    snapshot = scene.cluster.state.snapshot
    for each in [each for each in snapshot.pods.values() if each.namespace == "a"]:
        scene.hear(Rejection(each, NODE_NAMES, filter_nodes(each, NODE_NAMES, snapshot, scene.solver), snapshot))
    await scene.put(local_slice("a"))
    began = scene.now
    assert await scene.woken() == ["p"]
    assert scene.now - began < 1.0


async def test_every_pod_beyond_the_bound_is_found_in_the_end() -> None:
    beyond = waiting("p", "q")
    scene = Scene.of(*WORLD, *hopeless(2 * MOST_PODS, "ns"), *beyond, *waiting("asked"))
    scene.reject("asked", asked=["b"])
    await scene.put(local_slice("a", 3))
    pods = 2 * MOST_PODS
    rounds = pods / FOUND_AT_ONCE + pods / READ_AT_ONCE
    assert {"p", "q"} <= {*await scene.turns(GRACE_SECONDS + (rounds + 10) * 0.2)}


async def test_namespaces_take_turns_when_the_tasks_are_told_of_their_pods() -> None:
    told: list[str] = []

    class Telling(BackgroundTask):
        def on_found(self, pod: Pod, _: Snapshot) -> Found:
            told.append(pod.namespace)
            return Found.FULL if pod.namespace == "full" else Found.KNOWN

    pods = [*hopeless(2 * FOUND_AT_ONCE), *hopeless(3, "full"), *hopeless(3, "b")]
    scene = Scene.of(*WORLD, *pods, *waiting("p"))
    scene.follow([Telling()])
    scene.reject("p")
    await scene.turns(GRACE_SECONDS + 0.5)
    assert told[:FOUND_AT_ONCE].count("b") == 3
    assert told[:FOUND_AT_ONCE].count("full") == 1, "it is asked again in the next turn"
    await scene.turns(1.0)
    assert told.count("a") == 2 * FOUND_AT_ONCE


async def test_pods_that_their_schedulers_are_to_ask_about_are_woken_some_at_a_time() -> None:
    class Asking(BackgroundTask):
        def on_found(self, _pod: Pod, _: Snapshot) -> Found:
            return Found.ASK

    names = [f"p{number}" for number in range(3 * WOKEN_AT_ONCE)]
    scene = Scene.of(*WORLD, *waiting(*names, "asked"))
    scene.follow([Asking()])
    scene.reject("asked")
    woken = [len(await scene.turns(0.1)) for _ in range(20)]
    assert max(woken) == WOKEN_AT_ONCE
    assert sum(woken) == len(names) + 1
