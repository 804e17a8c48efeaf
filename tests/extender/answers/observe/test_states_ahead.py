"""The states of devices are worked out before somebody asks: little by little, and again for what has changed."""

from collections.abc import Callable
from math import ceil
from typing import TypeVar

import pytest

from allocator import Features, PoolId
from allocator.checks import DeviceState
from extender.answers.observe.device_states import PAUSE, TURN_SECONDS, DeviceStates, StatesKeeper
from extender.kube.api import ObjectKey
from extender.kube.resources import NODES, SLICES
from tests.kit.clusters import DRIVER, Cluster, Object, claim, local_slice, node, taint_rule

_T = TypeVar("_T")
POOLS = 20
A_TURN = 3
"""Pools that are worked out in one turn, at the pace of the scene."""

A_TICK = 0.25
"""Seconds between two turns of the background tasks."""

TURNS_FOR_ALL = ceil(POOLS / A_TURN)


class Scene:
    """A cluster, and turns that are counted if something was worked out in them. A pool takes a part of a turn."""

    def __init__(self) -> None:
        names = [f"n{number}" for number in range(POOLS)]
        self.cluster = Cluster.of(*map(node, names), *map(local_slice, names))
        self.states = DeviceStates(Features())
        self.worked = 0
        self.now = self.extra = 0.0
        self.keeper = StatesKeeper(self.cluster.state, self.states, self.clock, self.off_loop)

    def clock(self) -> float:
        self.now += TURN_SECONDS / (A_TURN + 0.5)
        return self.now

    async def off_loop(self, work: Callable[[], _T]) -> _T:
        self.worked += 1
        self.now += self.extra
        return work()

    async def turns(self, number: int = POOLS) -> int:
        """In how many of some turns something was worked out."""
        before = self.worked
        for _ in range(number):
            self.now += A_TICK
            await self.keeper.tick()
        return self.worked - before

    def state(self, pool: str) -> DeviceState:
        states = self.states.at(self.cluster.state.snapshot)(PoolId(DRIVER, pool))
        (found,) = [state for _, _, state in states]
        return found


async def test_a_turn_works_out_a_few_pools_until_none_is_left() -> None:
    scene = Scene()
    assert await scene.turns() == TURNS_FOR_ALL
    assert await scene.turns() == 0


async def test_after_a_turn_that_took_long_there_is_a_pause_in_proportion() -> None:
    scene = Scene()
    scene.extra = 2.0
    assert await scene.turns(1) == 1
    assert await scene.turns(int(PAUSE * scene.extra / A_TICK) - 1) == 0
    assert await scene.turns(3) == 1


async def test_a_label_of_a_node_concerns_the_pools_of_the_node() -> None:
    scene = Scene()
    await scene.turns()
    await scene.cluster.api.patch(NODES, ObjectKey("", "n3"), {"metadata": {"labels": {"zone": "z"}}})
    assert await scene.turns() == 1


@pytest.mark.parametrize(
    ("change", "turns", "state"),
    [
        (claim("c", allocated=["n3/gpu-0"], at="n3"), 1, DeviceState.ALLOCATED),
        (node("other"), 0, DeviceState.FREE),
        (claim("pending"), 0, DeviceState.FREE),
        (taint_rule("broken", driver=DRIVER), TURNS_FOR_ALL, DeviceState.TAINTED),
    ],
    ids=["held", "other node", "other claim", "rule"],
)
async def test_only_what_a_change_concerns_is_worked_out_again(change: Object, turns: int, state: DeviceState) -> None:
    scene = Scene()
    await scene.turns()
    scene.cluster.load(change)
    assert await scene.turns() == turns
    assert scene.state("n3") is state


async def test_a_pool_that_is_gone_is_forgotten() -> None:
    scene = Scene()
    await scene.turns(1)
    scene.cluster.state.replace(SLICES, [], 10**6)
    await scene.turns()
    assert await scene.turns() == 0


async def test_a_cluster_that_is_not_known_is_left_alone() -> None:
    scene = Scene()
    scene.cluster.state.doubt(SLICES, "not synced")
    assert await scene.turns() == 0
