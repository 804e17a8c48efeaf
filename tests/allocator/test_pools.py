"""Slices to pools: which generation counts, completeness, contradictions, and what each node sees."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from allocator import (
    Device,
    Features,
    Inventory,
    Node,
    NodeResource,
    NodeSelector,
    NodeUnsuitableError,
    Placement,
    Quantity,
    Slice,
    parse_slice,
    selector_matches,
)
from allocator.model.features import ALL_FEATURES, NO_FEATURES
from allocator.model.nodes import NodeSelectorTerm, Requirement
from allocator.model.validation import validate
from allocator.node_selectors import placement_matches
from allocator.pools import NodePool
from tests.allocator.worlds import HERE, World, claim, device, pool, pool_id, want

THERE = Placement("node-2")
EVERYWHERE = Placement(all_nodes=True)
RACK = Placement(node_selector=NodeSelector((NodeSelectorTerm((Requirement("rack", "In", ("1",)),)),)))
ONE, TWO = Node("node-1", {"rack": "1"}), Node("node-2")


def part(
    name: str, *devices: str | Device, generation: int = 1, of: int = 1, at: Placement | None = HERE, **more: Any
) -> Slice:
    """A slice of pool p, with devices by name."""
    own = tuple(device(d, pool="p") if isinstance(d, str) else d for d in devices)
    return Slice(name, pool_id("p"), generation, of, at, devices=own, **more)


def sets(*names: str, **counters: int) -> Any:
    return tuple((name, {c: Quantity.from_int(n) for c, n in counters.items()}) for name in names)


class Case(NamedTuple):
    """Slices of one pool, and what the two nodes see: devices, the problem, or nothing at all (None)."""

    name: str
    slices: Sequence[Slice]
    one: list[str] | str | None
    two: list[str] | str | None = None


CASES = [
    Case("a slice for the node", [part("s", "a", "b")], ["a", "b"]),
    Case("no devices", [part("s")], []),
    Case("slices by name, devices as listed", [part("t", "a", of=2), part("s", "c", "b", of=2)], ["c", "b", "a"]),
    Case("for every node", [part("s", "a", at=EVERYWHERE)], ["a"], ["a"]),
    Case("for some nodes", [part("s", "a", at=RACK)], ["a"]),
    Case("placed in a way we don't know", [part("s", "a", at=None)], None),
    Case("each node sees its own", [part("s", "a", of=2), part("t", "b", of=2, at=THERE)], ["a"], ["b"]),
    # generations
    Case("the newest counts", [part("s", "a"), part("t", "b", generation=2)], ["b"]),
    Case("whatever the order", [part("s", "a", generation=2), part("t", "b")], ["a"]),
    Case(
        "a newer one elsewhere alone does not outdate a complete one",
        [part("s", "a"), part("t", "b", generation=2, at=THERE)],
        ["a"],
        ["b"],
    ),
    Case(
        "a newer one elsewhere outdates an incomplete one",
        [part("s", "a", of=2), part("t", "b", generation=2, of=2, at=THERE)],
        None,
        "1 of 2 slices are there",
    ),
    # completeness
    Case("a slice is missing", [part("s", "a", of=2)], "1 of 2 slices are there"),
    Case("one too many", [part("s", "a"), part("t", "b")], "2 of 1 slices are there"),
    Case("the missing one is elsewhere", [part("s", "a", of=2), part("t", of=2, at=THERE)], ["a"], []),
    Case(
        "an old one does not complete", [part("s", "a", generation=2, of=2), part("t", of=2)], "1 of 2 slices are there"
    ),
    # contradictions
    Case("a name twice in a slice", [part("s", "a", "a")], "duplicate device name a"),
    Case("a name twice in two slices", [part("s", "a", of=2), part("t", "a", of=2)], "duplicate device name a"),
    Case("a name twice on two nodes", [part("s", "a", of=2), part("t", "a", of=2, at=THERE)], ["a"], ["a"]),
    Case(
        "a counter set twice",
        [part("s", of=2, counter_sets=sets("x", c=1)), part("t", of=2, counter_sets=sets("x", c=1))],
        "duplicate counter set name x",
    ),
    Case(
        "a counter set twice in a slice", [part("s", counter_sets=sets("x", "x", c=1))], "duplicate counter set name x"
    ),
    Case(
        "an unknown counter set",
        [part("s", device("a", pool="p", draws={"x": {"c": 1}}))],
        "device a consumes unknown counter set x",
    ),
    Case(
        "an unknown counter",
        [
            part("s", device("a", pool="p", draws={"x": {"d": 1}}), of=2),
            part("t", of=2, counter_sets=sets("x", c=1)),
        ],
        "device a consumes unknown counter d of counter set x",
    ),
    Case(
        "an unknown counter set elsewhere",
        [part("s", "a", of=2), part("t", device("b", pool="p", draws={"x": {"c": 1}}), of=2, at=THERE)],
        "device b consumes unknown counter set x",
        "device b consumes unknown counter set x",
    ),
]


def outcome(view: NodePool | None) -> list[str] | str | None:
    if view is None:
        return None
    return view.problem or [c.device.id.device for c in view.candidates]


def at(slices: Sequence[Slice], node: Node, features: Features = ALL_FEATURES) -> NodePool | None:
    views = Inventory.of(slices).for_node(node, features)
    assert len(views) <= 1
    return views[0] if views else None


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_node_sees_the_newest_generation_that_it_reaches(case: Case) -> None:
    assert outcome(at(case.slices, ONE)) == case.one
    assert outcome(at(case.slices, TWO)) == case.two


def test_an_incomplete_pool_is_not_an_invalid_one() -> None:
    incomplete, invalid = at([part("s", of=2)], ONE), at([part("s", "a", "a")], ONE)
    assert incomplete is not None
    assert invalid is not None
    assert (incomplete.incomplete, invalid.incomplete) == (True, False)


class TestPerDevicePlacement:
    slices = (
        part(
            "s",
            device("mine", pool="p", placement=HERE),
            device("yours", pool="p", placement=THERE),
            device("ours", pool="p", placement=EVERYWHERE),
            device("nobody's", pool="p"),
            at=None,
            per_device_placement=True,
        ),
    )

    def test_a_node_that_reaches_one_device_sees_the_slice(self) -> None:
        assert outcome(at(self.slices, ONE)) == ["mine", "yours", "ours", "nobody's"]

    def test_a_node_gets_only_the_devices_that_it_reaches(self) -> None:
        world = World(self.slices)
        assert world.devices(claim(want("gpu", None))) == [["mine", "ours"]]
        assert world.devices(claim(want("gpu", 3))) == "not enough free devices for request gpu"

    def test_a_node_that_reaches_none_does_not_see_it(self) -> None:
        slices = [part("s", device("a", pool="p", placement=THERE), at=None, per_device_placement=True)]
        assert outcome(at(slices, ONE)) is None

    def test_per_device_placement_is_off_with_partitionable_devices(self) -> None:
        assert outcome(at(self.slices, ONE, NO_FEATURES)) is None


class TestOrder:
    @staticmethod
    def order(*slices: Slice) -> list[tuple[str, str]]:
        return [(p.id.driver, p.id.pool) for p in Inventory.of(slices).for_node(ONE, ALL_FEATURES)]

    def test_pools_are_ordered_by_driver_then_name(self) -> None:
        slices = [Slice(f"{d}-{p}", pool_id(p, d), placement=HERE) for d in ("b", "a") for p in ("y", "x")]
        assert self.order(*slices) == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]

    def test_pools_with_binding_conditions_come_last(self) -> None:
        def one(pool_name: str, **more: Any) -> Slice:
            return pool(device("d", driver="d", pool=pool_name, **more))[0]

        slices = [one("a", binding_conditions=("ready",)), one("b", binding_conditions=()), one("c"), one("d")]
        assert self.order(*slices) == [("d", "c"), ("d", "d"), ("d", "a"), ("d", "b")]


class TestCompatibilityGroupsOff:
    """A slice with groups counts as missing."""

    off = Features(compatibility_groups=False)

    def grouped(self) -> Device:
        one = device("b", pool="p", draws={"x": {"c": 1}})
        (draw,) = one.consumes_counters
        return Device(one.id, consumes_counters=(type(draw)(draw.counter_set, draw.counters, ("g",)),))

    def test_a_slice_with_groups_is_missing_in_its_pool(self) -> None:
        slices = [part("s", "a", of=3), part("t", self.grouped(), of=3), part("u", of=3, counter_sets=sets("x", c=1))]
        assert outcome(at(slices, ONE, self.off)) == "2 of 3 slices are there"
        assert outcome(at(slices, ONE)) == ["a", "b"]

    def test_a_newer_slice_with_groups_does_not_outdate_the_pool(self) -> None:
        slices = [part("s", "a"), part("t", self.grouped(), generation=2)]
        assert outcome(at(slices, ONE, self.off)) == ["a"]


class TestInventory:
    def test_replacing_a_slice_moves_it(self) -> None:
        inventory = Inventory.of([part("s", "a")]).with_slice(part("s", "b", at=THERE))
        assert inventory.for_node(ONE, ALL_FEATURES) == ()
        assert [outcome(p) for p in inventory.for_node(TWO, ALL_FEATURES)] == [["b"]]

    def test_removing_an_unknown_slice_changes_nothing(self) -> None:
        inventory = Inventory.of([part("s", "a")])
        assert inventory.without_slice("t") is inventory

    def test_an_older_inventory_stays_as_it_was(self) -> None:
        before = Inventory.of([part("s", "a")])
        before.with_slice(part("s", "b"))
        before.without_slice("s")
        assert [outcome(p) for p in before.for_node(ONE, ALL_FEATURES)] == [["a"]]

    def test_nodes_alike_share_a_view(self) -> None:
        inventory = Inventory.of([part("s", "a", at=EVERYWHERE)])
        assert inventory.for_node(ONE, ALL_FEATURES)[0] is inventory.for_node(TWO, ALL_FEATURES)[0]

    def test_only_partitions_elsewhere_are_kept(self) -> None:
        slices = [
            part("s", "a", of=3),
            part("t", "b", device("c", pool="p", draws={"x": {"c": 1}}), of=3, at=THERE),
            part("u", of=3, at=THERE, counter_sets=sets("x", c=1)),
        ]
        view = at(slices, ONE)
        assert view is not None
        assert [d.id.device for d in view.elsewhere] == ["c"]


class TestAllocation:
    def test_incomplete_pools_are_passed_over(self) -> None:
        world = World([part("s", "a", of=2), *pool(device("b"))])
        assert world.devices(claim(want())) == [["b"]]
        assert world.devices(claim(want("gpu", 2))) == "not enough free devices for request gpu"

    def test_invalid_pools_are_passed_over_but_a_no_is_an_error(self) -> None:
        world = World([part("s", "a", "a"), *pool(device("b"))])
        assert world.devices(claim(want())) == [["b"]]
        with pytest.raises(
            NodeUnsuitableError, match=r"resource pool gpu.example.com/p is invalid: duplicate device name a"
        ):
            world.allocate(claim(want("gpu", 2)))


# Node selectors as Kubernetes' scheduler reads them, and from where devices can be reached.


NODE = Node("node-1", {"zone": "a", "cores": "8", "cold": "-8", "empty": ""})

REQUIREMENTS = [
    # key, operator, values, does the node match
    ("zone", "In", ("a", "b"), True),
    ("zone", "In", ("b",), False),
    ("zone", "In", (), False),
    ("gone", "In", ("a",), False),
    ("empty", "In", ("",), True),
    ("zone", "NotIn", ("b",), True),
    ("zone", "NotIn", ("a", "b"), False),
    ("gone", "NotIn", ("a",), True),
    ("zone", "Exists", (), True),
    ("empty", "Exists", (), True),
    ("gone", "Exists", (), False),
    ("zone", "DoesNotExist", (), False),
    ("gone", "DoesNotExist", (), True),
    ("cores", "Gt", ("7",), True),
    ("cores", "Gt", ("8",), False),
    ("cores", "Lt", ("9",), True),
    ("cores", "Lt", ("8",), False),
    ("cores", "Gt", ("-9",), True),
    ("cold", "Lt", ("+7",), True),
    ("gone", "Gt", ("1",), False),
    ("gone", "Lt", ("1",), False),
    ("zone", "Gt", ("1",), False),
    ("empty", "Lt", ("1",), False),
    ("cores", "Gt", ("x",), False),
    ("cores", "Gt", ("7.5",), False),
    ("cores", "Gt", ("1", "2"), False),
    ("cores", "Lt", ("9" * 18,), True),
    ("cores", "Lt", (str(2**63),), False),
    ("cores", "Lt", ("9" * 5000,), False),
    ("zone", "Like", ("a",), False),
    ("zone", "", (), False),
]


@pytest.mark.parametrize(("key", "operator", "values", "expected"), REQUIREMENTS)
def test_a_requirement_matches_as_in_kube_scheduler(
    key: str, operator: str, values: tuple[str, ...], expected: bool
) -> None:
    selector = NodeSelector((NodeSelectorTerm((Requirement(key, operator, values),)),))
    assert selector_matches(selector, NODE) is expected


YES, NO = Requirement("zone", "In", ("a",)), Requirement("zone", "In", ("b",))
NAMED, OTHER = (Requirement("metadata.name", "In", (name,)) for name in ("node-1", "node-2"))

SELECTORS = [
    # terms, does the node match
    ((), False),
    ((NodeSelectorTerm(),), False),
    ((NodeSelectorTerm((YES,)),), True),
    ((NodeSelectorTerm((YES, NO)),), False),
    ((NodeSelectorTerm((NO,)), NodeSelectorTerm((YES,))), True),
    ((NodeSelectorTerm(), NodeSelectorTerm((YES,))), True),
    ((NodeSelectorTerm((), (NAMED,)),), True),
    ((NodeSelectorTerm((), (OTHER,)),), False),
    ((NodeSelectorTerm((YES,), (OTHER,)),), False),
    ((NodeSelectorTerm((YES,), (NAMED,)),), True),
    ((NodeSelectorTerm((NAMED,)),), False),
    ((NodeSelectorTerm((), (YES,)),), False),
    ((NodeSelectorTerm((), (Requirement("metadata.name", "NotIn", ("node-2",)),)),), True),
]


@pytest.mark.parametrize(("terms", "expected"), SELECTORS)
def test_any_term_with_all_its_requirements_matches(terms: tuple[NodeSelectorTerm, ...], expected: bool) -> None:
    assert selector_matches(NodeSelector(terms), NODE) is expected


IN_ZONE, NOT_IN_ZONE = (NodeSelector((NodeSelectorTerm((r,)),)) for r in (YES, NO))

PLACEMENTS = [
    (Placement("node-1"), True),
    (Placement("node-2"), False),
    (Placement(node_selector=IN_ZONE), True),
    (Placement(node_selector=NOT_IN_ZONE), False),
    (Placement(all_nodes=True), True),
    (Placement(), False),
    (Placement("node-2", IN_ZONE, all_nodes=True), False),
    (Placement(None, NOT_IN_ZONE, all_nodes=True), True),
]


@pytest.mark.parametrize(("placement", "expected"), PLACEMENTS)
def test_a_node_name_goes_before_all_nodes_and_a_selector(placement: Placement, expected: bool) -> None:
    assert placement_matches(placement, NODE) is expected


# What devices take of their nodes (KEP-5517), as slices publish it.


PREFIX = "spec.devices[0].nodeAllocatableResources"


def a_slice(version: str = "v1", **device: Any) -> dict[str, Any]:
    inner = {"capacity": {"cores": {"value": "8"}}, **device}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "cpu.example.com",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{"name": "d", "basic": inner} if version == "v1beta1" else {"name": "d", **inner}],
        },
    }


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_entries_are_read_by_name(version: str) -> None:
    entries = {
        "memory": {"overhead": {"perPod": "1Gi", "perContainer": 5}},
        "cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "500m"}},
        "hugepages-2Mi": {"mapping": {"deviceMultiplier": "2Mi"}},
    }
    (device,) = parse_slice(a_slice(version, nodeAllocatableResources=entries)).devices
    assert device.node_resources == (
        NodeResource("cpu", capacity="cores", multiplier=Quantity.parse("500m")),
        NodeResource("hugepages-2Mi", multiplier=Quantity.parse("2Mi")),
        NodeResource("memory", per_pod=Quantity.parse("1Gi"), per_container=Quantity.parse("5")),
    )


def test_most_devices_take_nothing() -> None:
    assert parse_slice(a_slice()).devices[0].node_resources == ()


def test_an_inventory_knows_the_pools_whose_devices_take_something() -> None:
    plain = Inventory.of([parse_slice(a_slice())])
    taking = plain.with_slice(parse_slice(a_slice(nodeAllocatableResources={"cpu": {"overhead": {"perPod": "1"}}})))
    assert not plain.taking
    assert set(taking.taking) == set(taking.pools)
    assert not taking.without_slice("s").taking


BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "another resource": (
        {"example.com/gpu": {"mapping": {"deviceMultiplier": 1}}},
        ["[example.com/gpu]: must be cpu, memory or hugepages-<size>"],
    ),
    "nothing": ({"cpu": {}}, ["[cpu]: at least one of mapping and overhead is required"]),
    "an empty mapping": (
        {"cpu": {"mapping": {}}},
        ["[cpu].mapping: exactly one of capacityKey and deviceMultiplier is required"],
    ),
    "both ways": (
        {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": 1, "deviceMultiplier": 1}}},
        ["[cpu].mapping: exactly one of capacityKey and deviceMultiplier is required"],
    ),
    "no multiplier": (
        {"cpu": {"mapping": {"capacityKey": "cores"}}},
        ["[cpu].mapping.capacityMultiplier: is required: capacityKey and capacityMultiplier belong together"],
    ),
    "no capacity": (
        {"cpu": {"mapping": {"deviceMultiplier": 1, "capacityMultiplier": 1}}},
        ["[cpu].mapping.capacityKey: is required: capacityKey and capacityMultiplier belong together"],
    ),
    "an unknown capacity": (
        {"cpu": {"mapping": {"capacityKey": "threads", "capacityMultiplier": 1}}},
        ['[cpu].mapping.capacityKey: "threads" is not a capacity of the device'],
    ),
    "a multiplier of zero": (
        {"cpu": {"mapping": {"deviceMultiplier": 0}}},
        ["[cpu].mapping.deviceMultiplier: must be greater than zero"],
    ),
    "an empty overhead": (
        {"memory": {"overhead": {}}},
        ["[memory].overhead: at least one of perPod and perContainer is required"],
    ),
    "a negative overhead": (
        {"memory": {"overhead": {"perPod": -1, "perContainer": "x"}}},
        ["[memory].overhead.perPod: must not be negative", '[memory].overhead.perContainer: "x" is not a quantity'],
    ),
}


@pytest.mark.parametrize(("entries", "problems"), BAD.values(), ids=BAD)
def test_what_an_api_server_refuses_is_told_with_its_place(entries: dict[str, Any], problems: list[str]) -> None:
    told = [str(each) for each in validate(a_slice(nodeAllocatableResources=entries))]
    assert told == [f"{PREFIX}{each}" for each in problems]
