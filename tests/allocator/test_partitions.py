"""Partitionable devices: shared counters, two sets, partitions held elsewhere, and compatibility groups."""

from dataclasses import replace

import pytest

from allocator import CounterConsumption, Device, Placement, Quantity, Request, Slice, Unsatisfiable, Usage
from allocator.policies import BEST_FIT, FIRST_FIT, Policy
from allocator.pools import Inventory
from tests.allocator.worlds import HERE, World, alternative, claim, device, first_of, held, pool, pool_id, want

COUNTERS = {"gpu-0": {"slices": 4, "memory": 40}}


def part(name: str, slices: int, memory: int = 0) -> Device:
    return device(name, draws={"gpu-0": {"slices": slices, "memory": memory}})


WHOLE, HALF_A, HALF_B, QUARTER = part("whole", 4), part("half-a", 2), part("half-b", 2), part("quarter", 1)
NO = "not enough shared counters for request gpu"

CASES = [
    # name, devices, held, how many are wanted, what they are
    ("a whole", [WHOLE, HALF_A], (), 1, ["whole"]),
    ("a whole leaves nothing", [WHOLE, HALF_A], (), 2, NO),
    ("two halves", [WHOLE, HALF_A, HALF_B], (), 2, ["half-a", "half-b"]),
    ("a half is held", [WHOLE, HALF_A, HALF_B], ("half-a",), 1, ["half-b"]),
    ("a quarter spoils the whole", [WHOLE, QUARTER], ("quarter",), 1, NO),
    ("parts that add up too high", [HALF_A, HALF_B, QUARTER], (), 3, NO),
    ("the last that fits", [WHOLE, HALF_A, QUARTER], ("half-b-elsewhere",), 2, ["half-a", "quarter"]),
    ("another counter is short", [part("fat", 1, 41), QUARTER], (), 1, ["quarter"]),
    ("just enough", [part("fat", 1, 40), QUARTER], (), 1, ["fat"]),
    ("a draw of nothing", [part("none", 0), WHOLE], (), 2, ["none", "whole"]),
    ("devices without counters are free", [device("plain"), WHOLE], ("whole",), 1, ["plain"]),
    ("backtracking gives counters back", [HALF_A, WHOLE, HALF_B], (), 2, ["half-a", "half-b"]),
]


@pytest.mark.parametrize(("name", "devices", "taken", "wanted", "gets"), CASES, ids=[c[0] for c in CASES])
def test_partitions_are_given_while_their_counters_last(
    name: str, devices: list[Device], taken: tuple[str, ...], wanted: int, gets: list[str] | str
) -> None:
    del name
    world = World(pool(*devices, counters=COUNTERS), held(*taken))
    answer = world.devices(claim(want("gpu", wanted)))
    assert answer == (gets if isinstance(gets, str) else [gets])


def test_counters_are_given_back_by_an_alternative_that_fails() -> None:
    world = World(pool(HALF_A, HALF_B, WHOLE, counters=COUNTERS))
    whole = "device.driver == 'x'"
    request = first_of("gpu", alternative("three", 3), alternative("none", 1, whole), alternative("two", 2))
    assert world.devices(claim(request)) == [["half-a", "half-b"]]


def test_a_pool_of_the_same_name_has_counters_of_its_own() -> None:
    here = pool(HALF_A, counters={"gpu-0": {"slices": 2, "memory": 1}})
    there = pool(
        device("half-a", driver="zpu.example.com", draws={"gpu-0": {"slices": 2}}), counters={"gpu-0": {"slices": 2}}
    )
    assert World([*here, *there]).devices(claim(want("gpu", 2))) == [["half-a", "half-a"]]


class TestTwoCounterSets:
    both = device("both", draws={"a": {"x": 2}, "b": {"x": 2}})
    one = device("one", draws={"a": {"x": 2}})
    other = device("other", draws={"b": {"x": 1}})

    @pytest.mark.parametrize(
        ("counters", "gets"),
        [
            ({"a": {"x": 2}, "b": {"x": 2}}, [["both"]]),
            ({"a": {"x": 2}, "b": {"x": 1}}, [["one"]]),
            ({"a": {"x": 1}, "b": {"x": 9}}, [["other"]]),
        ],
        ids=str,
    )
    def test_each_counter_set_must_suffice(self, counters: dict[str, dict[str, int]], gets: list[list[str]]) -> None:
        assert World(pool(self.both, self.one, self.other, counters=counters)).devices(claim(want())) == gets

    def test_a_set_that_is_named_twice_is_drawn_on_twice(self) -> None:
        two = Quantity.from_int(2)
        twice = replace(
            device("twice"),
            consumes_counters=(CounterConsumption("a", {"x": two}), CounterConsumption("a", {"x": two})),
        )
        assert World(pool(twice, counters={"a": {"x": 3}})).devices(claim(want())) == NO
        assert World(pool(twice, counters={"a": {"x": 4}})).devices(claim(want())) == [["twice"]]


class TestPartitionsElsewhere:
    """A pool over two nodes: what is held on the other node draws on the same counters."""

    slices = (
        Slice("a", pool_id("rack"), 1, 3, HERE, devices=(device("here", pool="rack", draws={"s": {"x": 1}}),)),
        Slice(
            "b",
            pool_id("rack"),
            1,
            3,
            Placement("node-2"),
            devices=(device("there", pool="rack", draws={"s": {"x": 1}}), device("plain", pool="rack")),
        ),
        Slice("c", pool_id("rack"), 1, 3, HERE, counter_sets=(("s", {"x": Quantity.from_int(1)}),)),
    )

    @pytest.mark.parametrize(
        ("taken", "gets"), [("", [["here"]]), ("there", NO), ("plain", [["here"]]), ("gone", [["here"]])]
    )
    def test_partitions_in_use_on_another_node_draw_on_the_same_counters(
        self, taken: str, gets: list[list[str]] | str
    ) -> None:
        assert World(self.slices, held(taken, pool_name="rack")).devices(claim(want())) == gets


class TestOverdrawn:
    """More is held than there is: the pool's books can't be trusted."""

    devices = (WHOLE, HALF_A, HALF_B, device("other", draws={"gpu-1": {"slices": 1}}), device("plain"))

    def test_an_overdrawn_counter_refuses_all_partitions_of_its_pool(self) -> None:
        world = World(pool(*self.devices[:-1], counters={**COUNTERS, "gpu-1": {"slices": 4}}), held("whole", "half-a"))
        assert world.devices(claim(want())) == NO

    def test_an_overdrawn_counter_leaves_devices_without_counters(self) -> None:
        world = World(pool(*self.devices, counters={**COUNTERS, "gpu-1": {"slices": 4}}), held("whole", "half-a"))
        assert world.devices(claim(want())) == [["plain"]]


class TestCompatibilityGroups:
    """Partitions of one device that may or may not live together; counters are plenty."""

    @staticmethod
    def grouped(name: str, *groups: str, sets: tuple[str, ...] = ("s",), x: int = 1) -> Device:
        draws = tuple(CounterConsumption(s, {"x": Quantity.from_int(x)}, groups) for s in sets)
        return replace(device(name), consumes_counters=draws)

    @pytest.mark.parametrize(
        ("groups", "gets"),
        [
            ([("a",), ("a",)], ["0", "1"]),
            ([("a",), ("b",)], None),
            ([("a", "b"), ("b", "c")], ["0", "1"]),
            ([("a", "b"), ("b", "c"), ("c", "a")], None),
            ([(), ()], ["0", "1"]),
            ([(), ("a",)], None),
            ([("a",), ()], None),
        ],
        ids=str,
    )
    def test_devices_on_a_counter_set_have_a_group_in_common(
        self, groups: list[tuple[str, ...]], gets: list[str] | None
    ) -> None:
        devices = [self.grouped(str(i), *g) for i, g in enumerate(groups)]
        answer = World(pool(*devices, counters={"s": {"x": 9}})).devices(claim(want("gpu", len(groups))))
        assert answer == ("no compatible device for request gpu" if gets is None else [gets])

    def test_groups_of_held_devices_count(self) -> None:
        devices = [self.grouped("a", "a"), self.grouped("b", "b"), self.grouped("a-too", "a")]
        world = World(pool(*devices, counters={"s": {"x": 9}}), held("a"))
        assert world.devices(claim(want())) == [["a-too"]]

    @pytest.mark.parametrize(
        ("groups", "gets"),
        [([("a",), ()], ["free-a"]), ([(), ("a",)], ["free"]), ([("a",), ("b",)], None)],
        ids=["first with a group", "first without", "different groups"],
    )
    def test_of_held_devices_against_the_rule_the_first_count(
        self, groups: list[tuple[str, ...]], gets: list[str] | None
    ) -> None:
        """A slice that changed, or a gate that was off: the first kind counts; what differs joins no more."""
        taken = [self.grouped(f"taken-{i}", *g) for i, g in enumerate(groups)]
        free = [self.grouped("free"), self.grouped("free-a", "a")]
        world = World(pool(*taken, *free, counters={"s": {"x": 9}}), held("taken-0", "taken-1"))
        assert world.devices(claim(want())) == ("no compatible device for request gpu" if gets is None else [gets])

    def test_every_set_must_admit_a_device(self) -> None:
        devices = [
            self.grouped("a", "a"),
            self.grouped("b", "b", sets=("t",)),
            self.grouped("ab", "a", sets=("s", "t")),
        ]
        world = World(pool(*devices, counters={"s": {"x": 9}, "t": {"x": 9}}))
        assert world.devices(claim(want("gpu", 2))) == [["a", "b"]]
        assert replace(world, usage=held("b")).devices(claim(want("gpu", 2))) == "no compatible device for request gpu"

    def test_two_incompatible_devices_are_not_found_by_backtracking(self) -> None:
        world = World(pool(self.grouped("a", "a"), self.grouped("b", "b"), counters={"s": {"x": 9}}))
        none = Request("none", (replace(alternative(""), count=0),))
        assert world.devices(claim(want("x"), none, want("y"))) == "no compatible device for request y"

    @pytest.mark.parametrize("policy", [FIRST_FIT, BEST_FIT], ids=lambda p: p.name)
    def test_backtracking_restores_groups(self, policy: Policy) -> None:
        devices = [self.grouped("a", "a"), self.grouped("b1", "b"), self.grouped("b2", "b")]
        world = World(pool(*devices, counters={"s": {"x": 9}}), policy=policy)
        assert world.devices(claim(want("gpu", 2))) == [["b1", "b2"]]


def test_what_failed_with_some_devices_is_not_tried_with_them_again() -> None:
    """Four requests take devices that no fifth goes with: their 70 sets are tried, not their 1,680 sequences."""
    odd = "device.attributes['gpu.example.com'].odd"
    grouped = TestCompatibilityGroups.grouped
    devices = [replace(grouped(f"{i}", "g", x=i + 1), attributes={"gpu.example.com/odd": False}) for i in range(8)]
    other = replace(grouped("odd", "h"), attributes={"gpu.example.com/odd": True})
    world = World(pool(*devices, other, counters={"s": {"x": 99}}))
    answer = world.allocate(claim(*(want(f"r{i}", 1, f"!{odd}") for i in range(4)), want("odd", 1, odd)))
    assert isinstance(answer, Unsatisfiable)
    assert answer.reason.in_words() == "no compatible device for request odd"
    assert answer.steps <= 1000


def test_partitions_that_are_shared_draw_once() -> None:
    shared = device("shared", draws={"s": {"x": 1}}, allow_multiple_allocations=True)
    world = World(pool(shared, device("other", draws={"s": {"x": 1}}), counters={"s": {"x": 1}}))
    assert world.devices(claim(want("a"), want("b"))) == [["shared", "shared"]]
    in_use = Usage.of(shares=[(shared.id, "share")])
    assert replace(world, usage=in_use).devices(claim(want("a"))) == [["shared"]]


def test_a_counter_that_is_used_up_is_not_overdrawn() -> None:
    """Others of the pool can still be drawn on."""
    first, second = (device(n, draws={f"set-{n}": {"slices": 4}}) for n in ("a", "b"))
    counters = {"set-a": {"slices": 4}, "set-b": {"slices": 4}}
    assert World(pool(first, second, counters=counters), held("a")).devices(claim(want())) == [["b"]]


OTHER_WHOLE = part("whole-for-vms", 4)
PAIR = device("pair", draws={"gpu-0": {"slices": 4}, "gpu-1": {"slices": 4}})
SECOND = device("second", draws={"gpu-1": {"slices": 4}})
FULL = device("full", draws={"gpu-0": {"slices": 4, "memory": 40}})
MEMORY = device("memory", draws={"gpu-0": {"memory": 1}})

KINDS: dict[str, tuple[list[Device], set[str]]] = {
    "a device without counters": ([device("plain")], set()),
    "a whole and its parts": ([WHOLE, HALF_A, HALF_B, QUARTER], {"half-a", "half-b", "quarter"}),
    "the whole is the last": ([HALF_A, WHOLE], {"half-a"}),
    "two names of one whole": ([WHOLE, OTHER_WHOLE, HALF_A], {"whole-for-vms", "half-a"}),
    "parts alone": ([HALF_A, HALF_B], {"half-a", "half-b"}),
    "two wholes and both of them": ([PAIR, WHOLE, SECOND], {"pair"}),
    "a whole of one counter leaves others": ([WHOLE, MEMORY], {"whole", "memory"}),
    "a whole of all counters leaves none": ([FULL, MEMORY, QUARTER], {"memory", "quarter"}),
    "a part that draws nothing": ([WHOLE, part("none", 0)], {"whole", "none"}),
}


@pytest.mark.parametrize(("devices", "partitions"), KINDS.values(), ids=KINDS)
def test_a_device_that_leaves_nothing_for_others_is_no_partition(devices: list[Device], partitions: set[str]) -> None:
    counters = {**COUNTERS, "gpu-1": {"slices": 4}}
    (found,) = Inventory.of(pool(*devices, counters=counters)).pools.values()
    assert found.partitions == partitions
