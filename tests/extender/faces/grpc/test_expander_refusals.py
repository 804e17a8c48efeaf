"""Pods that no node helps: the expander adds none for them, although Cluster Autoscaler simulates them on new nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.extender.autoscaler.scenes import autoscaler_over, machine, node_template, pods
from tests.extender.autoscaler.test_whole_gangs import members
from tests.extender.faces.grpc.scenes import call, serving
from tests.extender.plugins.gangs.test_gangs_pod_groups import pod_group
from tests.kit.clusters import GPU, Object, claim_template, local_slice, state_of
from tests.kit.objects.quotas import limited, quota
from tests.kit.protobuf import answer, request

GROUPS = {"big": 4, "small": 1}
NODES = {name: machine("template", name, cpu="64", memory="64Gi", pods="110") for name in GROUPS}
TEMPLATES = [node_template(name, devices) for name, devices in GROUPS.items()]
KINDS = ["annotations", "PodGroup", "PodGroup that the autoscaler does not know"]


def sent(raw: Object) -> Object:
    """A pod as an autoscaler sends it that is older than PodGroups."""
    return {**raw, "spec": {key: value for key, value in raw["spec"].items() if key != "schedulingGroup"}}


class Gang:
    """A gang of pods with a GPU each.

    Attributes:
        objects: what the API server has.
        pods: as the autoscaler sends them.
    """

    def __init__(self, kind: str, size: int, there: int) -> None:
        self.pods = members("train", size, there)
        self.objects = list(self.pods)
        if kind != KINDS[0]:
            for each in self.pods:
                each["metadata"]["annotations"] = {}
                each["spec"]["schedulingGroup"] = {"podGroupName": "train"}
            self.objects.append(pod_group("train", size))
        if kind == KINDS[2]:
            self.pods = list(map(sent, self.pods))


async def chosen(
    objects: Sequence[Object], options: Mapping[str, tuple[int, Sequence[Object]]]
) -> list[tuple[Any, ...]]:
    """The answer: group, number of nodes, pods that get a place."""
    state = state_of([GPU, claim_template(), *objects])
    async with serving(autoscaler_over(state, *TEMPLATES)) as address:
        found = answer(await call(address, request(options, NODES)))
    return [(name, count, why.partition(";")[0].rpartition(": ")[2]) for name, count, why in found]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_gang_of_which_a_pod_is_missing_gets_no_node(kind: str) -> None:
    gang = Gang(kind, 4, there=3)
    assert await chosen(gang.objects, {"big": (1, gang.pods), "small": (3, gang.pods)}) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_gang_that_is_larger_than_what_the_groups_may_add_gets_no_node(kind: str) -> None:
    """The autoscaler names as many of the pods as its groups have room for."""
    gang = Gang(kind, 24, there=24)
    assert await chosen(gang.objects, {"small": (10, gang.pods[:10])}) == []
    assert await chosen(gang.objects, {"small": (10, gang.pods[:10]), "big": (3, gang.pods[:12])}) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_groups_that_may_add_enough_together_serve_a_gang(kind: str) -> None:
    gang = Gang(kind, 24, there=24)
    [(_, _, places)] = await chosen(gang.objects, {"small": (8, gang.pods), "big": (4, gang.pods)})
    assert places in {"16 of 24", "8 of 24"}


@pytest.mark.parametrize("kind", KINDS)
async def test_devices_that_are_free_count_for_a_gang(kind: str) -> None:
    gang = Gang(kind, 24, there=24)
    old = [machine("old"), local_slice("old", 8)]
    options = {"big": (4, gang.pods[:16])}
    assert await chosen(gang.objects, options) == []
    assert await chosen([*gang.objects, *old], options) == [("big", 4, "16 of 16")]


async def test_a_gang_over_quota_gets_no_node_and_leaves_the_quota_to_others() -> None:
    gang = Gang(KINDS[0], 4, there=4)
    asked = [*gang.pods, *pods(1, "gpu")]
    found = await chosen([*gang.objects, quota(limited(devices=3))], {"small": (5, asked)})
    assert found == [("small", 1, "1 of 5")]


async def test_pods_of_one_request_count_together_against_their_quota() -> None:
    asked = pods(5, "gpu")
    assert await chosen([*asked, quota(limited(devices=1))], {"small": (5, asked)}) == [("small", 1, "1 of 5")]
    assert await chosen([*asked, quota(limited(devices=0))], {"small": (5, asked)}) == []


async def test_the_reason_names_pods_that_no_node_helps() -> None:
    asked = pods(5, "gpu")
    state = state_of([GPU, claim_template(), quota(limited(devices=1)), *asked])
    async with serving(autoscaler_over(state, *TEMPLATES)) as address:
        [(_, _, reason)] = answer(await call(address, request({"small": (5, asked)}, NODES)))
    why = "device quota gold: limit gpu allows 1 device"
    named = "; ".join(f"ns/p{number}: {why}" for number in (1, 2, 3))
    assert reason.endswith(f"; pods that no node helps: 4 ({named}; and 1 more pods)")
