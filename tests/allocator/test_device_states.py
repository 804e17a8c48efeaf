"""The states of devices: what is shown free can be handed out, and what is in the way of the rest."""

import os
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from immutables import Map

from allocator import (
    ClassMembers,
    CounterConsumption,
    Device,
    DeviceClass,
    DeviceTaint,
    Features,
    Inventory,
    Limits,
    Node,
    Placement,
    SearchLimitError,
    Slice,
    TaintRule,
    Usage,
)
from allocator.checks import DeviceState, TaintRules
from allocator.device_states import Vantages
from allocator.model.devices import Capacity, RequestPolicy, ValidRange
from allocator.node_selectors import NODE_OPERATIONS_FEATURE
from allocator.search import SearchBudget, TimedSelectors
from allocator.usage import DeviceUsage
from tests.allocator.device_worlds import ZONE_A, DeviceWorld, device_worlds, lone_slices
from tests.allocator.worlds import DRIVER, HERE, NODE, SELECTORS, device, held, pool, pool_id, q, shared, ticks

EXAMPLES: Final = int(os.environ.get("STATE_EXAMPLES", "100"))
"""Clusters that each law is tried on; `make test-laws` tries 10,000."""


@settings(max_examples=EXAMPLES)
@given(device_worlds() | lone_slices())
def test_a_device_is_free_exactly_when_nothing_holds_it_and_a_claim_for_it_alone_gets_it(world: DeviceWorld) -> None:
    for _, each, state, _ in world.states():
        is_held = not world.usage.device(each.id).is_free
        assert (state is DeviceState.FREE) == (not is_held and world.gives(each)), each


@settings(max_examples=EXAMPLES)
@given(device_worlds() | lone_slices())
def test_a_device_is_shared_exactly_when_something_holds_it_and_another_claim_gets_a_share(world: DeviceWorld) -> None:
    for _, each, state, _ in world.states():
        is_held = not world.usage.device(each.id).is_free
        assert (state is DeviceState.SHARED) == (is_held and world.gives_a_share(each)), each


@settings(max_examples=EXAMPLES)
@given(lone_slices())
def test_a_pool_that_is_judged_without_its_vantages_has_the_same_states(world: DeviceWorld) -> None:
    nothing = TaintRule("nothing", DeviceTaint("watched", "None"))  # keeps nobody off, and no pool is plain with it
    judged = replace(world, rules=TaintRules.of([*world.rules.rules, nothing]))
    assert [state for _, _, state, _ in world.states()] == [state for _, _, state, _ in judged.states()]


LONE: Final = pool(device("gpu-0", capacity={"memory": Capacity(q("80Gi"))}), device("gpu-1"))[0]
_NEGATIVE: Final = {"memory": Capacity(q("-1"))}
_WITH_POLICY: Final = {"memory": Capacity(q("1"), RequestPolicy())}

SLICES: Final = {
    "plain": [LONE],
    "two slices": [LONE, replace(LONE, name="another")],
    "incomplete": [replace(LONE, slice_count=2)],
    "all nodes": [replace(LONE, placement=Placement(all_nodes=True))],
    "gone": [replace(LONE, placement=Placement("node-2"))],
    "operations": [replace(LONE, skip_node_operations=("*",))],
    "twice": [replace(LONE, devices=(*LONE.devices, LONE.devices[0]))],
    "taint": [replace(LONE, devices=(device("gpu-0", taints=(DeviceTaint("sick", "NoSchedule"),)),))],
    "bound": [replace(LONE, devices=(device("gpu-0", binding_conditions=()),))],
    "negative": [replace(LONE, devices=(device("gpu-0", capacity=_NEGATIVE),))],
    "policy": [replace(LONE, devices=(device("gpu-0", capacity=_WITH_POLICY),))],
}


@pytest.mark.parametrize("name", SLICES)
def test_only_a_plain_pool_is_judged_without_its_vantages(name: str) -> None:
    (found,) = Inventory.of(SLICES[name]).pools.values()
    names = found.node_names
    nodes = [NODE] if names is None or NODE.name in names else []
    assert Vantages(found, nodes, Features()).is_plain == (name == "plain")


@settings(max_examples=EXAMPLES)
@given(device_worlds() | lone_slices())
def test_what_no_claim_can_have_is_told_unless_its_holders_tell_it(world: DeviceWorld) -> None:
    told = {DeviceState.BLOCKED, DeviceState.TAINTED, DeviceState.UNUSABLE}
    for origin, each, state, states in world.states():
        hindrance = states.hindrance(origin, each, state)
        assert bool(hindrance.text) >= (state in told), each
        assert all(not world.usage.device(blocker).is_free for blocker in hindrance.blockers), each


# --- one device, one thing in the way -----------------------------------------------------------------------

PLAIN = device("gpu-0")
SHAREABLE = device("gpu-0", capacity={"memory": shared("10", default=q("4"))}, allow_multiple_allocations=True)
HALVES = [device(name, draws={"gpu": {"slices": 2}}) for name in ("gpu-0", "gpu-1", "gpu-2")]
SICK = DeviceTaint("sick", "NoSchedule")
RULE = TaintRules.of([TaintRule("maintenance", DeviceTaint("broken", "NoExecute", "yes"), device="gpu-0")])
NOTHING = Features(
    consumable_capacity=False, partitionable_devices=False, binding_conditions=False, device_taints=False
)


REPLACED = [
    Slice("old", pool_id(), 1, placement=HERE, devices=(PLAIN,)),
    Slice("new", pool_id(), 2, placement=Placement("node-2"), devices=(replace(PLAIN, taints=(SICK,)),)),
]
"""Slices of two generations, on a node each."""


def cut(*devices: Device, slices: int = 4) -> list[Slice]:
    return pool(*devices, counters={"gpu": {"slices": slices}})


def in_groups(*groups: str) -> CounterConsumption:
    return CounterConsumption("gpu", {"slices": q("1")}, groups)


def shares(memory: int, holders: int = 0) -> Usage:
    """A share of ``gpu-0`` with so much memory."""
    used = DeviceUsage(holders, frozenset({"share"}), Map(memory=memory * 10**9))
    return Usage(Map({pool_id(): Map({"gpu-0": used})}))


class Case(NamedTuple):
    """A cluster, what ``gpu-0`` is in it, what is said of it, and the devices that block it."""

    name: str
    world: DeviceWorld
    state: DeviceState
    text: str = ""
    blockers: tuple[str, ...] = ()


CASES = [
    Case("nothing", DeviceWorld(pool(PLAIN)), DeviceState.FREE),
    Case("held", DeviceWorld(pool(PLAIN), usage=held("gpu-0")), DeviceState.ALLOCATED),
    Case("held twice", DeviceWorld(pool(PLAIN), usage=Usage.of([PLAIN.id, PLAIN.id])), DeviceState.CLASH),
    # counters
    Case("no counter in use", DeviceWorld(cut(*HALVES)), DeviceState.FREE),
    Case("enough left", DeviceWorld(cut(*HALVES), usage=held("gpu-1")), DeviceState.FREE),
    Case(
        "counters used up",
        DeviceWorld(cut(*HALVES), usage=held("gpu-1", "gpu-2")),
        DeviceState.BLOCKED,
        "0 of 4 left of counter gpu/slices, 2 needed",
        ("gpu-1", "gpu-2"),
    ),
    Case("a held partition", DeviceWorld(cut(*HALVES), usage=held("gpu-0", "gpu-1")), DeviceState.ALLOCATED),
    Case(
        "more than the counter has",
        DeviceWorld(cut(*HALVES, slices=1)),
        DeviceState.UNUSABLE,
        "1 of 1 left of counter gpu/slices, 2 needed",
    ),
    Case(
        "groups that exclude each other",
        DeviceWorld(
            cut(
                replace(PLAIN, consumes_counters=(in_groups("a"),)),
                replace(device("gpu-1"), consumes_counters=(in_groups("b"),)),
            ),
            usage=held("gpu-1"),
        ),
        DeviceState.BLOCKED,
        "its compatibility groups exclude it while other devices are in use",
        ("gpu-1",),
    ),
    Case(
        "partitions, and the gate off",
        DeviceWorld(pool(HALVES[0]), features=NOTHING),
        DeviceState.UNUSABLE,
        "the feature gate DRAPartitionableDevices is off",
    ),
    Case(
        "groups, and the gate off",
        DeviceWorld(cut(replace(PLAIN, consumes_counters=(in_groups("a"),))), features=Features()),
        DeviceState.UNUSABLE,
        "the feature gate DRADeviceCompatibilityGroups is off",
    ),
    # shares
    Case("room for a share", DeviceWorld(pool(SHAREABLE), usage=shares(4)), DeviceState.SHARED, "6 of 10 memory left"),
    Case(
        "less than the default",
        DeviceWorld(pool(SHAREABLE), usage=shares(9)),
        DeviceState.SHARED,
        "1 of 10 memory left",
    ),
    Case("no room", DeviceWorld(pool(SHAREABLE), usage=shares(10)), DeviceState.ALLOCATED, "0 of 10 memory left"),
    Case("too much held", DeviceWorld(pool(SHAREABLE), usage=shares(11)), DeviceState.CLASH, "-1 of 10 memory left"),
    Case(
        "a share and the whole",
        DeviceWorld(pool(SHAREABLE), usage=shares(4, holders=1)),
        DeviceState.CLASH,
        "0 of 10 memory left",
    ),
    Case(
        "less than the policy allows",
        DeviceWorld(
            pool(
                device(
                    "gpu-0",
                    capacity={"memory": shared("10", default=q("4"), valid_range=ValidRange(q("2")))},
                    allow_multiple_allocations=True,
                )
            ),
            usage=shares(9),
        ),
        DeviceState.ALLOCATED,
        "1 of 10 memory left",
    ),
    Case(
        "a default of more than there is",
        DeviceWorld(
            pool(device("gpu-0", capacity={"memory": shared("2", default=q("4"))}, allow_multiple_allocations=True))
        ),
        DeviceState.UNUSABLE,
        "the default amount of memory is more than there is",
    ),
    # taints
    Case("a taint", DeviceWorld(pool(replace(PLAIN, taints=(SICK,)))), DeviceState.TAINTED, "sick:NoSchedule"),
    Case(
        "a taint that informs",
        DeviceWorld(pool(replace(PLAIN, taints=(replace(SICK, effect="None"),)))),
        DeviceState.FREE,
    ),
    Case(
        "a taint, and the gate off",
        DeviceWorld(pool(replace(PLAIN, taints=(SICK,))), features=NOTHING),
        DeviceState.FREE,
    ),
    Case(
        "a taint and a rule",
        DeviceWorld(pool(replace(PLAIN, taints=(SICK,))), rules=RULE),
        DeviceState.TAINTED,
        "sick:NoSchedule, broken=yes:NoExecute by DeviceTaintRule maintenance",
    ),
    Case(
        "a taint on a share",
        DeviceWorld(pool(replace(SHAREABLE, taints=(SICK,))), usage=shares(4)),
        DeviceState.TAINTED,
        "sick:NoSchedule",
    ),
    # pools and nodes
    Case(
        "slices are missing",
        DeviceWorld(pool(PLAIN, slice_count=2)),
        DeviceState.UNUSABLE,
        "1 of 2 slices are there",
    ),
    Case(
        "held in a pool that is not complete",
        DeviceWorld(pool(PLAIN, slice_count=2), usage=held("gpu-0")),
        DeviceState.ALLOCATED,
    ),
    Case("no such node", DeviceWorld(pool(PLAIN), nodes=()), DeviceState.UNUSABLE, "node node-1 is not known"),
    Case(
        "a selector that no node matches",
        DeviceWorld(pool(PLAIN, placement=Placement(node_selector=ZONE_A))),
        DeviceState.UNUSABLE,
        "no known node reaches it",
    ),
    Case(
        "an older generation on another node",
        DeviceWorld(REPLACED, nodes=(NODE, Node("node-2"))),
        DeviceState.TAINTED,
        "sick:NoSchedule",
    ),
    Case(
        "an older generation on the only node",
        DeviceWorld(REPLACED),
        DeviceState.UNUSABLE,
        "node node-2 is not known",
    ),
    Case(
        "a node of its own that is gone",
        DeviceWorld(
            pool(
                replace(PLAIN, placement=Placement("gone")),
                replace(device("gpu-1"), placement=HERE),
                placement=None,
                per_device_placement=True,
            )
        ),
        DeviceState.UNUSABLE,
        "node gone is not known",
    ),
    Case(
        "a node without the feature",
        DeviceWorld(pool(PLAIN, skip_node_operations=("*",))),
        DeviceState.UNUSABLE,
        f"no node that reaches it declares {NODE_OPERATIONS_FEATURE}",
    ),
    Case(
        "one node with the feature",
        DeviceWorld(
            pool(PLAIN, skip_node_operations=("*",), placement=Placement(all_nodes=True)),
            nodes=(NODE, Node("node-2", {}, frozenset({NODE_OPERATIONS_FEATURE}))),
        ),
        DeviceState.FREE,
    ),
    Case(
        "node operations, and the gate off",
        DeviceWorld(pool(PLAIN, skip_node_operations=("*",)), features=NOTHING),
        DeviceState.UNUSABLE,
        f"the feature gate {NODE_OPERATIONS_FEATURE} is off",
    ),
    Case(
        "binding conditions, and the gate off",
        DeviceWorld(pool(replace(PLAIN, binding_conditions=("ready",))), features=NOTHING),
        DeviceState.UNUSABLE,
        "the feature gate DRADeviceBindingConditions is off",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_state_of_a_device_and_what_is_in_the_way(case: Case) -> None:
    found = {each.id.device: (origin, each, state, states) for origin, each, state, states in case.world.states()}
    origin, each, state, states = found["gpu-0"]
    hindrance = states.hindrance(origin, each, state)
    assert state is case.state
    assert hindrance.text == case.text
    assert tuple(blocker.device for blocker in hindrance.blockers) == case.blockers


def test_capacities_are_told_with_what_is_left_and_all_of_it() -> None:
    for usage, left in ((Usage(), "10"), (shares(4), "6"), (held("gpu-0"), "0")):
        for _, each, _, states in DeviceWorld(pool(SHAREABLE), usage=usage).states():
            assert list(states.capacities(each)) == [("memory", left, "10")]


# --- the devices of a class ---------------------------------------------------------------------------------


LEFT_OUT = "1 device is left out, because a selector of class fast fails"


def members(*selectors: str, seconds: float = 1.0) -> ClassMembers:
    budget = SearchBudget(Limits(seconds=seconds), ticks())
    return ClassMembers(DeviceClass("fast", selectors), TimedSelectors(SELECTORS, budget))


@pytest.mark.parametrize(
    ("selectors", "belongs", "failures"),
    [
        ((), True, ""),
        (("true",), True, ""),
        (("true", "false"), False, ""),
        (
            ("true", "device.attributes['x'].y == 1"),
            False,
            f"{LEFT_OUT}: selector 1 on {PLAIN.id}: no such key: y",
        ),
        (
            ("1 +",),
            False,
            f"{LEFT_OUT}: selector 0 on {PLAIN.id}: 1:4: Syntax error: unexpected end of the expression",
        ),
    ],
)
def test_a_device_belongs_to_a_class_if_all_selectors_match(
    selectors: tuple[str, ...], belongs: bool, failures: str
) -> None:
    of_class = members(*selectors)
    assert of_class.has(PLAIN) is belongs
    assert of_class.failures == failures


def test_a_device_with_an_unknown_type_of_attribute_belongs_only_to_classes_without_selectors() -> None:
    odd = device("odd", {"new": ()})
    assert members().has(odd)
    selective = members("true")
    assert not selective.has(odd)
    assert not selective.has(odd)
    assert selective.failures == (
        "2 devices are left out, because a selector of class fast fails: "
        f"selector 0 on {odd.id}: attribute {DRIVER}/new: unsupported value"
    )


def test_selectors_end_when_time_is_up() -> None:
    with pytest.raises(SearchLimitError):
        members("true", seconds=0).has(PLAIN)
