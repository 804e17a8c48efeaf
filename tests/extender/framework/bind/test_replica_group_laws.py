"""Two replicas bind the pods of a PodGroup that share a claim, or take the claim: no bound pod is without its devices.

The claim is reserved once for all pods. So whoever takes it has to know all of them, although its watch may be behind,
and although users create pods meanwhile.
Faults and news of watches come at any moment, as in `test_replica_laws.py`.
"""

import os
from random import Random
from typing import Final

import pytest

from extender.kube.api import RawObject
from extender.lab.api import MemoryApi
from tests.extender.cluster.test_group_claims import BY_NAME, team, user
from tests.extender.framework.bind.interleaving import BrokenError, Dice
from tests.extender.framework.bind.replicas import (
    Action,
    Replicas,
    bind,
    create,
    deallocate,
    give_back,
    program,
)
from tests.extender.framework.bind.test_replica_laws import played
from tests.kit.clusters import claim, device_class, local_slice, node, pod
from tests.kit.servers.memory import memory_api
from tests.kit.virtualtime import in_virtual_time

HISTORIES: Final = int(os.environ.get("REPLICA_HISTORIES", "100"))
SEED: Final = os.environ.get("REPLICA_SEED", "0")
PARTS: Final = 10
LATE: Final = "ij"
"""Pods of the group that users may create."""


def cluster() -> MemoryApi:
    """Pods of a group share a claim, and one pod wants one of the two devices, too."""
    there = [node("n"), node("m"), local_slice("n"), local_slice("m"), device_class(), team(BY_NAME)]
    return memory_api(*there, claim("team-gpu"), claim("a"), mate("g"), mate("h"), pod("p", "a"))


def mate(name: str) -> RawObject:
    made = user(name, BY_NAME)
    del made["status"]["resourceClaimStatuses"]
    return made


def action(random: Random) -> Action:
    name = random.choice("ghijp")
    late = [create(name)] * 3 if name in LATE else []
    return random.choice([give_back(name), deallocate(name), *late, *[bind(name, random.choice("nnm"))] * 4])


@pytest.mark.parametrize("part", range(PARTS))
@in_virtual_time
async def test_whatever_comes_when_no_bound_pod_of_a_group_is_without_its_devices(part: int) -> None:
    found = []
    for number in range(part, HISTORIES, PARTS):
        seed = f"{SEED}-{number}"
        random = Random(seed)  # noqa: S311 - chance needs no secrets
        programs = [program(random, action), program(random, action)]
        faults = random.randint(0, 4)
        made = {name: mate(name) for name in LATE}
        world = Replicas(cluster(), programs, faults, is_spare=False, has_group_claims=True, made=made)
        try:
            await played(world, Dice(random))
        except BrokenError as error:
            found.append(f"seed {seed}, {programs}: {error}")
    assert found == []
