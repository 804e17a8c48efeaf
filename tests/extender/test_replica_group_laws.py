"""Two replicas bind the pods of a PodGroup that share a claim, or take the claim: no bound pod is without its devices.

The claim is reserved once for all pods. So whoever takes it has to know all of them, although its watch may be behind.
Faults and news of watches come at any moment, as in `test_replica_laws.py`.
"""

import os
from random import Random
from typing import Final

import pytest

from extender.fakekube.api import MemoryApi
from tests.extender.interleaving import BrokenError, Dice
from tests.extender.replicas import Action, Program, Replicas, bind, deallocate, give_back
from tests.extender.test_group_claims import BY_NAME, team, user
from tests.extender.test_replica_laws import played
from tests.kit import virtualtime
from tests.kit.clusters import claim, device_class, local_slice, node, pod
from tests.kit.servers.memory import memory_api

HISTORIES: Final = int(os.environ.get("REPLICA_HISTORIES", "100"))
SEED: Final = os.environ.get("REPLICA_SEED", "0")
PARTS: Final = 10


def cluster() -> MemoryApi:
    """Three pods of a group share a claim, and one pod wants one of the two devices, too."""
    there = [node("n"), node("m"), local_slice("n"), local_slice("m"), device_class(), team(BY_NAME)]
    pods = [*(user(name, BY_NAME) for name in "ghi"), pod("p", "a")]
    for each in pods:
        each["status"].pop("resourceClaimStatuses", None)
    return memory_api(*there, claim("team-gpu"), claim("a"), *pods)


def program(random: Random) -> Program:
    return [[action(random) for _ in range(random.randint(1, 3))] for _ in range(random.randint(1, 2))]


def action(random: Random) -> Action:
    name = random.choice("ghip")
    return random.choice([give_back(name), deallocate(name), *[bind(name, random.choice("nnm"))] * 4])


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_comes_when_no_bound_pod_of_a_group_is_without_its_devices(part: int) -> None:
    async def broken() -> list[str]:
        found = []
        for number in range(part, HISTORIES, PARTS):
            seed = f"{SEED}-{number}"
            random = Random(seed)  # noqa: S311 - chance needs no secrets
            programs = [program(random), program(random)]
            faults = random.randint(0, 4)
            world = Replicas(cluster(), programs, faults=faults, is_spare=False, has_group_claims=True)
            try:
                await played(world, Dice(random))
            except BrokenError as error:
                found.append(f"seed {seed}, {programs}: {error}")
        return found

    assert virtualtime.run(broken()) == []
