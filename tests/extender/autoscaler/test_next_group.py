"""Which group to expand next: the rules, and that a chain of answers needs no more nodes than a plan."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Features
from extender.autoscaler.scale_up.estimate import estimate, expand
from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod, ScaleUpPlan, least_waste
from extender.autoscaler.simulated_cluster import World
from extender.planning.device_counts import stranded_devices
from extender.planning.templates.catalog import Catalog, Supply
from extender.planning.templates.node_templates import load_templates
from tests.extender.autoscaler.scenes import group_of, made_up, node_template, pending, pod_of, world_of
from tests.kit.clusters import claim_template, request, solver

CLAIMS = [claim_template(f"gpu-{count}", request(count=count)) for count in (1, 2, 3)]
SIZES = {"small": 1, "middle": 3, "big": 8}
WORLD = world_of(CLAIMS, *(node_template(name, devices) for name, devices in SIZES.items()))
EXAMPLES = int(os.environ.get("EXPANSION_EXAMPLES", "25"))


def waiting(*counts: int, groups: frozenset[str] | None = None, cpu: str = "1") -> tuple[PendingPod, ...]:
    """A pod for each number of devices; 0: a pod without claims."""
    raw = [pod_of(f"p{index}", *([f"gpu-{count}"] if count else [])) for index, count in enumerate(counts)]
    for each in raw:
        each["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return tuple(replace(each, groups=groups) for each in pending(*raw))


def groups_of(*names: str, limit: int = 20) -> tuple[NodeGroup, ...]:
    return tuple(group_of(name, limit, cpu="8", memory="8Gi", pods="110") for name in names)


CASES: dict[str, tuple[Sequence[int], dict[str, int], tuple[str, ...]]] = {
    "the group that serves most": ((3, 3, 1), {"small": 9, "big": 9}, ("big",)),
    "no device is stranded": ((1,), {"small": 9, "big": 9}, ("small",)),
    "fewer nodes for the whole plan": ((1, 1, 1, 1, 1, 1, 1, 1), {"small": 9, "big": 9}, ("big",)),
    "only as many nodes as would be added": ((1, 1, 1), {"small": 1, "middle": 1}, ("middle",)),
    "a group that may not grow helps nobody": ((1,), {"small": 0, "big": 1}, ("big",)),
    "no group helps": ((3,), {"small": 9}, ()),
    "nothing is known of one": ((3,), {"small": 9, "other": 9}, ("other",)),
    "pods without devices": ((0, 0), {"big": 1, "other": 1}, ("other",)),
    "no pods": ((), {"big": 1}, ()),
    "no groups": ((1,), {}, ()),
}


@pytest.mark.parametrize(("counts", "limits", "chosen"), CASES.values(), ids=CASES)
def test_the_group_is_chosen(counts: Sequence[int], limits: dict[str, int], chosen: tuple[str, ...]) -> None:
    groups = [groups_of(name, limit=limit)[0] for name, limit in limits.items()]
    assert expand(WORLD, waiting(*counts), groups, solver()).groups == chosen


def test_a_pod_is_only_for_the_groups_that_may_take_it() -> None:
    pods = waiting(1, 1, 1, 1, 1, 1, 1, 1, groups=frozenset({"small"}))
    assert expand(WORLD, pods, groups_of("small", "big"), solver()).groups == ("small",)


def test_without_time_nothing_is_answered() -> None:
    with pytest.raises(TimeoutError):
        expand(WORLD, waiting(1), groups_of("small"), solver().within(float("-inf")))


def test_a_device_that_can_be_had_in_parts_is_stranded_once() -> None:
    """The template has two GPUs, each whole or in halves, and two NICs."""
    templates = load_templates(Path("config/node-templates.yaml").read_text(), file="node-templates.yaml")
    world = replace(WORLD, supply=Supply(Catalog(templates), WORLD.snapshot))
    node = {"metadata": {"name": "new", "labels": {"example.com/machine": "falcon"}}}
    snapshot = world.with_nodes(made_up(node)).snapshot
    assert stranded_devices(snapshot, "new", Features()) == 4
    assert stranded_devices(snapshot.with_node(made_up({"metadata": {"name": "bare"}})[0]), "bare", Features()) == 0


def chain(world: World, pods: Sequence[PendingPod], groups: Sequence[NodeGroup]) -> tuple[int, int]:
    """Nodes that are added, and pods without a place in the end, if an autoscaler follows answer after answer."""
    nodes = 0
    while pods and (chosen := expand(world, pods, groups, solver()).groups):
        plan = _alone(world, pods, [group for group in groups if group.name in chosen])
        nodes += sum(len(group.nodes) for group in plan.groups)
        left = {pod.uid for pod, _ in plan.failed}
        pods = [each for each in pods if each.pod.uid in left]
    return nodes, len(pods)


def _alone(world: World, pods: Sequence[PendingPod], groups: Sequence[NodeGroup]) -> ScaleUpPlan:
    return estimate(world, pods, groups, least_waste, solver())


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.sampled_from([0, 1, 1, 2, 3]), min_size=1, max_size=14),
    st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=3, unique=True),
    st.sampled_from(["1", "3"]),
)
def test_a_chain_of_answers_needs_no_more_nodes_than_estimate(counts: list[int], names: list[str], cpu: str) -> None:
    pods, groups = waiting(*counts, cpu=cpu), groups_of(*names)
    plan = estimate(WORLD, pods, groups, least_waste, solver())
    nodes, failed = chain(WORLD, pods, groups)
    assert failed <= len(plan.failed)
    assert failed < len(plan.failed) or nodes <= sum(len(group.nodes) for group in plan.groups)
