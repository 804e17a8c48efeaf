"""What a pod was woken for is kept for it until it has been asked about."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from extender.cluster.objects.pods import Pod
from extender.framework.bind_errors import ResourceQuotaRefusesError
from extender.framework.passed_over_nodes import FIRST_PAUSE
from extender.framework.wire import BindArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.plugins.requeue.requeue import ANSWER_SECONDS
from extender.tools.faults import RefusedError
from tests.extender.plugins.preemption.scenes import runs
from tests.extender.plugins.requeue.scheduler_queue import LONGEST_BACKOFF, SchedulerQueue
from tests.kit import virtualtime
from tests.kit.clusters import GPU, Cluster, Object, claim, local_slice, node, pod
from tests.kit.objects.quotas import limited, quota
from tests.kit.virtualtime import elapse, in_virtual_time

HISTORIES: Final = int(os.environ.get("WOKEN_HISTORIES", "25"))


def world(*objects: Object, nodes: str = "a", devices: int = 1) -> list[Object]:
    return [GPU, *(each for name in nodes for each in (node(name), local_slice(name, devices))), *objects]


def waits(name: str, priority: int = 0) -> list[Object]:
    return [pod(name, f"{name}-c", priority=priority), claim(f"{name}-c")]


async def woken(*more: Object, devices: int = 1) -> SchedulerQueue:
    """Pod ``vip`` has waited for the devices of pod ``same`` and is woken. It is in its backoff for 4 s more."""
    same = runs("same", *(f"a/gpu-{number}" for number in range(devices)), on="a", priority=1000)
    queue = SchedulerQueue(Cluster.of(*world(*same, *more, devices=devices)))
    queue.add(*waits("vip", 1000))
    for _ in range(3):
        await queue.run(2.2)
        queue.move()
        await queue.schedule()
    assert queue.tries["vip"] == 3
    await queue.end("same")
    await queue.service.background.tick()
    return queue


@in_virtual_time
async def test_a_freed_device_waits_for_the_pod_that_was_woken_for_it() -> None:
    queue = await woken()
    queue.add(*waits("young"))
    await queue.schedule()
    assert queue.bound() == set()
    await queue.run(LONGEST_BACKOFF)
    assert queue.bound() == {"vip"}
    assert "young" in queue.pods(), "no pod was evicted"


@pytest.mark.parametrize(("priority", "bound"), [(1000, {"young"}), (0, set())])
@in_virtual_time
async def test_a_pod_that_another_replica_has_passed_gets_it_unless_it_is_less_important(
    priority: int, bound: set[str]
) -> None:
    """No replica knows what others keep: they would refuse each other's pods for as long as they wake some."""
    queue = await woken()
    queue.add(*waits("young", priority))
    await queue.schedule()
    assert queue.bound() == set()
    with suppress(RefusedError):
        await queue.service.bind(BindArgs("young", "ns", "uid-young", "a"))
    assert queue.bound() == bound


@in_virtual_time
async def test_what_is_left_beside_it_goes_to_others() -> None:
    queue = await woken(devices=2)
    queue.add(*waits("young"))
    await queue.schedule()
    assert queue.bound() == {"young"}
    await queue.run(LONGEST_BACKOFF)
    assert queue.bound() == {"young", "vip"}


@in_virtual_time
async def test_of_equal_priority_the_pod_that_is_out_of_its_backoff_is_woken_first() -> None:
    """The older one would leave the device idle for seconds."""
    queue = SchedulerQueue(Cluster.of(*world(*runs("same", "a/gpu-0", on="a", priority=1000))), hears=False)
    queue.add(*waits("old", 1000))
    for _ in range(2):
        await queue.run(2.2)
        queue.move()
        await queue.schedule()
    queue.add(pod("young", "young-c", priority=1000, created="2026-01-02T00:00:00Z"), claim("young-c"))
    await queue.run(2.2)
    queue.move()
    await queue.schedule()
    assert (queue.tries["old"], queue.tries["young"]) == (3, 2), "one waits 4 s, the other 2 s"
    await queue.run(2.2)
    await queue.end("same")
    began = queue.now
    await queue.until(lambda: bool(queue.bound()))
    assert queue.bound() == {"young"}
    assert queue.now - began < 1


@in_virtual_time
async def test_a_pod_of_higher_priority_may_take_it() -> None:
    queue = await woken()
    queue.add(*waits("boss", 2000))
    await queue.schedule()
    assert queue.bound() == {"boss"}


@in_virtual_time
async def test_it_counts_in_the_quota_of_its_namespace() -> None:
    queue = await woken(quota(limited(devices=1)), devices=2)
    queue.add(*waits("young"))
    await queue.schedule()
    assert queue.bound() == set()
    await queue.run(LONGEST_BACKOFF)
    assert queue.bound() == {"vip"}


@in_virtual_time
async def test_what_pods_are_woken_for_in_one_look_counts_in_their_quota_together() -> None:
    same = [*runs("same", "a/gpu-0", on="a", priority=1000), *runs("pair", "b/gpu-0", "b/gpu-1", on="b", priority=1000)]
    queue = SchedulerQueue(Cluster.of(*world(*same, quota(limited(devices=3)), nodes="ab", devices=2)), hears=False)
    queue.add(*waits("vip", 1000), *runs("other", "a/gpu-1", on="a", priority=1000))
    for _ in range(3):
        await queue.run(2.2)
        queue.move()
        await queue.schedule()
    queue.add(*waits("x"), *waits("y"), *waits("z"))
    await queue.schedule()
    for name in ("same", "other", "pair"):
        await queue.end(name)
        await queue.service.background.tick()
    kept = [each.kept.devices for each in queue.cluster.state.snapshot.woken.values()]
    assert sum(map(len, kept)) == 3, "vip is woken first, and two of the three others together"
    await queue.run(LONGEST_BACKOFF)
    assert "vip" in queue.bound()


@in_virtual_time
async def test_what_its_pod_cannot_use_goes_to_others_as_soon_as_it_was_asked_about() -> None:
    queue = await woken()
    queue.add(*waits("young"))
    queue.rejected_by_scheduler = lambda pod, _: pod.name == "vip"  # its CPU is taken
    await queue.schedule()
    assert queue.bound() == set()
    await queue.until(lambda: queue.tries["vip"] == 4)
    asked = queue.now
    await queue.until(lambda: "young" in queue.bound())
    assert queue.now - asked < 2.5, "in its next turn, after its own backoff"


async def refused_by_a_quota(*more: Object) -> SchedulerQueue:
    """A ResourceQuota has refused the claim of pod ``vip`` at bind. Pod ``same`` has the device."""
    same = runs("same", "a/gpu-0", on="a", priority=1000)
    queue = SchedulerQueue(Cluster.of(*world(*same, *more)))
    queue.add(*waits("vip", 1000))
    await queue.schedule()
    queue.service.background.note_bind_failed("uid-vip", "a", ResourceQuotaRefusesError("claim ns/vip-c is not made"))
    return queue


@in_virtual_time
async def test_nothing_is_kept_for_a_pod_whose_claim_a_resource_quota_refuses() -> None:
    """Such pods are woken again and again, each in its turn: together they would keep the device from all others."""
    queue = await refused_by_a_quota()
    await queue.end("same")
    await queue.service.background.tick()
    queue.add(*waits("young"))
    await queue.schedule()
    assert queue.bound() == {"young"}


@in_virtual_time
@pytest.mark.parametrize("how", ["time has passed", "a claim of the namespace is gone"])
async def test_it_is_kept_again_once_the_quota_may_have_room(how: str) -> None:
    queue = await refused_by_a_quota(claim("done"))
    if how == "time has passed":
        await elapse(FIRST_PAUSE)
        queue.move()
        await queue.schedule()  # in vain: the device is in use
    else:
        await queue.cluster.api.delete(CLAIMS, ObjectKey("ns", "done"))
    await queue.service.background.tick()
    await queue.end("same")
    await queue.service.background.tick()
    queue.add(*waits("young"))
    await queue.schedule()
    assert queue.bound() == set()
    await queue.run(LONGEST_BACKOFF)
    assert queue.bound() == {"vip"}


@in_virtual_time
async def test_it_is_not_kept_for_ever_for_a_pod_that_is_never_asked_about() -> None:
    queue = await woken()
    began = queue.now
    queue.waiting.clear()
    queue.add(*waits("young"))
    await queue.until(lambda: "young" in queue.bound())
    assert ANSWER_SECONDS <= queue.now - began <= ANSWER_SECONDS + 5


@in_virtual_time
async def test_it_is_kept_while_the_pods_are_listed_again() -> None:
    queue = await woken()
    before = queue.cluster.state.snapshot.woken
    await queue.relist()
    assert [each.kept for each in queue.cluster.state.snapshot.woken.values()] == [
        each.kept for each in before.values()
    ]
    queue.add(*waits("young"))
    await queue.schedule()
    assert queue.bound() == set()


# --- random histories ---------------------------------------------------------------------------------------


@dataclass
class History:
    """What is told of the pods of one history.

    Attributes:
        woken: the pods that were woken for devices and not asked about since, with the pods that were bound then.
        wrong: pods that found nothing although only pods of no higher priority have come meanwhile.
    """

    woken: dict[str, set[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@pytest.mark.parametrize("part", range(5))
def test_no_eviction_follows_a_device_that_was_free_for_the_pod(part: int) -> None:
    """All devices are in use at first, by pods that nobody may evict."""
    for seed in range(part, HISTORIES, 5):
        wrong, left = virtualtime.run(_history(Random(seed)))  # noqa: S311 - the order needs no secrets
        assert (seed, wrong, left) == (seed, [], [])


async def _history(chance: Random) -> tuple[list[str], list[str]]:
    """The pods that found nothing although a device was free for them, and the pods that would fit in the end."""
    hears, devices, limit = chance.random() < 0.5, chance.choice((1, 2)), chance.choice((None, 2, 3))
    more = [] if limit is None else [quota(limited(devices=limit))]
    for name in "ab":
        for number in range(devices):
            more += runs(f"{name}{number}", f"{name}/gpu-{number}", on=name, priority=1000)
    queue = SchedulerQueue(Cluster.of(*world(*more, nodes="ab", devices=devices)), hears=hears)
    running = [f"{name}{number}" for number in range(devices) for name in "ab"]
    history = History()

    def tried(asked: Pod, is_bound: bool) -> None:
        before = history.woken.pop(asked.name, None)
        if before is None or is_bound:
            return
        came = queue.bound() - before
        pods = queue.cluster.state.snapshot.pods
        if not any(pods[ObjectKey("ns", name)].priority > asked.priority for name in came):
            history.wrong.append(asked.name)

    def was_woken(name: str) -> None:
        if f"uid-{name}" in queue.cluster.state.snapshot.woken:  # others are woken because they may evict
            history.woken.setdefault(name, queue.bound())

    queue.tried, queue.was_woken = tried, was_woken
    queue.add(*waits("first", 1000))
    await queue.run(0.5)
    for made in range(chance.randint(4, 16)):
        what = chance.choice(("add", "free", "free", "wait"))
        if what == "add":
            names = [f"p{made}-c{each}" for each in range(chance.choice((1, 1, 2)))]
            priority = chance.choice((0, 0, 100, 1000, 1000, 2000))
            queue.add(pod(f"p{made}", *names, priority=priority), *map(claim, names))
        elif what == "free" and (each := sorted({*running, *queue.bound()} & queue.pods())):
            await queue.end(chance.choice(each))
            await queue.run(chance.choice((0.1, 0.3, 0.7, 3.0)))
        elif what == "wait":
            await queue.run(chance.choice((0.1, 0.5, 2.0, 5.0)))
    await queue.run(2 * LONGEST_BACKOFF)
    return history.wrong, queue.could_run()
