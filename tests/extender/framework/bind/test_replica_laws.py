"""Two replicas that bind the same pods, or take claims from them: no bound pod is without its devices.

A pinned pod has its node before its claims. It counts as bound once its claims are reserved for it.

Two replicas bind at the same time when the leader changes and the old leader has not finished its binds. Clocks may be
wrong, so claims are taken from pods at any moment.

Two actions are tried in every order, with every fault of every write: one fault in a run. More actions are tried with
few interruptions, and at random with several faults.

No order is left out in which something else could happen (`tests.extender.framework.bind.interleaving` says why):

- Between two stops, an extender and the API server do nothing that anybody else could notice.
- A replica hears news only just before it looks at what is known. News that came earlier, after the look before, would
  change nothing meanwhile (`Known` fails if a replica looks elsewhere). At each look, any number of the news on their
  way may have come; news of claims and news of pods are counted apart.
- Nobody compares the revision of a claim with the revision of a pod. So writes to a claim and to a pod commute.
"""

import os
from collections.abc import Sequence
from random import Random
from typing import Final

import pytest

from extender.lab.api import MemoryApi
from tests.extender.framework.bind.interleaving import BrokenError, Chooser, Dice, explore, explore_patiently, play
from tests.extender.framework.bind.replicas import (
    FAULTS,
    SWEEP,
    Action,
    Replicas,
    bind,
    deallocate,
    give_back,
    program,
    serve,
)
from tests.kit import virtualtime
from tests.kit.clusters import claim, device_class, local_slice, node, pinned, pod
from tests.kit.servers.memory import memory_api
from tests.kit.virtualtime import in_virtual_time

GPU = "example.com/gpu"
IS_LONG: Final = "REPLICA_HISTORIES" in os.environ
ORDERS: Final = None if IS_LONG else 40
"""How many runs are made of each case with each fault; None for all that there are."""

INTERRUPTIONS: Final = 3
HISTORIES: Final = int(os.environ.get("REPLICA_HISTORIES", "100"))
SEED: Final = os.environ.get("REPLICA_SEED", "0")
PARTS: Final = 10


async def played(world: Replicas, chooser: Chooser) -> list[str]:
    try:
        return await play(world, chooser)
    finally:
        await world.close()


# --- every order ---------------------------------------------------------------------------------------------


def one_device() -> MemoryApi:
    """Several pods want the one device that there is."""
    pods = [pod("p", "a"), pod("q", "b"), pod("x", resources={GPU: "1"}), pinned("z", "d")]
    claims = map(claim, ("a", "b", "d"))
    return memory_api(node("n"), local_slice("n"), device_class(extended=GPU), *claims, *pods)


TWO_ACTIONS = {
    "the new leader binds what the old one binds": ([bind("p")], [bind("p")]),
    "both bind, for one device": ([bind("p")], [bind("q")]),
    "a claim is given back, and its device goes to another pod": ([bind("p")], [give_back("p"), bind("q")]),
    "a claim is deallocated, and its device goes to another pod": ([bind("p")], [deallocate("p"), bind("q")]),
    "both serve a pinned pod": ([serve("z")], [serve("z")]),
    "one binds and one serves a pinned pod, for one device": ([bind("p")], [serve("z")]),
}

MORE_ACTIONS = {
    "a claim is given back while both bind its pod": ([bind("p"), bind("p")], [give_back("p"), bind("p")]),
    "a special claim is swept": ([bind("x")], [SWEEP]),
    "a special claim is swept, and its device goes to another pod": ([bind("x")], [SWEEP, bind("q")]),
    "a pinned pod is served again and again": ([serve("z"), serve("z")], [bind("q"), serve("z"), bind("q")]),
    "two binds each": ([bind("p"), bind("q")], [bind("q"), bind("p")]),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("actions", TWO_ACTIONS.values(), ids=list(TWO_ACTIONS))
def test_in_any_order_no_bound_pod_is_without_its_devices(actions: tuple[Sequence[Action], ...], fault: str) -> None:
    async def run(chooser: Chooser) -> None:
        await played(Replicas(one_device(), [[each] for each in actions], faults=1, kinds=[fault]), chooser)

    explored = virtualtime.run(explore(run, ORDERS))
    assert explored.is_all or explored.runs == ORDERS


@pytest.mark.parametrize("actions", MORE_ACTIONS.values(), ids=list(MORE_ACTIONS))
def test_with_few_interruptions_no_bound_pod_is_without_its_devices(actions: tuple[Sequence[Action], ...]) -> None:
    async def run(chooser: Chooser) -> None:
        await played(Replicas(one_device(), [[each] for each in actions]), chooser)

    explored = virtualtime.run(explore_patiently(run, INTERRUPTIONS, ORDERS))
    assert explored.is_all or explored.runs == ORDERS


# --- many orders of more --------------------------------------------------------------------------------------


def cluster() -> MemoryApi:
    """Claims of one pod, of one of several, of several pods, and for extended resources; too few devices for all."""
    there = [node("n"), node("m"), local_slice("n", 2), local_slice("m", 1), device_class(extended=GPU)]
    pods = [pod("p", "a"), pod("q", "b", "c"), pod("r", "shared"), pod("s", "shared")]
    pods += [pod("t", "d"), pinned("z", "d", "e")]
    special = [pod(name, resources={GPU: "1"}) for name in ("x", "y")]
    return memory_api(*there, *map(claim, ("a", "b", "c", "d", "e", "shared")), *pods, *special)


def action(random: Random) -> Action:
    name = random.choice("pqrstxyz")
    if name == "z":
        return serve(name)
    takes = (give_back(name), deallocate(name), SWEEP)
    return random.choice([*takes, *[bind(name, random.choice("nnm"))] * 4])


@pytest.mark.parametrize("part", range(PARTS))
@in_virtual_time
async def test_whatever_comes_when_no_bound_pod_is_without_its_devices(part: int) -> None:
    """Faults and news of watches included, which come one by one, at any moment."""
    found = []
    for number in range(part, HISTORIES, PARTS):
        seed = f"{SEED}-{number}"
        random = Random(seed)  # noqa: S311 - chance needs no secrets
        programs = [program(random, action), program(random, action)]
        world = Replicas(cluster(), programs, faults=random.randint(0, 4), is_spare=False)
        try:
            await played(world, Dice(random))
        except BrokenError as error:
            found.append(f"seed {seed}, {programs}: {error}")
    assert found == []
