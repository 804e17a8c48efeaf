"""Plans of gangs take turns: a plan that takes long holds up no other gang, and each gang has its turn."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from allocator import DeviceId
from extender.cluster.objects.pods import Keeping
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.plugins.gangs.task import LONG_PLANS, LONGEST_PLAN_SECONDS, PLANNING_SECONDS
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.kit.clusters import DRIVER, Object, claim, local_slice, node, pod
from tests.kit.objects.quotas import limited, quota
from tests.kit.virtualtime import in_virtual_time

T = TypeVar("T")


class Slow(Scene):
    """A cluster in which each look at the clock takes a while. A test runs in virtual time.

    Attributes:
        seconds: of each look.
        gate: plans that begin wait until it is set.
        made: the gangs of which a pod was planned, in the order of the writes.
    """

    def __init__(self, *objects: Object, seconds: float = 0.01) -> None:
        super().__init__(*objects)
        self.seconds = seconds
        self.solver = replace(self.solver, clock=self.clock)
        self.gate = opened()
        self.off_loop = self.behind_the_gate
        self.start()

    def clock(self) -> float:
        self.now += self.seconds
        return self.now

    async def behind_the_gate(self, work: Callable[[], T]) -> T:
        await self.gate.wait()
        return work()

    def kept(self, gang: str) -> Sequence[str]:
        """The nodes that are kept for the pods of a gang."""
        pods = (self.known(name) for name in self.pending() if name.startswith(gang))
        return [each.kept.node for each in pods if each.kept.node]

    async def ask(self, *gangs: str) -> None:
        """Filter is asked about the pods of some gangs."""
        for name in self.pending():
            if name.startswith(gangs):
                self.filter(name)

    async def begin_long(self, *gangs: str) -> asyncio.Event:
        """Plans of some gangs go on between the turns until the event is set."""
        begun = self.gate = asyncio.Event()
        for gang in gangs:
            await self.ask(gang)
            await self.task.tick()
        assert len(self.task.unfinished) == len(gangs)
        self.gate = opened()
        return begun

    async def plan_elsewhere(self, gang: str, names: str) -> Sequence[str]:
        """A gang is planned on other nodes than the plans that go on; returns the nodes."""
        for name in self.pending():
            if name.startswith(gang):
                self.filter(name, names=names)
        await self.task.tick()
        return self.kept(gang)

    async def end_long(self, begun: asyncio.Event) -> None:
        begun.set()
        await asyncio.gather(*self.task.unfinished)


def opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@in_virtual_time
async def test_a_plan_that_takes_longer_than_a_turn_goes_on() -> None:
    scene = Slow(*nodes(map(str, range(64))), *members("x", 64), seconds=0.05)
    await scene.ask("x")
    began = scene.now
    await scene.turns(1)
    assert len(scene.kept("x")) == 64
    assert scene.now - began > 10 * PLANNING_SECONDS


@in_virtual_time
async def test_a_plan_that_takes_too_long_is_stopped_and_made_again_after_four_times_as_long() -> None:
    scene = Slow(*nodes(map(str, range(16))), *members("x", 16), seconds=LONGEST_PLAN_SECONDS / 8)
    await scene.ask("x")
    await scene.turns(1)
    assert not scene.kept("x")
    scene.seconds, stopped = 0.001, scene.now
    while not scene.kept("x"):
        await scene.turns(1, seconds=100)
    assert scene.now - stopped > 4 * LONGEST_PLAN_SECONDS


@in_virtual_time
async def test_others_are_planned_while_a_plan_goes_on() -> None:
    scene = Slow(*nodes("abc"), *members("x", 2), *members("y", 1))
    begun = await scene.begin_long("x")
    await scene.ask("y")
    await scene.task.tick()
    assert len(scene.kept("y")) == 1
    await scene.end_long(begun)
    await scene.turns(1)
    assert sorted((*scene.kept("x"), *scene.kept("y"))) == ["a", "b", "c"]


@in_virtual_time
async def test_a_plan_is_made_again_if_a_device_is_kept_for_another_pod_meanwhile() -> None:
    scene = Slow(*nodes(map(str, range(17))), *members("x", 16), pod("s", "s-c"), claim("s-c"))
    begun = await scene.begin_long("x")
    await scene.nominator.keep(scene.known("s"), Keeping("0", (DeviceId(DRIVER, "0", "gpu-0"),)))
    await scene.end_long(begun)
    assert not scene.kept("x")
    await scene.turns(1)
    assert sorted(scene.kept("x")) == sorted(map(str, range(1, 17)))


@pytest.mark.parametrize(
    ("priority", "created", "first"),
    [
        pytest.param(0, "2026-01-01T00:00:00Z", "x", id="as old as the gang"),
        pytest.param(0, "2025-12-31T00:00:00Z", "s", id="older"),
        pytest.param(-1, "2025-12-31T00:00:00Z", "x", id="less important"),
        pytest.param(1, "2026-01-02T00:00:00Z", "s", id="more important"),
    ],
)
@in_virtual_time
async def test_a_pod_that_is_woken_while_a_gang_is_planned_goes_first_if_it_is_more_important_or_older(
    priority: int, created: str, first: str
) -> None:
    scene = Slow(*nodes("abc"), *members("x", 2), pod("s", "s-c", priority=priority, created=created), claim("s-c"))
    begun = await scene.begin_long("x")
    state, device = scene.cluster.state, DeviceId(DRIVER, "a", "gpu-0")
    state.keep_for("uid-s", Keeping("a", (device,)))
    await scene.end_long(begun)
    kept = sorted(scene.kept("x")), "uid-s" in state.snapshot.woken
    assert kept == ((["a", "b"], False) if first == "x" else ([], True))
    await scene.turns(1)
    assert sorted(scene.kept("x")) == (["a", "b"] if first == "x" else ["b", "c"])


@in_virtual_time
async def test_a_plan_is_made_again_if_another_gang_has_used_up_the_quota_meanwhile() -> None:
    gangs = (*members("x", 2), *members("y", 2))
    scene = Slow(*nodes("ab"), *(each for name in "cd" for each in nodes(name)[1:]), quota(limited(devices=3)), *gangs)
    begun = await scene.begin_long("x")
    taken = await scene.plan_elsewhere("y", "cd")
    await scene.end_long(begun)
    await scene.turns(1)
    assert (sorted(taken), scene.kept("x")) == (["c", "d"], [])


@in_virtual_time
async def test_a_gang_that_was_overtaken_is_not_overtaken_again_by_one_that_is_less_important() -> None:
    urgent = members("u", 1, priority=1)
    scene = Slow(*nodes("abcde"), *members("x", 2), *members("y", 1), *members("z", 1), *urgent)
    begun = await scene.begin_long("x")
    await scene.ask("y")
    await scene.task.tick()
    assert scene.kept("y") == ["a"]
    await scene.end_long(begun)
    assert not scene.kept("x"), "its plan has node a, too"
    begun = await scene.begin_long("x")
    await scene.ask("u", "z")
    await scene.task.tick()
    assert (len(scene.kept("u")), len(scene.kept("z"))) == (1, 0)
    await scene.end_long(begun)
    await scene.turns(3)
    assert (len(scene.kept("x")), len(scene.kept("z"))) == (2, 1)


@in_virtual_time
async def test_while_many_plans_go_on_another_one_has_one_turn() -> None:
    names = [f"x{number}-" for number in range(LONG_PLANS)]
    long = [each for name in names for each in members(name, 1)]
    scene = Slow(*nodes("ab"), *long, *members("y", 1), *members("z", 2))
    begun = await scene.begin_long(*names)
    await scene.ask("y")
    await scene.task.tick()
    assert len(scene.kept("y")) == 1
    scene.seconds = PLANNING_SECONDS
    await scene.ask("z")
    scene.now += 2
    await scene.task.tick()
    assert len(scene.task.unfinished) == LONG_PLANS
    assert not scene.kept("z")
    await scene.end_long(begun)


@in_virtual_time
async def test_gangs_that_a_turn_did_not_get_to_come_first_in_the_next() -> None:
    """Each plan takes a turn, and there is no place for the important gangs, whose schedulers ask all the time."""
    important = [each for name in ("v", "w") for each in members(name, 3, priority=1)]
    scene = Slow(*nodes("ab"), *important, *members("x", 1), *members("y", 1))
    await scene.ask("v", "w", "x", "y")
    scene.seconds = PLANNING_SECONDS / 4
    for number in range(6):
        scene.now += 2
        await scene.task.tick()
        scene.cluster.load(node(f"news{number}"))
        await scene.ask("v", "w")
    assert (len(scene.kept("x")), len(scene.kept("y"))) == (1, 1)


@in_virtual_time
async def test_what_changes_while_a_plan_is_made_in_vain_is_not_overlooked() -> None:
    scene = Slow(*nodes("a"), node("b"), *members("x", 2))
    begun = await scene.begin_long("x")
    scene.cluster.load(local_slice("b", 1))
    await scene.task.tick()
    await scene.end_long(begun)
    assert not scene.kept("x"), "the plan did not know of the device"
    await scene.turns(1)
    assert sorted(scene.kept("x")) == ["a", "b"]


@pytest.mark.parametrize("ends", ["gang", "pod"])
@in_virtual_time
async def test_a_plan_of_pods_that_are_gone_keeps_nothing(ends: str) -> None:
    scene = Slow(*nodes("ab"), *members("x", 2))
    begun = await scene.begin_long("x")
    for name in ("x0", "x1") if ends == "gang" else ("x0",):
        await scene.cluster.api.delete(PODS, ObjectKey("ns", name))
    await scene.task.tick()
    await scene.end_long(begun)
    await scene.turns(1)
    assert not scene.kept("x")


class Leaving(Slow):
    """The pods of a gang are deleted while it is planned.

    Attributes:
        looks: at the clock since then.
    """

    looks = 0

    def clock(self) -> float:
        if not self.cluster.state.snapshot.pods:
            self.looks += 1
        return super().clock()

    async def behind_the_gate(self, work: Callable[[], T]) -> T:
        for name in self.pending():
            await self.cluster.api.delete(PODS, ObjectKey("ns", name))
        self.looks = 0
        return work()


@in_virtual_time
async def test_the_plan_of_a_gang_whose_pods_are_gone_ends_at_once() -> None:
    """A plan may take ten seconds, in a fifth of the interpreter, for nobody."""
    scene = Leaving(*nodes(map(str, range(200))), *members("g", 4), seconds=0.0)
    await scene.ask("g")
    await scene.task.tick()
    assert scene.looks <= 10
