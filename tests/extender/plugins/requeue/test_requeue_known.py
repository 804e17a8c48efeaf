"""Waking: what it writes, and which pods it knows."""

import asyncio

from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.filter import Code, FilterResult
from extender.framework.rejected_pods import AGAIN_SECONDS
from extender.framework.task import Rejection
from extender.framework.wire import FilterArgs
from extender.kube.api import ApiError, ObjectKey, UnreachableError
from extender.kube.resources import PODS
from extender.plugins.gangs.gang import GANG
from extender.plugins.requeue.requeue import MOST_PODS
from extender.plugins.requeue.rescan import PAUSE_SECONDS as RESCAN_SECONDS
from tests.extender.plugins.requeue.scenes import NODE_NAMES, WORLD, Scene, mark, waiting
from tests.kit.clusters import Cluster, claim, local_slice, network_slice, parsed, pod, solver
from tests.kit.servers.memory import Fault, Transport

# --- writing ------------------------------------------------------------------------------------------------


async def test_other_conditions_stay_and_the_message_tells_one_time_from_the_next() -> None:
    waiting_pod, own = waiting("p")
    waiting_pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False"}]
    scene = Scene.of(*WORLD, waiting_pod, own)
    seen = []
    for name in NODE_NAMES:
        scene.reject("p", asked=[name])
        await scene.put(local_slice(name))
        assert await scene.woken() == ["p"]
        conditions = (await scene.cluster.api.get(PODS, ObjectKey("ns", "p")))["status"]["conditions"]
        assert [c["type"] for c in conditions] == ["PodScheduled", DEVICES_CHANGED]
        seen.append(conditions[1]["message"])
    assert seen[0] != seen[1]


async def test_a_pod_that_could_not_be_woken_for_want_of_an_answer_is_woken_the_next_time() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    scene.reject("p")
    await scene.put(local_slice("a"))
    scene.transport.script("patch_status pods", Fault(lost=True))
    assert await scene.woken() == []
    assert await scene.woken() == ["p"]


async def test_a_pod_that_others_change_meanwhile_is_woken_by_that() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    scene.reject("p")
    await scene.put(local_slice("a"))
    scene.transport.script("patch_status pods", Fault(refused=ApiError(409, "Conflict", "changed")))
    assert await scene.woken() == []
    assert await scene.woken() == []


async def test_a_pod_whose_wake_up_is_refused_is_woken_later() -> None:
    scene = Scene.of(*WORLD, *waiting("p"))
    scene.reject("p")
    await scene.put(local_slice("a"))
    scene.transport.script("patch_status pods", Fault(refused=UnreachableError("PATCH p", "no connection")))
    assert await scene.woken() == []
    assert await scene.woken() == []
    scene.now += AGAIN_SECONDS
    assert await scene.woken() == ["p"]


async def test_a_pod_that_filter_is_asked_about_before_it_is_woken_is_left_alone() -> None:
    scene = Scene.of(*WORLD, *waiting("p", "q"))
    scene.reject("p", "q")
    await scene.put(local_slice("a", 2))

    async def asked() -> None:
        scene.requeue.on_woken(parsed(pod("q", "q-c")))

    scene.transport.script("patch_status pods", Fault(before=asked))
    assert await scene.woken() == ["p"]


# --- who is known -------------------------------------------------------------------------------------------


async def test_of_very_many_pods_of_a_namespace_those_rejected_last_are_remembered_and_others_found_again() -> None:
    scene = Scene.of(*WORLD, network_slice("net", 0))
    snapshot = scene.cluster.state.snapshot
    for number in range(MOST_PODS + 1):
        scene.hear(Rejection(parsed(pod(f"p{number}")), ["a"], FilterResult(()), snapshot))
    for name in ("p0", f"p{MOST_PODS}"):
        scene.cluster.load(pod(name, "c"))
    await scene.put(claim("c"))
    await scene.put(network_slice("net", 2))
    assert await scene.woken() == [f"p{MOST_PODS}"]
    assert await scene.turns(2 * RESCAN_SECONDS) == ["p0"]


async def test_a_change_helps_forgotten_pods_also_when_no_pod_is_remembered_any_more() -> None:
    scene = Scene.of(*WORLD, network_slice("net", 0))
    await scene.turns(2 * RESCAN_SECONDS)  # the first rescan is over
    snapshot = scene.cluster.state.snapshot
    for number in range(MOST_PODS + 1):
        scene.hear(Rejection(parsed(pod(f"p{number}")), ["a"], FilterResult(()), snapshot))
    await scene.woken()
    for number in range(1, MOST_PODS + 1):
        scene.requeue.on_passed(parsed(pod(f"p{number}")))
    scene.cluster.load(pod("p0", "c"))
    await scene.put(claim("c"))
    await scene.put(network_slice("net", 2))
    assert await scene.woken() == []
    assert await scene.turns(2 * RESCAN_SECONDS) == ["p0"]


async def test_pods_that_wait_for_their_gang_are_neither_judged_nor_in_the_place_of_others() -> None:
    scene = Scene.of(*WORLD, *waiting("p"), *waiting("q"))
    snapshot = scene.cluster.state.snapshot
    scene.reject("p")
    for each in (snapshot.pods[ObjectKey("ns", "q")], *(parsed(pod(f"m{number}")) for number in range(MOST_PODS))):
        scene.requeue.on_rejected(Rejection(each, NODE_NAMES, FilterResult((), by={GANG: Code.NOWHERE}), snapshot))
    await scene.put(local_slice("a", 2))
    before = scene.decider.asked
    assert await scene.woken() == ["p"]
    assert scene.decider.asked - before <= len(NODE_NAMES)


async def test_what_goes_wrong_unexpectedly_ends_one_round_only() -> None:
    cluster = Cluster.of(*WORLD, *waiting("p"))
    transport = Transport(cluster.api)
    service = make_extender(transport, cluster.state, solver(), Settings()).service
    assert not (await service.filter(FilterArgs(parsed(pod("p", "p-c")), NODE_NAMES))).passed
    cluster.load(local_slice("a"))
    again = asyncio.Event()

    async def fail() -> None:
        raise RuntimeError

    async def tell() -> None:
        again.set()

    transport.script("patch_status pods", Fault(before=fail), Fault(before=tell))
    running = asyncio.create_task(service.background.run())
    async with asyncio.timeout(10):
        await again.wait()
    running.cancel()


async def test_the_service_wakes_whom_filter_has_rejected() -> None:
    cluster = Cluster.of(*WORLD, *waiting("p"))
    service = cluster.service()
    asking = FilterArgs(parsed(pod("p", "p-c")), NODE_NAMES)
    assert not (await service.filter(asking)).passed
    cluster.load(local_slice("a"))
    await service.background.tick()
    assert mark(await cluster.api.get(PODS, ObjectKey("ns", "p")))
    assert list((await service.filter(asking)).passed) == ["a"]
