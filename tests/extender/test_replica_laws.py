"""Two replicas that bind the same pods, or take claims from them: no bound pod is without its devices.

So it is when the leader changes: the old one still has binds on their way. Clocks are wrong in that claims are taken
from pods at any moment.
"""

import os
from collections.abc import Sequence
from random import Random
from typing import Final

import pytest

from extender.fakekube.api import MemoryApi
from tests.extender import virtualtime
from tests.extender.apis import memory_api
from tests.extender.clusters import claim, device_class, local_slice, node, pod
from tests.extender.interleaving import BrokenError, Chooser, Dice, explore, play
from tests.extender.replicas import SWEEP, Action, Program, Replicas, bind, deallocate, give_back

GPU = "example.com/gpu"
FAULTS: Final = int(os.environ.get("REPLICA_FAULTS", "0"))
"""That befall writes of one run, where every order is tried; every write, every fault."""

ORDERS: Final = int(os.environ.get("REPLICA_ORDERS", "60"))
"""How many are tried of each case; with enough of them, all that there are."""

HISTORIES: Final = int(os.environ.get("REPLICA_HISTORIES", "100"))
PARTS: Final = 10


async def played(world: Replicas, chooser: Chooser) -> list[str]:
    try:
        return await play(world, chooser)
    finally:
        await world.close()


# --- every order ---------------------------------------------------------------------------------------------


def one_device() -> MemoryApi:
    """Two pods want the one device that there is."""
    pods = [pod("p", "a"), pod("q", "b"), pod("x", resources={GPU: "1"})]
    return memory_api(node("n"), local_slice("n"), device_class(extended=GPU), claim("a"), claim("b"), *pods)


ONE_AFTER_ANOTHER = {
    "the new leader binds what the old one binds": ([bind("p")], [bind("p")]),
    "both bind, for one device": ([bind("p")], [bind("q")]),
    "a claim is given back, and its device goes to another pod": ([bind("p")], [give_back("p"), bind("q")]),
    "a claim is deallocated, and its device goes to another pod": ([bind("p")], [deallocate("p"), bind("q")]),
    "a claim is given back while both bind its pod": ([bind("p"), bind("p")], [give_back("p"), bind("p")]),
    "a special claim is swept": ([bind("x")], [SWEEP]),
    "a special claim is swept, and its device goes to another pod": ([bind("x")], [SWEEP, bind("q")]),
    "two binds each": ([bind("p"), bind("q")], [bind("q"), bind("p")]),
}


@pytest.mark.parametrize("actions", ONE_AFTER_ANOTHER.values(), ids=list(ONE_AFTER_ANOTHER))
def test_in_any_order_no_bound_pod_is_without_its_devices(actions: tuple[Sequence[Action], ...]) -> None:
    async def run(chooser: Chooser) -> None:
        await played(Replicas(one_device(), [[each] for each in actions], faults=FAULTS), chooser)

    assert virtualtime.run(explore(run, ORDERS)) > len(actions)


# --- many orders of more --------------------------------------------------------------------------------------


def cluster() -> MemoryApi:
    """Claims of one pod, of one of several, of several pods, and for extended resources; too few devices for all."""
    there = [node("n"), node("m"), local_slice("n", 2), local_slice("m", 1), device_class(extended=GPU)]
    pods = [pod("p", "a"), pod("q", "b", "c"), pod("r", "shared"), pod("s", "shared")]
    special = [pod(name, resources={GPU: "1"}) for name in ("x", "y")]
    return memory_api(*there, *map(claim, ("a", "b", "c", "shared")), *pods, *special)


def program(random: Random) -> Program:
    return [[action(random) for _ in range(random.randint(1, 3))] for _ in range(random.randint(1, 2))]


def action(random: Random) -> Action:
    name = random.choice("pqrsxy")
    takes = (give_back(name), deallocate(name), SWEEP)
    return random.choice([*takes, *[bind(name, random.choice("nnm"))] * 4])


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_comes_when_no_bound_pod_is_without_its_devices(part: int) -> None:
    """Faults and news of watches included, which come one by one, at any moment."""

    async def run() -> None:
        for seed in range(part, HISTORIES, PARTS):
            random = Random(seed)  # noqa: S311 - chance needs no secrets
            programs = [program(random), program(random)]
            world = Replicas(cluster(), programs, faults=random.randint(0, 4), is_spare=False)
            try:
                await played(world, Dice(random))
            except BrokenError as error:
                raise AssertionError(f"seed {seed}, {programs}") from error

    virtualtime.run(run())
