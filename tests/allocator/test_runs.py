"""Runs: devices in a row that are alike. Those of slices that stay are not found again when another slice changes."""

import gc
import weakref
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import AttributeValue, Device, DeviceTaint, Inventory, PoolId, Quantity, Slice
from allocator.equivalence import AttributeReads, KnownRuns
from allocator.model.features import ALL_FEATURES
from allocator.pools import NodePool
from tests.allocator.worlds import DRIVER, HERE, NODE, device

POOL = PoolId(DRIVER, "node-1")
MODEL, ROOT = f"{DRIVER}/model", f"{DRIVER}/root"
READS = [AttributeReads(values=(MODEL,)), AttributeReads(matched=(ROOT,)), AttributeReads(everything=True)]
EACH_READS = pytest.mark.parametrize("reads", READS, ids=["values", "values in common", "everything"])
SLICES, OF_SLICE = 10, 20


class Counted(dict[str, Any]):
    """Attributes that count how often one of them is read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        Counted.reads += 1
        return super().get(key, default)


def piece(number: int, *devices: Device, slices: int = SLICES) -> Slice:
    return Slice(f"slice-{number:02}", POOL, 1, slices, HERE, devices=devices)


def plain(number: int, model: str) -> Slice:
    devices = [device(f"d-{number}-{i}", {"model": model, "root": f"{i // 4}"}) for i in range(OF_SLICE)]
    return piece(number, *[replace(each, attributes=Counted(each.attributes)) for each in devices])


def views(inventory: Inventory) -> tuple[NodePool, ...]:
    return inventory.for_node(NODE, ALL_FEATURES)


@EACH_READS
def test_after_a_change_of_one_slice_the_devices_of_this_slice_alone_are_read(reads: AttributeReads) -> None:
    inventory, known = Inventory.of([plain(number, "x") for number in range(SLICES)]), KnownRuns(reads)
    Counted.reads = 0
    known.of(views(inventory))
    first, Counted.reads = Counted.reads, 0
    known.of(views(inventory.with_slice(plain(3, "y"))))
    assert first == SLICES * Counted.reads > 0


@pytest.mark.parametrize(("slices", "stays"), [(1, False), (2, True)])
def test_the_runs_of_a_slice_go_with_the_slice(slices: int, *, stays: bool) -> None:
    inventory = Inventory.of([piece(number, device(f"d-{number}"), slices=slices) for number in range(slices)])
    known = KnownRuns(READS[0])
    assert known.of(views(inventory)) == ((slices,),)
    (pool,) = views(inventory)
    assert bool(len(known._of)) is stays
    before = [weakref.ref(view) for view in pool.slices]
    del pool, inventory
    gc.collect()
    assert [view() for view in before] == [None] * slices


@st.composite
def parts(draw: st.DrawFn, name: str) -> Device:
    values: dict[str, list[AttributeValue]] = {"model": ["x", "x", 1, True], "root": ["r", "s", ("r",)]}
    drawn: dict[str, AttributeValue | None] = {
        key: draw(st.sampled_from([*some, None])) for key, some in values.items()
    }
    kept = {key: value for key, value in drawn.items() if value is not None}
    draws = draw(st.sampled_from([{}, {}, {}, {"a": {"units": 1}}]))
    taints = draw(st.sampled_from([(), (), (), (DeviceTaint("sick", "NoSchedule"),)]))
    return device(name, kept, draws=draws, taints=taints)


@st.composite
def slices(draw: st.DrawFn, number: int) -> Slice:
    return piece(number, *[draw(parts(f"d-{number}-{i}")) for i in range(draw(st.integers(0, 4)))], slices=4)


CHANGES = st.integers(1, 3).flatmap(slices)


def described(each: Device, reads: AttributeReads) -> object:
    """What makes a device of these worlds differ from its neighbour."""
    names = sorted(each.attributes) if reads.everything else (*reads.values, *reads.matched)
    values = [(name, type(each.attributes.get(name)), each.attributes.get(name)) for name in names]
    return values, bool(each.consumes_counters), each.taints


@given(st.tuples(*map(slices, (1, 2, 3))), st.lists(CHANGES, min_size=1, max_size=4), st.sampled_from(READS))
def test_runs_are_those_of_all_devices_in_a_row(
    first: tuple[Slice, ...], changes: list[Slice], reads: AttributeReads
) -> None:
    counters = replace(piece(0, slices=4), counter_sets=(("a", {"units": Quantity.from_int(9)}),))
    inventory, known = Inventory.of([counters, *first]), KnownRuns(reads)
    for changed in (first[0], *changes):
        inventory = inventory.with_slice(changed)
        (pool,) = views(inventory)
        devices = [candidate.device for candidate in pool.candidates]
        runs = groupby(devices, key=lambda each: described(each, reads))
        assert not pool.problem
        assert known.of((pool,)) == (tuple(len(list(run)) for _, run in runs),)
