"""Nodes for gangs and for namespaces with quotas: what a plan gives each pod adds up."""

from collections.abc import Sequence

from extender.autoscaler.scale_up.estimate import expand
from extender.autoscaler.simulated_cluster import World
from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from tests.extender.autoscaler.scenes import (
    BIG,
    SMALL,
    added,
    failed,
    group_of,
    machine,
    pending,
    planned,
    pod_of,
    pods,
    world_of,
)
from tests.kit.clusters import (
    DRIVER,
    Object,
    claim,
    claim_template,
    device_class,
    local_slice,
    network_slice,
    pod,
    solver,
)
from tests.kit.objects.quotas import limited, quota, selecting


def members(gang: str, size: int, number: int | None = None, **options: object) -> list[Object]:
    """Pods of a gang with a GPU each; as many as its size, if ``number`` does not say otherwise."""
    found = []
    for index in range(size if number is None else number):
        raw = pod_of(f"{gang}-{index}", "gpu", **options)
        raw["metadata"]["annotations"] = {GROUP: gang, GROUP_SIZE: str(size)}
        found.append(raw)
    return found


def world_with(pods: Sequence[Object], *objects: Object) -> World:
    """A world whose cluster knows the pods; a node of group big brings four GPUs, one of small brings one."""
    return world_of((*pods, *objects), BIG, SMALL)


# --- gangs --------------------------------------------------------------------------------------------------


def test_a_gang_gets_nodes_for_all_of_its_pods() -> None:
    gang = members("train", 6)
    plan = planned(world_with(gang), gang, group_of("big"))
    assert ([len(node) for node in added(plan)["big"]], failed(plan)) == ([4, 2], {})


def test_a_gang_whose_pods_are_not_all_there_gets_no_node() -> None:
    gang = members("train", 4, 3)
    plan = planned(world_with(gang), [*gang, *pods(1, "gpu")], group_of("big"))
    assert added(plan) == {"big": [["p0"]]}
    assert set(failed(plan).values()) == {"waiting for the pods of group train: 3 of 4 are there"}


def test_a_gang_that_no_groups_together_can_serve_whole_gets_no_node() -> None:
    gang = members("train", 6)
    plan = planned(world_with(gang), [*gang, *pods(1, "gpu")], group_of("big", 1), group_of("small", 1))
    assert sum(len(nodes) for nodes in added(plan).values()) == 1
    assert set(failed(plan)) == {f"train-{index}" for index in range(6)}
    assert set(failed(plan).values()) == {
        "waiting for devices for 6 pods of group train together: 5 of 6 get devices on the nodes that can be added"
    }


def test_groups_serve_a_gang_together() -> None:
    gang = members("train", 5)
    plan = planned(world_with(gang), gang, group_of("big", 1), group_of("small", 1))
    assert ({name: len(nodes) for name, nodes in added(plan).items()}, failed(plan)) == ({"big": 1, "small": 1}, {})


def test_pods_of_the_gang_that_nobody_asked_about_count() -> None:
    """An autoscaler names the pods that it has put on new nodes in its own simulation."""
    gang = members("train", 6)
    found = expand(world_with(gang), pending(*gang[:4]), [group_of("big", 1)], solver())
    assert found.groups == ()
    assert "4 of 6 get devices" in found.reason
    whole = expand(world_with(gang), pending(*gang[:4]), [group_of("big", 2)], solver())
    assert (whole.groups, whole.reason.partition(";")[0]) == (("big",), "pods that get a place: 6 of 6")


def test_pods_of_the_gang_that_find_a_node_that_is_there_need_no_new_one() -> None:
    gang = members("train", 6)
    world = world_with(gang, machine("old"), local_slice("old", 2))
    found = expand(world, pending(*gang[:4]), [group_of("big", 1)], solver())
    assert (found.groups, found.reason.partition(";")[0]) == (("big",), "pods that get a place: 4 of 4")


def test_of_two_gangs_that_only_fit_alone_the_more_important_one_gets_nodes() -> None:
    low, high = members("low", 3, priority=1), members("high", 3, priority=2)
    plan = planned(world_with([*low, *high]), [*low, *high], group_of("big", 1))
    assert added(plan) == {"big": [["high-0", "high-1", "high-2"]]}
    assert set(failed(plan)) == {"low-0", "low-1", "low-2"}


def test_a_gang_that_waits_for_a_device_of_the_network_gets_no_node() -> None:
    gang = members("train", 2)
    plan = planned(world_of((*gang, network_slice("net"))), gang, group_of("g"))
    assert (added(plan), set(failed(plan))) == ({}, {"train-0", "train-1"})


def test_a_gang_that_is_not_known_yet_is_what_was_sent() -> None:
    gang = members("train", 2)
    assert added(planned(world_with(()), gang, group_of("big"))) == {"big": [["train-0", "train-1"]]}
    assert added(planned(world_with(()), gang[:1], group_of("big"))) == {}


# --- quotas -------------------------------------------------------------------------------------------------


def test_the_pods_of_a_plan_count_together_against_their_quota() -> None:
    plan = planned(world_of((quota(),), BIG), pods(5, "gpu"), group_of("big"))
    assert added(plan) == {"big": [["p0", "p1"]]}
    assert failed(plan) == dict.fromkeys(["p2", "p3", "p4"], "device quota gold: limit gpu allows 2 devices")


def test_what_the_namespace_has_counts_too() -> None:
    held = claim("held", allocated=["old/gpu-0"], at="old")
    plan = planned(world_of((quota(), machine("old"), local_slice("old"), held), BIG), pods(2, "gpu"), group_of("big"))
    assert (added(plan), set(failed(plan))) == ({"big": [["p0"]]}, {"p1"})


def test_the_more_important_pod_gets_what_is_left_of_a_quota() -> None:
    asked = [pod_of("low", "gpu", priority=1), pod_of("high", "gpu", priority=2)]
    plan = planned(world_of((quota(limited(devices=1)),), BIG), asked, group_of("big"))
    assert (added(plan), set(failed(plan))) == ({"big": [["high"]]}, {"low"})


def test_a_quota_that_selects_devices_counts_those_of_the_new_nodes() -> None:
    limit = selecting(f'device.driver == "{DRIVER}"', devices=3)
    plan = planned(world_of((quota(limit),), BIG), pods(6, "gpu"), group_of("big"))
    assert sum(len(node) for node in added(plan)["big"]) == 3
    assert len(failed(plan)) == 3


def test_another_namespace_has_a_quota_of_its_own() -> None:
    other = pod_of("other", "gpu")
    other["metadata"]["namespace"] = "other"
    template = claim_template()
    template["metadata"]["namespace"] = "other"
    plan = planned(world_of((quota(), template), BIG), [*pods(3, "gpu"), other], group_of("big"))
    assert sorted(added(plan)["big"][0]) == ["other", "p0", "p1"]


def test_a_quota_counts_the_devices_of_extended_resources() -> None:
    served = device_class("ext", selectors=[f'device.driver == "{DRIVER}"'], extended="example.com/gpu")
    asked = [pod(f"p{index}", resources={"example.com/gpu": "1"}) for index in range(4)]
    world = world_of((served, quota(limited("ext", devices=3))), BIG)
    plan = planned(world, asked, group_of("big", cpu="8"))
    assert (len(added(plan)["big"][0]), len(failed(plan))) == (3, 1)
