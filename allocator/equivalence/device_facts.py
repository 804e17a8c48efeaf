"""The facts that decide whether a request for one device gets a device; known as long as the device's slice is there.

A driver may change one slice of a large pool all the time. The facts about all other slices of the pool stay the same,
so they are kept with the slices: after a change, only the devices of the changed slice are judged.

A tally is how many devices of each model are left, as one number: each model has some bits of it. Tallies of parts of a
node are added up. So what is left on thousands of nodes is a sum for each, and few leftovers have to be built.
"""

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, groupby
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from allocator.allocate import Task
from allocator.cel.selectors import Selectors
from allocator.checks.compatibility import has_groups
from allocator.checks.counters import SHORT, CounterKey, counter_demand
from allocator.checks.in_use import IN_USE
from allocator.checks.table import needs_search
from allocator.checks.taint_rules import NO_RULES
from allocator.equivalence.fingerprint import AttributeReads, Rows
from allocator.model.slices.device import Device
from allocator.policies.leftover import NOTHING_LEFT, DeviceModel, Leftover, Parts, model_of
from allocator.policies.policy import Sizes, sizes_of
from allocator.pools import NodePool, SliceView
from allocator.reason import UNREACHABLE, Cause
from allocator.search.candidates import SUITS, Alternative, Candidates
from allocator.search.limits import SearchBudget, TimedSelectors
from allocator.search.plan import plan
from allocator.usage import Usage

_BITS: Final = 24
"""Bits for each device model: no node has that many devices."""

_FREE: Final = 1.0
"""The room of a device that is not shared."""

_MAX_KNOWN: Final = 4096
"""Leftovers that are remembered; at more, all are forgotten."""

_MOST_MODELS: Final = 512
"""Device models with a tally. If each of 20,000 devices is a model of its own, their tallies take a gigabyte."""

MOST_RUNS: Final = 8
"""Runs by which answers are remembered: to count what is free in more of them takes longer than to look at devices."""


class TooManyModelsError(Exception):
    """There are too many device models for tallies: only a search can tell what is left."""


class Tallies:
    """The models of devices that nobody shares. Threads may use them at the same time.

    Args:
        reads: the attributes by which devices are told apart; qualified names.
    """

    def __init__(self, reads: Sequence[str]) -> None:
        self._reads = reads
        self._tallies: dict[DeviceModel, int] = {}
        self._places = count()
        self._leftovers: dict[int, Leftover] = {0: NOTHING_LEFT}

    @property
    def models(self) -> int:
        """The number of models so far."""
        return len(self._tallies)

    def of(self, device: Device, part: float) -> int:
        """The tally of a device that is left.

        Args:
            device: the device.
            part: as `Parts.of`.

        Raises:
            TooManyModelsError: as it says.
        """
        model = model_of(device, self._reads, part, is_shared=False)
        found = self._tallies.get(model)
        if found is None:
            if len(self._tallies) >= _MOST_MODELS:
                raise TooManyModelsError
            found = self._tallies.setdefault(model, 1 << _BITS * next(self._places))
        return found

    def leftover(self, tally: int) -> Leftover:
        """What is left; the same object for equal tallies, as long as it is remembered."""
        found = self._leftovers.get(tally)
        if found is None:
            if len(self._leftovers) >= _MAX_KNOWN:
                self._leftovers = {0: NOTHING_LEFT}
            found = self._leftovers[tally] = self._built(tally)
        return found

    def _built(self, tally: int) -> Leftover:
        known = [*self._tallies.items()]
        counts = [(model, tally >> one.bit_length() - 1 & (1 << _BITS) - 1) for model, one in known]
        return frozenset([((model, _FREE), count) for model, count in counts if count])


class Facts(NamedTuple):
    """The facts that decide whether a request for one device gets this device.

    Attributes:
        refused: what speaks against the device if it is free; None: nothing.
        if_held: what speaks against the device if it is held.
        is_part: the device consumes counters.
        tally: of the device, if it counts in what is left (`Tallies`), else 0.
        draws: the counters that it consumes, and how much, in units of 10**-9.
    """

    sizes: Sizes
    refused: Cause | None
    if_held: Cause
    is_part: bool = False
    tally: int = 0
    draws: tuple[tuple[CounterKey, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SliceFacts:
    """The facts about the devices of one slice.

    Most devices of a slice are alike: one object for all of them takes 12 bytes for each instead of 250.

    Attributes:
        devices: device by device.
        places: the positions of the devices that consume no counters, by their facts.
        drawing: the positions of the other devices.
        runs: equal devices in a row, each run with its length; None: there are more than `MOST_RUNS`.
        tally: of all devices in `places` together.
        causes: what speaks against each device if all are free; `SHORT` where it depends on counters.
    """

    devices: tuple[Facts, ...]
    places: tuple[tuple[Facts, "array[int]"], ...]
    drawing: tuple[int, ...]
    runs: tuple[tuple[Facts, int], ...] | None
    tally: int
    causes: frozenset[Cause]

    @classmethod
    def of(cls, devices: Iterable[Facts]) -> "SliceFacts":
        """The facts about a slice; of equal devices best the same object."""
        known = tuple(devices)
        distinct = {id(each): each for each in known}
        places: dict[int, array[int]] = {key: array("I") for key, each in distinct.items() if not each.draws}
        if len(distinct) == len(places) == 1:
            (only,) = places.values()
            only.extend(range(len(known)))
            drawing: tuple[int, ...] = ()
        else:
            for position, key in enumerate(map(id, known)):
                if key in places:
                    places[key].append(position)
            drawing = tuple([position for position, each in enumerate(known) if each.draws])
        return cls(
            known,
            tuple([(distinct[key], positions) for key, positions in places.items()]),
            drawing,
            joined_runs((_runs(known),)),
            sum([distinct[key].tally * len(positions) for key, positions in places.items()]),
            frozenset([each.refused or SHORT for each in distinct.values()]),
        )

    def tally_left(self, states: Sequence[Hashable]) -> int:
        """The tally of the free devices in `places`; ``states``: as `States`, of this slice."""
        if not any(states):
            return self.tally
        return sum(
            [
                facts.tally * [states[position] for position in positions].count(0)
                for facts, positions in self.places
                if facts.tally
            ]
        )

    def causes_among(self, states: Sequence[Hashable]) -> Iterable[Cause]:
        """What speaks against each device, if the request gets none of them; ``states``: as `tally_left`."""
        if not any(states):
            return self.causes
        pairs = zip(self.devices, states, strict=True)
        return {device.if_held if state == 1 else device.refused or SHORT for device, state in pairs}


Runs = tuple[tuple[Facts, int], ...] | None
"""Equal devices in a row, with their number; None: there are more than `MOST_RUNS`."""


def _runs(devices: Iterable[Facts]) -> Iterator[tuple[Facts, int]]:
    return ((facts, len(list(run))) for facts, run in groupby(devices))


def joined_runs(of_slices: Iterable[Iterable[tuple[Facts, int]] | None]) -> Runs:
    """The runs of slices of one pool, one after the other."""
    found: list[tuple[Facts, int]] = []
    for runs in of_slices:
        if runs is None:
            return None
        for facts, length in runs:
            if found and found[-1][0] == facts:
                found[-1] = (facts, found[-1][1] + length)
            elif len(found) == MOST_RUNS:
                return None
            else:
                found.append((facts, length))
    return tuple(found)


class KnownFacts:
    """The facts about slices that one signature has met. A slice that is no more is forgotten.

    Safe to use from several threads: they would all find the same facts.

    Args:
        reads: `Policy.reads` of the signature.
    """

    def __init__(self, reads: Sequence[str]) -> None:
        self.tallies = Tallies(reads)
        self._of: WeakKeyDictionary[SliceView, SliceFacts] = WeakKeyDictionary()

    def get(self, view: SliceView) -> SliceFacts | None:
        """The facts about a slice, if they are known."""
        return self._of.get(view)

    def keep(self, view: SliceView, facts: SliceFacts) -> None:
        """Remember the facts about a slice."""
        self._of[view] = facts

    @property
    def is_full(self) -> bool:
        """Whether so many device models have a tally that there may be no room for those of another node."""
        return 2 * self.tallies.models > _MOST_MODELS


class PoolFacts(NamedTuple):
    """The facts about the devices of a pool that a node sees.

    Attributes:
        slices: of the slices that the node reaches.
        elsewhere: of other devices that consume counters of the pool.
    """

    slices: tuple[SliceFacts, ...]
    elsewhere: SliceFacts


def facts_of(
    task: Task,
    selectors: Selectors,
    reads: AttributeReads,
    budget: SearchBudget,
    known: KnownFacts,
    parts: Parts | None,
) -> tuple[str, list[PoolFacts]] | None:
    """The label of the only request of a task, and what decides about the devices of its node, pool by pool.

    Args:
        task: the claims, which are `is_single`, and a node with pools that have no problem.
        selectors: evaluates selectors.
        reads: what the claims and the policy read of devices. Devices that differ in nothing of it are judged once.
        budget: the limits.
        known: of the signature. It gets what is found out here.
        parts: of the counters in the pools; None: what is left does not count.

    Returns:
        None if only a search can tell.

    Raises:
        AllocatorError: as `Candidates.judge`.
        TooManyModelsError: as `Tallies.of`.
    """
    found = {view: known.get(view) for pool in task.pools for view in pool.slices}
    new = tuple([_without_known(pool, found) for pool in task.pools])
    timed = TimedSelectors(selectors, budget)
    candidates = Candidates(task.node, new, Usage(), NO_RULES, task.features, timed)
    (slot,) = plan(task.claims, task.classes, task.pools, candidates, task.features).slots
    (wanted,) = slot.alternatives
    judge = _Judge(candidates, wanted, known.tallies, parts, draws=task.features.partitionable_devices)
    rows, start = Rows(reads), 0
    for view in (view for pool in new for view in pool.slices):
        facts = None if _takes_a_search(view) else judge.judged(rows.of(view), start)
        if facts is None:
            return None
        start += len(view.candidates)
        found[view] = facts
        # A node with one slice has no slice that stays. What part a device is depends on counters of other slices.
        if len(found) > 1 and not (parts is not None and view.consumers):
            known.keep(view, facts)
    return wanted.label, [
        PoolFacts(
            tuple([facts for view in pool.slices if (facts := found[view]) is not None]),
            SliceFacts.of([judge.beyond_reach(device) for device in pool.elsewhere]),
        )
        for pool in task.pools
    ]


def _takes_a_search(view: SliceView) -> bool:
    """Whether devices of a slice have compatibility groups, or whether `allocation_result` may refuse their slice."""
    place = view.candidates[0].slice.placement if view.candidates else None
    has_terms = place is not None and place.node_selector is not None and len(place.node_selector.terms) > 1
    return has_terms or any(map(has_groups, view.consumers))


def _without_known(pool: NodePool, known: Mapping[SliceView, SliceFacts | None]) -> NodePool:
    """The pool without the slices that are known."""
    views = tuple([view for view in pool.slices if known[view] is None])
    if len(views) == len(pool.slices):
        return pool
    return replace(
        pool,
        slices=views,
        candidates=tuple(chain.from_iterable([view.candidates for view in views])),
        attributes=tuple(chain.from_iterable([view.attributes for view in views])),
    )


class _Judge:
    """Finds the facts about devices, for all devices with equal rows at once.

    Args:
        candidates: the devices.
        wanted: the request.
        tallies: of the signature.
        parts: as `facts_of`.
        draws: whether counters count.
    """

    def __init__(
        self, candidates: Candidates, wanted: Alternative, tallies: Tallies, parts: Parts | None, *, draws: bool
    ) -> None:
        self._candidates = candidates
        self._wanted = wanted
        self._tallies = tallies
        self._parts = parts
        self._draws = draws
        self._judged: dict[Hashable, Facts] = {}
        self._known: dict[Hashable, Facts] = {}
        self._same: dict[Facts, Facts] = {}

    def judged(self, rows: Iterable[Hashable], start: int) -> SliceFacts | None:
        """The facts about the devices of a slice; None: only a search can tell.

        Args:
            rows: as `Rows.of`.
            start: the position of the slice's first device among the candidates.
        """
        found: list[Facts] = []
        for index, row in enumerate(rows, start):
            device = self._candidates.all[index].device
            key = (row, counter_demand(device)) if device.consumes_counters else row
            facts = self._known.get(key)
            if facts is None:
                if needs_search(self._wanted.checks, self._candidates.all[index]):
                    return None
                facts = self._known[key] = self._new(row, index)
            found.append(facts)
        return SliceFacts.of(found)

    def beyond_reach(self, device: Device) -> Facts:
        """A device of another node that consumes counters of the pool."""
        return Facts((), UNREACHABLE, UNREACHABLE, is_part=True, draws=self._drawn(device))

    def _new(self, row: Hashable, index: int) -> Facts:
        device = self._candidates.all[index].device
        facts = self._judged.get(row) or self._judged.setdefault(row, self._of(index))
        tally = 0 if self._parts is None else self._tallies.of(device, self._parts.of(device))
        facts = facts._replace(tally=tally, draws=self._drawn(device))
        return self._same.setdefault(facts, facts)

    def _drawn(self, device: Device) -> tuple[tuple[CounterKey, int], ...]:
        return counter_demand(device) if self._draws and device.consumes_counters else ()

    def _of(self, index: int) -> Facts:
        """What decides about a device, without its tally and what it draws."""
        device, refusal = self._candidates.all[index].device, self._candidates.judge(self._wanted, index)
        if_free = self._candidates.refusal_if_free(self._wanted, index)
        return Facts(
            sizes_of(device),
            None if refusal is SUITS else refusal.cause,
            IN_USE.cause if if_free is None else if_free.cause,
            bool(device.consumes_counters),
        )
