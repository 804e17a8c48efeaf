"""What is known of slices that stay is not found out again when another slice of their pool changes."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import (
    Allocation,
    Claim,
    Device,
    DeviceId,
    DeviceTaint,
    Features,
    Inventory,
    Limits,
    Placement,
    PoolId,
    SearchLimitError,
    Slice,
    Task,
    Usage,
)
from allocator.checks import NO_RULES
from allocator.equivalence import (
    KnownFacts,
    NotFound,
    Single,
    attribute_reads_of,
    device_circumstances,
    single_of,
)
from allocator.model.features import ALL_FEATURES
from allocator.policies import POLICIES, Merit, Policy, fragmentation
from allocator.pools import SliceView
from allocator.search import SearchBudget
from allocator.usage import NOTHING_USED
from tests.allocator.worlds import DRIVER, HERE, NODE, SELECTORS, TICK, World, claim, device, pool, ticks, want

BY_FRAGMENTATION = fragmentation([f"{DRIVER}/model"])
WITH_SHORTCUT = [each for each in (*POLICIES.values(), BY_FRAGMENTATION) if each.single is not None]
EACH_POLICY = pytest.mark.parametrize("policy", WITH_SHORTCUT, ids=lambda policy: policy.name)
IS_X = f"device.attributes['{DRIVER}'].model.startsWith('x')"
POOL = PoolId(DRIVER, "node-1")
SLICES, OF_SLICE = 12, 20


class Counted(dict[str, Any]):
    """Attributes that count how often one of them is read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        Counted.reads += 1
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        Counted.reads += 1
        return super().__getitem__(key)


class Scene:
    """A node with a pool of several slices, and one signature with its memory."""

    def __init__(
        self, slices: Sequence[Slice], policy: Policy, wanted: Claim, features: Features = ALL_FEATURES
    ) -> None:
        self.inventory = Inventory.of(slices)
        self.world = World(slices, policy=policy, features=features)
        self.wanted = wanted
        self.known = KnownFacts(policy.reads)

    def task(self) -> Task:
        """The claim on the node as it is now."""
        return replace(self.world.task(self.wanted), pools=self.inventory.for_node(NODE, self.world.features))

    def single(self, known: KnownFacts | None = None, **limits: Any) -> Single | None:
        """With what is known; or with another memory."""
        task, policy, budget = self.task(), self.world.policy, SearchBudget(Limits(**limits), ticks())
        reads = attribute_reads_of(task.claims, task.classes, SELECTORS, budget, policy)
        return single_of(task, SELECTORS, policy, reads, budget, known or self.known)

    def answer(self, single: Single | None, usage: Usage) -> Merit | NotFound | None:
        """What is told of the node where this is held."""
        pools = self.task().pools
        states = [device_circumstances(p, NODE, usage.pools.get(p.id, NOTHING_USED), NO_RULES) for p in pools]
        return None if single is None else single.answer(states)

    def views(self) -> list[SliceView]:
        """The slices of the pool."""
        return [view for each in self.task().pools for view in each.slices]


def piece(number: int, *devices: Device, slices: int = SLICES) -> Slice:
    """A slice of the pool."""
    return Slice(f"slice-{number:02}", POOL, 1, slices, HERE, devices=devices)


def plain(number: int, model: str = "x") -> Slice:
    """A slice of devices that are alike for everybody who does not read what they are called."""
    devices = [device(f"d-{number}-{i}", {"model": model}) for i in range(OF_SLICE)]
    return piece(number, *[replace(each, attributes=Counted(each.attributes)) for each in devices])


def scene(policy: Policy) -> Scene:
    return Scene([plain(number) for number in range(SLICES)], policy, claim(want("gpu", 1, IS_X)))


# --- what is done after a change ----------------------------------------------------------------------------


@EACH_POLICY
def test_after_a_change_of_one_slice_the_devices_of_this_slice_alone_are_read(policy: Policy) -> None:
    known = scene(policy)
    Counted.reads = 0
    assert known.single()
    first, Counted.reads = Counted.reads, 0
    known.inventory = known.inventory.with_slice(plain(3, "x2"))
    assert known.single()
    assert first >= SLICES * OF_SLICE
    assert Counted.reads <= 2 * OF_SLICE + 10
    Counted.reads = 0
    assert known.single()
    assert Counted.reads == 0


@EACH_POLICY
def test_after_a_change_of_one_slice_the_devices_of_this_slice_alone_are_judged(policy: Policy) -> None:
    """All models differ, so each device is judged, and each judgement reads the clock a few times."""
    slices = [
        piece(number, *[device(f"d-{number}-{i}", {"model": f"x-{number}-{i}"}) for i in range(OF_SLICE)])
        for number in range(SLICES)
    ]
    known = Scene(slices, policy, claim(want("gpu", 1, IS_X)))
    assert known.single()
    changed = piece(3, *[device(f"d-3-{i}", {"model": f"x-new-{i}"}) for i in range(OF_SLICE)])
    known.inventory = known.inventory.with_slice(changed)
    with pytest.raises(SearchLimitError):
        known.single(KnownFacts(policy.reads), seconds=TICK * 6 * OF_SLICE)
    assert known.single(seconds=TICK * 6 * OF_SLICE)


# --- what is remembered, and for how long -------------------------------------------------------------------


def test_what_is_known_of_a_slice_goes_with_the_slice() -> None:
    known = scene(BY_FRAGMENTATION)
    assert known.single()
    before = [weakref.ref(view) for view in known.views()]
    known.inventory = known.inventory.with_slice(plain(3, "x2"))
    found = known.single()
    gc.collect()
    gone = [number for number, view in enumerate(before) if view() is None]
    assert found is not None
    assert gone == [3]
    known.inventory = Inventory()
    gc.collect()
    assert [view() for view in before] == [None] * SLICES


def test_nothing_is_remembered_of_the_only_slice_of_a_node() -> None:
    known = Scene(pool(device("a", {"model": "x"})), BY_FRAGMENTATION, claim(want("gpu", 1, IS_X)))
    assert known.single()
    (view,) = known.views()
    assert known.known.get(view) is None


@EACH_POLICY
def test_where_each_device_is_a_model_of_its_own_what_is_left_takes_a_search(policy: Policy) -> None:
    """The tallies of so many models would take more memory than there is."""
    devices = [device(f"d-{i}", {"model": f"x-{i}"}) for i in range(600)]
    found = Scene([piece(0, *devices, slices=1)], policy, claim(want("gpu", 1, IS_X))).single()
    assert (found is None) is bool(policy.reads)


def test_models_that_are_no_more_fill_the_memory() -> None:
    known = scene(BY_FRAGMENTATION)
    full: list[bool] = []
    for number in range(300):
        known.inventory = known.inventory.with_slice(plain(0, f"x{number}"))
        assert known.single()
        full.append(known.known.is_full)
    assert full.index(True) in range(200, 300)


# --- the law ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """A pool as it is at first, the slices that come then, and what is held meanwhile."""

    slices: list[Slice]
    changes: list[tuple[Slice, Usage]]
    policy: Policy
    features: Features
    wanted: Claim


@st.composite
def parts(draw: st.DrawFn, name: str) -> Device:
    draws = draw(st.sampled_from([{}, {}, {}, {"a": {"units": 1}}, {"b": {"units": 2}}, {"a": {"units": 1}, "b": {}}]))
    sizes = draw(st.dictionaries(st.just("memory"), st.sampled_from(["1", "2"])))
    taints = draw(st.sampled_from([(), (), (), (DeviceTaint("sick", "NoSchedule"),)]))
    attributes = draw(st.sampled_from([{"model": "x"}, {"model": "x"}, {"model": "x2"}, {"model": "y"}]))
    shared = draw(st.sampled_from([False] * 20 + [True]))
    return device(name, attributes, draws=draws, capacity=sizes, taints=taints, allow_multiple_allocations=shared)


@st.composite
def histories(draw: st.DrawFn) -> History:
    def made(number: int) -> Slice:
        if number == 0:
            sets = pool(device("a"), counters={each: {"units": draw(st.integers(1, 4))} for each in "ab"})[
                1
            ].counter_sets
            return replace(piece(0, slices=4), counter_sets=sets)
        devices = [draw(parts(f"d-{number}-{i}")) for i in range(draw(st.integers(0, 3)))]
        found = piece(number, *devices, slices=4)
        return replace(found, placement=Placement(node_name="node-2")) if number == 3 else found

    ids = [DeviceId(DRIVER, "node-1", f"d-{number}-{i}") for number in (1, 2, 3) for i in range(3)]
    usages = st.lists(st.sampled_from(ids), unique=True, max_size=4).map(Usage.of)
    changes = [(made(draw(st.integers(0, 3))), draw(usages)) for _ in range(draw(st.integers(1, 6)))]
    policy = draw(st.sampled_from(WITH_SHORTCUT))
    off = () if policy.weighs_leftover else (Features(partitionable_devices=False),)
    features = draw(st.sampled_from([Features(), ALL_FEATURES, *off]))
    wanted = claim(want("gpu", 1, *draw(st.sampled_from([(), (IS_X,)]))))
    return History([made(number) for number in range(4)], changes, policy, features, wanted)


@given(histories())
def test_answers_are_those_of_who_remembers_nothing_and_of_a_search(history: History) -> None:
    known = Scene(history.slices, history.policy, history.wanted, history.features)
    known.single()
    for changed, usage in history.changes:
        known.inventory = known.inventory.with_slice(changed)
        remembered, fresh = known.single(), known.single(KnownFacts(history.policy.reads))
        answer = known.answer(remembered, usage)
        assert (remembered is None) is (fresh is None)
        assert answer == known.answer(fresh, usage)
        if answer is not None:
            slices = list(known.inventory.slices.values())
            searched = replace(known.world, slices=slices, usage=usage).allocate(history.wanted)
            if isinstance(searched, Allocation):
                assert answer == searched.merit
            else:
                assert isinstance(answer, NotFound)
                assert answer.reason == searched.reason
