"""Plans: which nodes to add for which pods, and which pods no node would help."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Features
from extender.answers.audit import audit_snapshot
from extender.autoscaler.scale_up.estimate import AT_LIMIT, NO_GROUPS, estimate, expand
from extender.autoscaler.scale_up.new_nodes import Filling, NewNodes, PodShape
from extender.autoscaler.scale_up.plan import EXPANDERS, NodeDemand, NodeGroup, PendingPod, ScaleUpPlan, least_waste
from extender.autoscaler.simulated_cluster import World
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import GATE, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import No
from extender.framework.pods.claims import PodClaims, claims_of
from extender.kube.api import RawObject
from extender.planning.node_room import stranded_devices
from extender.planning.planner import Planner, as_planned
from extender.planning.templates import Catalog, Supply, load_templates
from tests.extender.autoscaler.scenes import (
    BIG,
    GROUP,
    SMALL,
    added,
    failed,
    group_of,
    machine,
    made_up,
    node_template,
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
    parsed,
    pod,
    request,
    solver,
)
from tests.kit.objects.quotas import quota

# --- how many -----------------------------------------------------------------------------------------------


def test_nodes_are_filled_one_after_the_other() -> None:
    plan = planned(world_of((), BIG), pods(6, "gpu"), group_of("big"))
    assert added(plan) == {"big": [["p0", "p1", "p2", "p3"], ["p4", "p5"]]}
    assert (failed(plan), plan.groups[0].devices) == ({}, "template big")


def test_a_group_grows_up_to_its_limit() -> None:
    plan = planned(world_of((), SMALL), pods(3, "gpu"), group_of("small", 2))
    assert added(plan) == {"small": [["p0"], ["p1"]]}
    assert failed(plan) == {"p2": f"1 {AT_LIMIT}"}


def test_a_group_that_may_not_grow_helps_nobody() -> None:
    plan = planned(world_of((), SMALL), pods(1, "gpu"), group_of("small", 0))
    assert (added(plan), failed(plan)) == ({}, {"p0": f"1 {AT_LIMIT}"})


def test_a_gated_pod_is_no_demand() -> None:
    """A node for it would stay empty until somebody removes the gate."""
    gated = pod_of("gated", "gpu")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    plan = planned(world_of((), SMALL), [gated, pod_of("free", "gpu")], group_of("small"))
    assert added(plan) == {"small": [["free"]]}
    assert failed(plan) == {"gated": "scheduling gate example.com/quota keeps the pod from its scheduler"}


def test_a_pod_with_our_gate_is_demand() -> None:
    """It has its turn as soon as a node could take it."""
    gated = pod_of("gated", "gpu")
    gated["spec"]["schedulingGates"] = [{"name": GATE}]
    assert added(planned(world_of((), SMALL), [gated], group_of("small"))) == {"small": [["gated"]]}


def test_large_pods_go_first_and_small_ones_fill_up() -> None:
    world = world_of((claim_template("three", request(count=3)),), BIG)
    wanted = [*pods(2, "gpu"), *(pod_of(f"large{index}", "three") for index in range(2))]
    assert added(planned(world, wanted, group_of("big"))) == {"big": [["large0", "p0"], ["large1", "p1"]]}


def test_what_one_group_can_not_take_the_next_one_does() -> None:
    plan = planned(world_of((), BIG, SMALL), pods(6, "gpu"), group_of("small", 2), group_of("big", 1))
    assert {name: [len(node) for node in nodes] for name, nodes in added(plan).items()} == {"small": [1, 1], "big": [4]}


def test_a_pod_over_a_device_quota_needs_no_node() -> None:
    world = world_of((claim_template("three", request(count=3)), quota()), BIG)
    plan = planned(world, [pod_of("large", "three"), *pods(1, "gpu")], group_of("big"))
    assert added(plan) == {"big": [["p0"]]}
    assert failed(plan) == {"large": "device quota gold: limit gpu allows 2 devices"}


def test_no_pods_no_nodes() -> None:
    plan = planned(world_of((), BIG), [], group_of("big"))
    assert (added(plan), failed(plan)) == ({}, {})


def test_no_groups_no_help() -> None:
    assert failed(planned(world_of(), pods(1, "gpu"))) == {"p0": NO_GROUPS}


# --- the two failures that the autoscaler makes without help ------------------------------------------------


def test_the_group_that_has_the_devices_is_chosen_not_one_that_has_not() -> None:
    plan = planned(world_of((), BIG), pods(1, "gpu"), group_of("general"), group_of("big"))
    assert added(plan) == {"big": [["p0"]]}


def test_no_node_is_added_for_a_device_of_the_network_that_is_in_use() -> None:
    held = claim("c", allocated=["net/gpu-0"])
    plan = planned(world_of((network_slice("net"), held)), pods(1, "gpu"), group_of("g"), group_of("h"))
    assert (added(plan), failed(plan)) == ({}, {"p0": "2 no free device for request gpu"})


def test_devices_of_the_network_suffice_for_so_many_pods_however_many_nodes() -> None:
    world = world_of((network_slice("net", 3),))
    groups = (group_of("g", cpu="1"), group_of("h", cpu="1"))
    plan = planned(world, pods(5, "gpu", resources={"cpu": "1"}), *groups)
    assert sum(len(nodes) for nodes in added(plan).values()) == 3
    assert failed(plan) == dict.fromkeys(["p3", "p4"], "2 no free device for request gpu")


def test_a_group_whose_label_reaches_the_network_device_is_chosen() -> None:
    raw = network_slice("net")
    del raw["spec"]["allNodes"]
    requirement = {"key": GROUP, "operator": "In", "values": ["east"]}
    raw["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    plan = planned(world_of((raw,)), pods(2, "gpu"), group_of("west"), group_of("east"))
    assert added(plan) == {"east": [["p0"]]}
    assert failed(plan) == {"p1": "1 no device for request gpu, 1 no free device for request gpu"}


# --- claims -------------------------------------------------------------------------------------------------


def test_pods_that_share_a_claim_go_to_one_node_and_take_one_device() -> None:
    world = world_of((claim("shared"),), BIG)
    plan = planned(world, [pod("a", "shared"), pod("b", "shared"), *pods(4, "gpu")], group_of("big"))
    assert sorted(len(node) for node in added(plan)["big"]) == [1, 5]
    (both,) = [node for node in added(plan)["big"] if "a" in node]
    assert "b" in both


def test_a_pod_whose_claim_is_allocated_elsewhere_is_not_helped() -> None:
    world = world_of((machine("a"), local_slice("a"), claim("c", allocated=["a/gpu-0"], at="a")), BIG)
    plan = planned(world, [pod("p", "c")], group_of("big"))
    assert failed(plan) == {"p": "1 claim c is allocated for other nodes"}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (pod_of("p", "nothing"), "claim template nothing does not exist"),
        (pod("p", "missing"), "claim missing does not exist"),
        (pod("p", "bad"), "1 claim ns/bad, request gpu: selector 0: no such key: modle"),
    ],
)
def test_a_pod_that_can_go_nowhere_is_told_why(raw: Object, reason: str) -> None:
    bad = claim("bad", request(selectors=[f'device.attributes["{DRIVER}"].modle == "x"']))
    plan = planned(world_of((bad,), BIG), [raw, pod_of("q", "gpu")], group_of("big"))
    assert (added(plan), failed(plan)) == ({"big": [["q"]]}, {"p": reason})


def test_what_the_session_has_booked_is_in_use() -> None:
    world = world_of((network_slice("net"),))
    (other,) = pending(pod_of("other", "gpu"))
    node = NodeObject(group_of("g").room.node.node)
    booked = world.with_nodes((node,)).with_pod(other.pod, node, solver())
    assert isinstance(booked, World)
    assert added(planned(world, pods(1, "gpu"), group_of("g")))
    assert failed(planned(booked, pods(1, "gpu"), group_of("g"))) == {"p0": "1 no free device for request gpu"}


def test_what_a_real_node_has_is_learned_for_its_group() -> None:
    world = world_of((machine("a", "g"), local_slice("a", 2)), learn=GROUP)
    plan = planned(world, pods(3, "gpu"), group_of("g"))
    assert added(plan) == {"g": [["p0", "p1"], ["p2"]]}
    assert plan.groups[0].devices == "learned from node a"


EXTENDED = device_class("ext", selectors=[f'device.driver == "{DRIVER}"'], extended="example.com/gpu")


def test_extended_resources_are_served_by_devices_or_by_a_plugin() -> None:
    asked = [pod(f"p{index}", resources={"example.com/gpu": "2"}) for index in range(3)]
    world = world_of((EXTENDED,), BIG)
    by_class = planned(world, asked, group_of("big", cpu="8"))
    assert (added(by_class), failed(by_class)) == ({"big": [["p0", "p1"], ["p2"]]}, {})
    by_plugin = planned(
        world, asked, group_of("plugin", node=machine("t", "plugin", **{"cpu": "8", "example.com/gpu": "4"}))
    )
    assert (added(by_plugin), failed(by_plugin)) == ({"plugin": [["p0", "p1"], ["p2"]]}, {})
    capacity = {"status": {"capacity": {"cpu": "8", "example.com/gpu": "4"}}}
    by_capacity = planned(world, asked, group_of("plugin", node=machine("t", "plugin") | capacity))
    assert (added(by_capacity), failed(by_capacity)) == (added(by_plugin), {})
    assert set(failed(planned(world_of((), BIG), asked, group_of("big", cpu="8"))).values()) == {
        "1 insufficient example.com/gpu"
    }


# --- expanders ----------------------------------------------------------------------------------------------

LARGE = node_template("large", 1, capacity={"memory": {"value": "80Gi"}})
TINY = node_template("tiny", 1, capacity={"memory": {"value": "24Gi"}})
CHOICES: dict[str, tuple[str, list[NodeGroup], int, str]] = {
    "the smaller device": ("least-waste", [group_of("large"), group_of("tiny")], 2, "tiny"),
    "fewer devices that stay idle": ("least-waste", [group_of("big"), group_of("small")], 2, "small"),
    "the smaller machine": (
        "least-waste",
        [group_of("big", cpu="64"), group_of("small", cpu="8")],
        1,
        "small",
    ),
    "fewer nodes": ("least-nodes", [group_of("small"), group_of("big")], 4, "big"),
    "the smaller of equally many": ("least-nodes", [group_of("large"), group_of("tiny")], 1, "tiny"),
    "the priority": ("priority", [group_of("tiny"), group_of("large", priority=7)], 1, "large"),
    "least waste of equal priority": ("priority", [group_of("large"), group_of("tiny")], 1, "tiny"),
    "the first of equal ones": ("least-waste", [group_of("small"), group_of("small2")], 1, "small"),
}


@pytest.mark.parametrize(("expander", "groups", "number", "chosen"), CHOICES.values(), ids=CHOICES)
def test_the_expander_chooses(expander: str, groups: list[NodeGroup], number: int, chosen: str) -> None:
    world = world_of((), LARGE, TINY, BIG, SMALL, node_template("small2"))
    assert set(added(planned(world, pods(number, "gpu"), *groups, expander=expander))) == {chosen}


def test_pods_without_devices_do_not_go_to_nodes_with_devices() -> None:
    plan = planned(world_of((), BIG), pods(2), group_of("big", cpu="8"), group_of("g", cpu="8"))
    assert set(added(plan)) == {"g"}


def test_a_group_of_lower_priority_takes_what_the_higher_one_can_not() -> None:
    groups = (group_of("small", 1, priority=2), group_of("big", priority=1))
    plan = planned(world_of((), BIG, SMALL), pods(3, "gpu"), *groups, expander="priority")
    assert {name: sum(map(len, nodes)) for name, nodes in added(plan).items()} == {"small": 1, "big": 2}


# --- effort -------------------------------------------------------------------------------------------------


def _solves(number: int, groups: int) -> int:
    """How often the clock was read for a plan: once for each pod that is tried on a node, and inside of each solve."""
    reads = count()
    counting = replace(solver(), clock=lambda: float(next(reads)))
    names = [f"g{index}" for index in range(groups)]
    world = world_of((), *(node_template(name, 4) for name in names))
    estimate(
        world, pending(*pods(number, "gpu")), [group_of(n, 1000) for n in names], EXPANDERS["least-waste"], counting
    )
    return next(reads)


def test_equal_pods_cost_the_solves_of_one_node_for_each_group() -> None:
    assert _solves(400, 5) == _solves(40, 5)
    assert _solves(40, 10) < 3 * _solves(40, 5)


def _solves_of_zones(number: int, *objects: Object) -> int:
    """How often the clock was read for a plan with this number of groups that share a node template."""
    reads = count()
    counting = replace(solver(), clock=lambda: float(next(reads)))
    groups = [
        replace(group_of("big", 1, node=machine("template", "big", cpu="8", pods="110")), name=f"zone-{index}")
        for index in range(number)
    ]
    plan = estimate(world_of(objects, BIG), pending(*pods(4, "gpu")), groups, EXPANDERS["least-waste"], counting)
    assert sum(len(group.nodes) for group in plan.groups) == 1
    return next(reads)


def test_groups_of_one_machine_type_cost_the_solves_of_one_group() -> None:
    assert _solves_of_zones(5) == _solves_of_zones(1)


def test_groups_are_judged_each_if_a_pool_of_the_network_may_tell_them_apart() -> None:
    assert _solves_of_zones(5, network_slice("net", 1)) > _solves_of_zones(1, network_slice("net", 1))


def _reads_of_kinds(number: int, group: Object) -> int:
    """How often a plan reads the clock, for pods of this number of kinds; each kind gets a node of its own."""
    kinds = [claim_template(f"kind-{index}", request(f"request-{index}")) for index in range(number)]
    asked = [pod_of(f"p{index}", f"kind-{index}") for index in range(number)]
    reads = count()
    counting = replace(solver(), clock=lambda: float(next(reads)))
    groups = [group_of(group["name"], number)]
    plan = estimate(world_of(kinds, group), pending(*asked), groups, EXPANDERS["least-waste"], counting)
    assert [len(node) for node in plan.groups[0].nodes] == [1] * number
    return next(reads)


def test_nodes_without_free_devices_are_not_asked() -> None:
    assert _reads_of_kinds(40, SMALL) == 4 * _reads_of_kinds(10, SMALL)


def test_pods_of_many_kinds_all_get_a_place_though_not_each_is_tried_on_each_node() -> None:
    group = node_template("one-is-sick", 2)
    group["slices"][0]["devices"][1]["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
    assert 60 * 5 < _reads_of_kinds(60, group) < 60 * 60 * 2


def test_time_that_is_up_ends_it() -> None:
    with pytest.raises(TimeoutError):
        planned(world_of((), BIG), pods(1, "gpu"), group_of("big"), by=solver().within(-1.0))


# --- laws ---------------------------------------------------------------------------------------------------

_KINDS = ("gpu", "two", "net", "shared", "plain")
_OBJECTS = (
    claim_template("two", request(count=2)),
    claim_template("net", request(device_class="net")),
    claim("shared"),
    device_class("net", selectors=['device.driver == "net.example.com"']),
)


def _net(devices: int) -> Object:
    raw = network_slice("net", devices)
    raw["spec"]["driver"] = "net.example.com"
    return raw


def _of_kind(number: int, kind: str, cpu: int) -> Object:
    templates = [kind] if kind in {"gpu", "two", "net"} else []
    names = ["shared"] if kind == "shared" else []
    raw = pod(f"p{number}", *names, resources={"cpu": str(cpu)})
    raw["spec"]["resourceClaims"] += [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    return raw


@given(
    wanted=st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(1, 3)), max_size=14),
    network=st.integers(0, 3),
    limits=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    expander=st.sampled_from(sorted(EXPANDERS)),
)
def test_a_plan_can_be_carried_out_pod_by_pod(
    wanted: list[tuple[str, int]], network: int, limits: tuple[int, int], expander: str
) -> None:
    world = world_of((*_OBJECTS, *([_net(network)] if network else [])), BIG, SMALL)
    asked = [_of_kind(number, *each) for number, each in enumerate(wanted)]
    groups = (group_of("big", limits[0], cpu="4"), group_of("small", limits[1], cpu="3"))
    plan = planned(world, asked, *groups, expander=expander)
    placed = [pod.name for group in plan.groups for node in group.nodes for pod in node]
    assert sorted([*placed, *failed(plan)]) == sorted(raw["metadata"]["name"] for raw in asked)
    by_name = {each.pod.name: each for each in pending(*asked)}
    for group, room in zip(plan.groups, groups, strict=True):
        assert len(group.nodes) <= room.limit
        for number, names in enumerate(group.nodes):
            assert names
            of_group = room.room.node
            node = replace(of_group, node=replace(of_group.node, name=f"{group.name}-{number}"))
            for each in names:
                after = world.with_nodes((node,)).with_pod(by_name[each.name].pod, node, solver())
                assert not isinstance(after, No), (each.name, after.reason)
                world = after
            cpus = sum(dict(by_name[each.name].demand.amounts)["cpu"] for each in names)
            assert cpus <= (room.room.amounts or {})["cpu"]
    assert audit_snapshot(world.snapshot) == ()


def test_devices_that_take_cpu_of_a_new_node_count_for_all_pods_on_it() -> None:
    takes: RawObject = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}}
    world = world_of((), node_template("new", 4, **takes), counts_resources=True)
    asked = pods(4, "gpu", resources={"cpu": "1"})
    for each in asked:
        each["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    counting = replace(solver(), features=replace(Features(), node_resources=True))
    found = planned(world, asked, group_of("new", cpu="8"), by=counting)
    assert added(found) == {"new": [["p0", "p1"], ["p2", "p3"]]}


# States of new nodes that are remembered are those that placing the pods one by one leads to.


EXAMPLES = int(os.environ.get("EXPANSION_EXAMPLES", "25"))
SIZE = f"device.attributes['{DRIVER}'].size"
HAS_SIZE = f"'size' in device.attributes['{DRIVER}']"
SELECTORS = {
    "any": (),
    "from-1": (f"{HAS_SIZE} && {SIZE} >= 1",),
    "over-0": (HAS_SIZE, f"{SIZE} > 0"),
    "size-2": (f"{HAS_SIZE} && {SIZE} == 2",),
    "fails": (f"{SIZE} >= 1",),
}
"""Two of them mean the same, and one fails on a device without a size."""

KINDS = [(name, number) for name in SELECTORS for number in (1, 2)]
TEMPLATES = {f"{name}-{number}": request(count=number, selectors=SELECTORS[name]) for name, number in KINDS}
OBJECTS = [claim_template(name, each) for name, each in TEMPLATES.items()]


def brought(sizes: list[int | None]) -> Object:
    """A node template with a device of each size; None: a device without a size."""
    devices = [
        {"name": f"gpu-{index}", "attributes": {} if size is None else {"size": {"int": size}}}
        for index, size in enumerate(sizes)
    ]
    return {
        "name": "new",
        "labels": {"example.com/group": "new"},
        "slices": [{"driver": DRIVER, "devices": devices}],
    }


def shaped(raw: Object, snapshot: Snapshot) -> tuple[Pod, PodShape, Snapshot]:
    """A pod with its claims, and its shape: pods of one template want the same."""
    pod, snapshot = as_planned(parsed(raw), snapshot)
    claims = claims_of(pod, snapshot)
    assert isinstance(claims, PodClaims)
    (template,) = (each.template_name or "" for each in pod.claims)
    specs = tuple(each.claim.spec for each in claims.pending)
    number, form = list(TEMPLATES).index(template), int(template[-1])
    return pod, PodShape(NodeDemand(()), None, number, specs, form, least=0, size=(), is_alone=False), snapshot


def reason(found: Filling | Snapshot | No) -> str:
    """Why a pod is not placed, without its name; empty if it is placed."""
    return re.sub(r"/p\d+/", "/p/", found.reason.in_words()) if isinstance(found, No) else ""


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=5),
    st.lists(st.lists(st.sampled_from(sorted(TEMPLATES)), max_size=5), min_size=1, max_size=6),
    st.booleans(),
)
def test_a_remembered_state_is_the_one_that_placing_leads_to(
    sizes: list[int | None], fills: list[list[str]], has_network: bool
) -> None:
    world = world_of([*OBJECTS, *([network_slice("net", 2)] if has_network else [])], brought(sizes))
    new, snapshot, numbers = NewNodes(world, [group_of("new")], solver(), differ=False), world.snapshot, count()
    asked: list[list[tuple[Pod, PodShape]]] = []
    for fill in fills:
        asked.append([])
        for template in fill:
            pod, shape, snapshot = shaped(pod_of(f"p{next(numbers)}", template), snapshot)
            asked[-1].append((pod, shape))
    new.begin(snapshot)
    planner = Planner.remembering(solver())
    for batch in asked:
        filling = new.empty(0, 0, snapshot)
        placed = filling.snapshot
        for pod, shape in batch:
            found, expected = new.filled(filling, shape, pod), planner.place(pod, filling.node, placed)
            assert reason(found) == reason(expected)
            if not (isinstance(found, No) or isinstance(expected, No)):
                filling, placed = found, expected
            assert filling.snapshot.usage == placed.usage


def test_selectors_that_match_the_same_devices_are_solved_once() -> None:
    """A device without a size fails one of them, so that one is not compared."""
    world = world_of(OBJECTS, brought([None, 0, 1, 2]))
    snapshot = world.snapshot
    names = ("from-1-1", "over-0-1", "size-2-1", "fails-1")
    new = NewNodes(world, [group_of("new")], solver(), differ=False)
    asked = []
    for name in names:
        pod, shape, snapshot = shaped(pod_of(f"p-{name}", name), snapshot)
        asked.append((pod, shape))
    new.begin(snapshot)
    empty = new.empty(0, 0, snapshot)
    for pod, shape in asked:
        new.filled(empty, shape, pod)
    assert len(empty.after) == 3


# Which group to expand next: the rules, and that a chain of answers needs no more nodes than a plan.


CLAIMS = [claim_template(f"gpu-{count}", request(count=count)) for count in (1, 2, 3)]
SIZES = {"small": 1, "middle": 3, "big": 8}
WORLD = world_of(CLAIMS, *(node_template(name, devices) for name, devices in SIZES.items()))


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
