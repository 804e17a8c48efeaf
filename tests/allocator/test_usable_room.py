"""Usable room: which of the devices that are left the shapes of pods can use."""

from collections.abc import Sequence
from itertools import count

import pytest

from allocator import Device, DeviceClass, DeviceRequest, Features, Limits, Request, SearchLimitError, Usage
from allocator.policies import POLICIES, Needs, Shape, UsableRoom, fragmentation
from allocator.policies.leftover import Leftover
from allocator.search import SearchBudget
from tests.allocator.worlds import DRIVER, SELECTORS, World, claim, device, held, pool, q, ticks, want

ANY = DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))
MODEL = f'device.attributes["{DRIVER}"].model == "a100"'
BY_MODEL = fragmentation([f"{DRIVER}/model"])


def ask(*ways: DeviceRequest) -> Request:
    """A request for one of some ways to serve it."""
    return Request("gpu", ways, prioritized=len(ways) > 1)


def way(
    count: int = 1, *, selectors: Sequence[str] = (), milli: int | None = None, admin: bool = False
) -> DeviceRequest:
    capacity = None if milli is None else (("milli", q(str(milli))),)
    return DeviceRequest("gpu", "way", tuple(selectors), count=count, capacity=capacity, admin_access=admin)


def card(name: str, model: str = "a100") -> Device:
    return device(name, {"model": model})


def shared(name: str) -> Device:
    return device(name, capacity={"milli": "1000"}, allow_multiple_allocations=True)


def part(name: str, slices: int) -> Device:
    return device(name, draws={"chip": {"slices": slices}})


def leftover(devices: Sequence[Device], usage: Usage, *, slices: int = 0) -> Leftover:
    """What is left of a node's devices before anything is allocated."""
    counters = {"chip": {"slices": slices}} if slices else {}
    world = World(pool(*devices, counters=counters), usage, policy=BY_MODEL)
    merit = world.allocated().merit
    assert merit.before == merit.after
    return merit.before


def usable(left: Leftover, *shapes: Shape, cpu: int = 0) -> float:
    room = UsableRoom(dict.fromkeys(shapes, 1.0), Needs({"gpu": ANY}, SELECTORS, Features()))
    return room.table(left, SearchBudget(Limits(), ticks())).at(cpu)


TWO = [card("a"), card("b", "t4")]
CASES = {
    "free devices": (TWO, Usage(), [ask(way())], 2.0),
    "a device in use": (TWO, held("a"), [ask(way())], 1.0),
    "a model": (TWO, Usage(), [ask(way(selectors=[MODEL]))], 1.0),
    "enough devices": (TWO, Usage(), [ask(way(2))], 2.0),
    "too few devices": (TWO, held("a"), [ask(way(2))], 0.0),
    "an alternative": (TWO, held("a"), [ask(way(2), way(1))], 1.0),
    "two requests, one of them not served": (TWO, held("a"), [ask(way()), ask(way(selectors=[MODEL]))], 0.0),
    "two requests for the same devices": (TWO, Usage(), [ask(way()), ask(way(selectors=[MODEL]))], 2.0),
    "admin access beside another request": (TWO, held("a"), [ask(way()), ask(way(9, admin=True))], 1.0),
    "a selector that fails": (TWO, Usage(), [ask(way(selectors=["device.attributes['x'].y == 1"]))], 0.0),
    "a selector that does not compile": (TWO, Usage(), [ask(way(selectors=["device.nothing"]))], 0.0),
    "a class that does not exist": (TWO, Usage(), [ask(DeviceRequest("other"))], 0.0),
}


@pytest.mark.parametrize(("devices", "usage", "requests", "expected"), CASES.values(), ids=CASES)
def test_usable_room_is_that_of_the_devices_that_serve_the_shape(
    devices: list[Device], usage: Usage, requests: list[Request], expected: float
) -> None:
    assert usable(leftover(devices, usage), Shape(tuple(requests))) == expected


@pytest.mark.parametrize(
    ("milli", "expected"), [(100, 1.4), (400, 1.2), (401, 0.802), (1000, 1.0), (1001, 0.0), (None, 1.0)]
)
def test_shared_devices_have_room_for_whole_shares_only(milli: int | None, expected: float) -> None:
    some = World(pool(shared("a"), shared("b")))
    id_of_a = some.slices[0].devices[0].id
    usage = Usage.of(shares=[(id_of_a, "held")], consumed={id_of_a: {"milli": 600 * 10**9}})
    left = leftover([shared("a"), shared("b")], usage)
    assert usable(left, Shape((ask(way(milli=milli)),))) == pytest.approx(expected)


def test_partition_without_counters_left_has_no_room() -> None:
    parts = [part("half-0", 2), part("half-1", 2), part("whole", 4)]
    assert usable(leftover(parts, Usage(), slices=4), Shape((ask(way()),))) == 2.0
    assert usable(leftover(parts, held("half-0"), slices=4), Shape((ask(way()),))) == 1.0
    assert usable(leftover(parts, held("whole"), slices=4), Shape((ask(way()),))) == 0.0


def test_of_partitions_that_overlap_the_smallest_count() -> None:
    """A chip of 8 slices has eight partitions of 1 slice, two of 4 slices, and one of all slices."""
    slots = [f"slice-{number}" for number in range(8)]
    parts = [
        device(f"{size}-{at}", {"slices": size}, draws={"chip": dict.fromkeys(slots[at : at + size], 1)})
        for size in SIZES
        for at in range(0, 8, size)
    ]
    world = World(pool(*parts, counters={"chip": dict.fromkeys(slots, 1)}), policy=fragmentation([f"{DRIVER}/slices"]))
    shapes = [Shape((ask(way(selectors=[f'device.attributes["{DRIVER}"].slices >= {size}'])),)) for size in SIZES]
    merit = world.allocated(claim(want("gpu", 1, f'device.attributes["{DRIVER}"].slices == 4'))).merit
    assert [usable(merit.before, shape) for shape in shapes] == [8.0, 2.0, 1.0]
    assert [usable(merit.after, shape) for shape in shapes] == [4.0, 1.0, 0.0]


SIZES = (1, 4, 8)


def test_partition_that_takes_nothing_of_a_counter_counts_as_any_other_device() -> None:
    assert usable(leftover([part("all", 0)], Usage(), slices=4), Shape((ask(way()),))) == 1.0


def test_shape_takes_as_many_devices_as_there_is_cpu_for() -> None:
    left, small, large = leftover(TWO, Usage()), Shape((ask(way()),), 1000), Shape((ask(way()),), 4000)
    found = [usable(left, small, large, cpu=cpu) for cpu in (0, 999, 1000, 1500, 2000, 3999, 4000, 6000, 8000, 9999)]
    assert found == pytest.approx([0.0, 0.0, 0.5, 0.75, 1.0, 1.0, 1.5, 1.75, 2.0, 2.0])


def test_table_takes_no_longer_than_the_budget_and_what_was_found_is_remembered() -> None:
    """Each look at the clock takes a second."""
    clock = count(0.0).__next__
    left = leftover([card(f"gpu-{number}", f"model-{number}") for number in range(20)], Usage())
    room = UsableRoom({Shape((ask(way(selectors=[MODEL])),)): 1.0}, Needs({"gpu": ANY}, SELECTORS, Features()))
    with pytest.raises(SearchLimitError):
        room.table(left, SearchBudget(Limits(seconds=40.0), clock))
    began = clock()
    room.table(left, SearchBudget(Limits(seconds=40.0), clock))
    assert clock() - began < 40


def test_pods_of_several_devices_leave_an_odd_one() -> None:
    three = [card(name) for name in "abc"]
    assert usable(leftover(three, Usage()), Shape((ask(way(2)),))) == 2.0


def test_allocation_tells_what_it_leaves() -> None:
    world = World(pool(*TWO), policy=BY_MODEL)
    merit = world.allocated(claim(want("gpu", 1, MODEL))).merit
    assert merit.before == leftover(TWO, Usage())
    assert merit.after == leftover(TWO, held("a"))


def test_devices_that_no_shape_tells_apart_are_of_one_model() -> None:
    world = World(pool(*TWO), policy=POLICIES["fragmentation"])
    assert [count for _, count in world.allocated().merit.before] == [2]
