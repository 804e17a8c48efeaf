"""Claims that ask for one device and nothing else: decided from which devices are held, without a search.

Where devices are partitions of others, hardly two nodes have the same devices held, but the nodes get one of a few
answers. One `Single` serves all nodes that differ only in which devices are held; its answers are those of `allocate`.

A counter group has the devices that have counter sets in common, such as the partitions of one GPU. Which kinds of
devices a group offers, and what is left of it, depends on which of its devices are held. That is worked out once for
each set of held devices, and shared by all groups that are equal but for the names of pools and counter sets.

Devices of a kind that lie side by side, such as eight equal GPUs, are a run. Where no device consumes counters, it
only matters how many devices of each run are free, so that few answers are worked out for thousands of nodes.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from allocator.allocate import Task
from allocator.cel.selectors import Selectors
from allocator.checks.counters import CounterKey, full
from allocator.equivalence.device_facts import (
    MOST_RUNS,
    Facts,
    KnownFacts,
    PoolFacts,
    SliceFacts,
    Tallies,
    TooManyModelsError,
    facts_of,
    joined_runs,
)
from allocator.equivalence.fingerprint import AttributeReads
from allocator.errors import SearchLimitError
from allocator.model.claims import AllocationMode, Claim
from allocator.policies.leftover import Parts
from allocator.policies.merit import Merit, merit_of_one
from allocator.policies.policy import DeviceKind, Policy
from allocator.reason import UNREACHABLE, Cause, Reason
from allocator.search.limits import SearchBudget
from allocator.tools.fields import AllocatorError

_MAX_KNOWN: Final = 4096
"""Answers, or sets of held devices of a group, that are remembered; at more, all are forgotten."""

States: TypeAlias = Sequence[Hashable]
"""Device by device: 0 if it is free, 1 if it is held."""

Offers: TypeAlias = tuple[tuple[int, DeviceKind], ...]
"""Each kind of free device in a group, with the number in the group of the first device of that kind."""


class GroupState(NamedTuple):
    """A counter group while some of its devices are held.

    Attributes:
        offers: which kinds of devices it offers.
        tally: of the free devices whose counters suffice.
    """

    offers: Offers
    tally: int


class DeviceKinds:
    """One object for each kind of device: equal kinds are identical."""

    def __init__(self) -> None:
        self._known: dict[Hashable, DeviceKind] = {}

    def of(self, device: Facts, left: Mapping[CounterKey, int], full: Mapping[CounterKey, int]) -> DeviceKind:
        """The kind of a device, given what is left of the counters."""
        untouched = [key for key, _ in device.draws if left[key] == full[key]]
        breaks = device.is_part and len(untouched) == len(device.draws)
        is_short = any(left[key] < amount for key, amount in device.draws)
        broken = len({key[:2] for key in untouched})
        known = device.sizes, breaks, is_short, broken
        found = self._known.get(known)
        if found is None:
            merit = merit_of_one(device.sizes, broken)
            found = self._known.setdefault(known, DeviceKind(device.sizes, breaks, is_short, merit))
        return found


class RunState(NamedTuple):
    """A counter group while some number of devices in each of its runs is free.

    Attributes:
        offers: the runs that offer a device, each with the kind of its devices; the first one of each kind.
        tally: of the free devices whose counters suffice.
    """

    offers: tuple[tuple[int, DeviceKind], ...]
    tally: int


@dataclass(slots=True, eq=False)
class GroupMemory:
    """The memory of equal counter groups, which differ only in the names of pools and counter sets.

    Attributes:
        states: the states of the group, by the states of its devices.
        by_free: the same, by the number of free devices in each run.
        losses: what the group loses of its tally, by these numbers and the run of which a device is taken.
    """

    states: dict[Hashable, GroupState | None] = field(default_factory=dict)
    by_free: dict[tuple[int, ...], RunState | None] = field(default_factory=dict)
    losses: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CounterGroup:
    """One counter group.

    Attributes:
        positions: the positions of its devices among all devices.
        runs: equal devices in a row: the device, and which of the group's devices they are.
        full: counter to its full value.
        pick: picks the states of the group's devices from those of all devices.
        memory: shared with equal groups.
    """

    positions: tuple[int, ...]
    runs: tuple[tuple[Facts, slice], ...]
    full: Mapping[CounterKey, int]
    kinds: DeviceKinds
    pick: Callable[[States], tuple[Hashable, ...]]
    memory: GroupMemory

    def state(self, states: tuple[Hashable, ...]) -> GroupState | None:
        """The state of the group, by the states of its devices; None: a counter is overdrawn, a search decides."""
        known = self.memory.states
        try:
            return known[states]
        except KeyError:
            pass
        if len(known) >= _MAX_KNOWN:
            known.clear()
        by_run = self._of_runs(self._free(states))
        found = None
        if by_run is not None:
            runs = self.runs
            offers = tuple([(states.index(0, runs[run][1].start), kind) for run, kind in by_run.offers])
            found = GroupState(offers, by_run.tally)
        known[states] = found
        return found

    def taken_by(self, position: int, states: tuple[Hashable, ...]) -> int:
        """What the group loses of its tally if one more device is held.

        Args:
            position: of the free device, which is in the group, among all devices.
            states: of the group's devices; no counter is overdrawn.
        """
        number = self.positions.index(position)
        taken = next(run for run, (_, places) in enumerate(self.runs) if number < places.stop)
        free, losses = self._free(states), self.memory.losses
        found = losses.get((free, taken))
        if found is None:
            if len(losses) >= _MAX_KNOWN:
                losses.clear()
            later = (*free[:taken], free[taken] - 1, *free[taken + 1 :])
            found = losses[free, taken] = self._tally(free, self._counters_left(free)) - self._tally(
                later, self._counters_left(later)
            )
        return found

    def _free(self, states: tuple[Hashable, ...]) -> tuple[int, ...]:
        """The number of free devices of each run."""
        return tuple([states[places].count(0) for _, places in self.runs])

    def _of_runs(self, free: tuple[int, ...]) -> RunState | None:
        known = self.memory.by_free
        if free not in known:
            if len(known) >= _MAX_KNOWN:
                known.clear()
            known[free] = self._computed(free)
        return known[free]

    def _computed(self, free: tuple[int, ...]) -> RunState | None:
        left = self._counters_left(free)
        if min(left.values()) < 0:
            return None
        found: dict[DeviceKind, int] = {}
        for run, (device, _) in enumerate(self.runs):
            if free[run] and device.refused is None:
                found.setdefault(self.kinds.of(device, left, self.full), run)
        return RunState(tuple((run, kind) for kind, run in found.items()), self._tally(free, left))

    def _counters_left(self, free: Sequence[int]) -> Mapping[CounterKey, int]:
        """What is left of the counters."""
        left = dict(self.full)
        for (device, places), count in zip(self.runs, free, strict=True):
            held = places.stop - places.start - count
            for key, amount in device.draws if held else ():
                left[key] -= held * amount
        return left

    def _tally(self, free: Sequence[int], left: Mapping[CounterKey, int]) -> int:
        return sum(
            [
                count * device.tally
                for (device, _), count in zip(self.runs, free, strict=True)
                if count and device.tally and all(left[key] >= amount for key, amount in device.draws)
            ]
        )


def counter_groups(
    devices: Mapping[int, Facts], full: Mapping[CounterKey, int], kinds: DeviceKinds
) -> Iterator[CounterGroup]:
    """The counter groups of devices that consume counters, by their positions among all devices."""
    known: dict[Hashable, GroupMemory] = {}
    for positions in _related(devices):
        members = [devices[position] for position in positions]
        runs = tuple([(members[run.start], run) for run in _runs(members)])
        own = {key: full[key] for device, _ in runs for key, _ in device.draws}
        memory = known.setdefault(_without_names(runs, own), GroupMemory())
        yield CounterGroup(tuple(positions), runs, own, kinds, _picking(positions), memory)


def _picking(positions: Sequence[int]) -> Callable[[States], tuple[Hashable, ...]]:
    """Picks the states at some positions."""
    if len(positions) == 1:
        only = positions[0]
        return lambda states: (states[only],)
    return itemgetter(*positions)


def _runs(devices: Iterable[Facts]) -> Iterator[slice]:
    """The positions of devices in a row that are equal."""
    end = 0
    for _, run in groupby(devices):
        start, end = end, end + len(list(run))
        yield slice(start, end)


def _related(devices: Mapping[int, Facts]) -> list[list[int]]:
    """The positions of devices that have counter sets in common, directly or through other devices."""
    group_of: dict[Hashable, list[int]] = {}
    sets_of: dict[int, set[Hashable]] = {}
    for position, device in devices.items():
        sets = sets_of.get(id(device))
        if sets is None:
            sets = sets_of[id(device)] = {key[:2] for key, _ in device.draws}
        joined = {id(group): group for each in sets if (group := group_of.get(each)) is not None}
        if len(joined) == 1:
            (group,) = joined.values()
            group.append(position)
        else:
            group = sorted([*(each for members in joined.values() for each in members), position])
            for name in [name for name, members in group_of.items() if id(members) in joined]:
                group_of[name] = group
        group_of.update(dict.fromkeys(sets, group))
    return [*{id(group): group for group in group_of.values()}.values()]


def _without_names(runs: Sequence[tuple[Facts, slice]], full: Mapping[CounterKey, int]) -> Hashable:
    """The runs and their counters, with a number in place of each pool and counter set."""
    numbers: dict[Hashable, int] = {}
    for key in full:
        numbers.setdefault(key[:2], len(numbers))
    renamed = {key: (numbers[key[:2]], key[2]) for key in full}
    return (
        tuple(
            [
                (places.stop, *device[:-1], tuple([(renamed[key], amount) for key, amount in device.draws]))
                for device, places in runs
            ]
        ),
        tuple([(renamed[key], amount) for key, amount in full.items()]),
    )


class NotFound(NamedTuple):
    """There is no device for the request, for these causes."""

    request: str
    causes: frozenset[Cause]

    @property
    def reason(self) -> Reason:
        """Like `Unsatisfiable.reason`."""
        return Reason(min(self.causes or {UNREACHABLE}, key=lambda cause: cause.rank), self.request)


def is_single(claims: Sequence[Claim]) -> bool:
    """Whether claims have one request for one device: required, without alternatives, constraints or admin access."""
    requests = [request for claim in claims for request in claim.spec.requests]
    if (
        len(requests) != 1
        or any(claim.spec.constraints or claim.spec.optional for claim in claims)
        or requests[0].prioritized
    ):
        return False
    return all(
        each.mode is AllocationMode.EXACT_COUNT and each.count == 1 and not each.admin_access
        for each in requests[0].alternatives
    )


class _Span(NamedTuple):
    """The positions of the devices of a slice among all devices."""

    start: int
    end: int
    facts: SliceFacts


_START: Final = itemgetter(0)


class _Reached(NamedTuple):
    """The positions of the devices of a pool that the node can reach."""

    start: int
    end: int
    spans: Sequence[_Span]


class Single:
    """Answers for nodes that differ only in which devices are held.

    Attributes:
        is_counted: the answer depends on how many devices of each pool are held, not on which ones.

    Args:
        request: the name of the request.
        devices: pool by pool, the devices that the node can reach, then others that consume counters of the pool.
        reached: pool by pool, how many devices the node can reach.
        full: counter to its full value.
        choose: as `Policy.single`.
        tallies: the device models; None: the policy does not weigh what is left.
    """

    def __init__(
        self,
        request: str,
        pools: Sequence[PoolFacts],
        full: Mapping[CounterKey, int],
        choose: Callable[[Mapping[DeviceKind, int]], DeviceKind | None],
        tallies: Tallies | None = None,
    ) -> None:
        self._request = request
        self._choose = choose
        self._tallies = tallies
        self._spans: list[_Span] = []
        self._pools: list[_Reached] = []
        self._all_free: list[bytes] = []  # zeros
        for pool in pools:
            start, first = self._count, len(self._spans)
            self._add(pool.slices)
            self._pools.append(_Reached(start, self._count, self._spans[first:]))
            self._add((pool.elsewhere,))
            self._all_free.append(bytes(self._count - start))
        kinds = DeviceKinds()
        drawing = {start + place: facts.devices[place] for start, _, facts in self._spans for place in facts.drawing}
        self._groups = tuple(counter_groups(drawing, full, kinds))
        self._group_of = {position: group for group in self._groups for position in group.positions}
        self._independent: dict[DeviceKind, list[tuple[int, array[int]]]] = {}
        for start, _, facts in self._spans:
            for device, places in facts.places:
                if device.refused is None:
                    self._independent.setdefault(kinds.of(device, {}, {}), []).append((start, places))
        self._merits: dict[tuple[DeviceKind, float, int, int], Merit] = {}
        self._runs = () if self._groups else self._counted_runs(pools)
        self.is_counted = 0 < len(self._runs) == sum(map(bool, self._all_free))
        self._answers: dict[tuple[int, ...], Merit | NotFound] = {}

    @property
    def _count(self) -> int:
        """The number of devices."""
        return self._spans[-1].end if self._spans else 0

    def _add(self, slices: Iterable[SliceFacts]) -> None:
        for facts in slices:
            if facts.devices:
                self._spans.append(_Span(self._count, self._count + len(facts.devices), facts))

    @staticmethod
    def _counted_runs(pools: Sequence[PoolFacts]) -> tuple[slice, ...]:
        """The positions of equal devices in a row, if there are few such runs; else nothing."""
        found: list[slice] = []
        end = 0
        for pool in pools:
            runs = joined_runs([facts.runs for facts in (*pool.slices, pool.elsewhere)])
            if runs is None or len(found) + len(runs) > MOST_RUNS:
                return ()
            for _, length in runs:
                found.append(slice(end, end + length))
                end += length
        return tuple(found)

    def answer(self, states: Sequence[States]) -> Merit | NotFound | None:
        """The answer of `allocate`: the merit of the allocation, or why there is none. None: only a search can tell.

        Args:
            states: pool by pool, the result of `device_circumstances`.
        """
        if len(states) == 1:
            held = states[0] or self._all_free[0]
        else:
            pools = zip(states, self._all_free, strict=True)
            held = tuple(chain.from_iterable([of_pool or free for of_pool, free in pools]))
        count = held.count(0)
        if len(held) != self._count or count + held.count(1) != len(held):
            return None
        if not self._runs:
            return self._worked_out(held)
        free = (count,) if len(self._runs) == 1 else tuple([held[run].count(0) for run in self._runs])
        found = self._answers.get(free)
        if found is None:
            if len(self._answers) >= _MAX_KNOWN:
                self._answers.clear()
            answer = self._worked_out(held)
            if answer is None:
                return None
            found = self._answers[free] = answer
        return found

    def _worked_out(self, held: States) -> Merit | NotFound | None:
        firsts: dict[DeviceKind, int] = {}
        for kind, parts in self._independent.items():
            free = (start + place for start, places in parts for place in places if held[start + place] == 0)
            position = next(free, None)
            if position is not None:
                firsts[kind] = position
        tally = 0
        for group in self._groups:
            states = group.pick(held)
            state = group.memory.states.get(states) or group.state(states)
            if state is None:
                return None
            tally += state.tally
            for number, kind in state.offers:
                position = group.positions[number]
                if position < firsts.get(kind, position + 1):
                    firsts[kind] = position
        chosen = self._choose(firsts)
        if chosen is None:
            return NotFound(self._request, frozenset(self._causes(held)))
        position = firsts[chosen]
        share = self._free_without(position, held)
        if self._tallies is None:
            return self._merit(chosen, share, 0, 0)
        before = tally + sum([facts.tally_left(held[start:end]) for start, end, facts in self._spans])
        taken_of = self._group_of.get(position)
        taken = self._tally_at(position) if taken_of is None else taken_of.taken_by(position, taken_of.pick(held))
        return self._merit(chosen, share, before, before - taken)

    def _tally_at(self, position: int) -> int:
        """The tally of a device."""
        start, _, facts = self._spans[bisect_right(self._spans, position, key=_START) - 1]
        return facts.devices[position - start].tally

    def _merit(self, kind: DeviceKind, free: float, before: int, after: int) -> Merit:
        """The merit of a device; ``before``, ``after``: tallies of what is left, 0 if that does not count."""
        key = kind, free, before, after
        found = self._merits.get(key)
        if found is None:
            if len(self._merits) >= _MAX_KNOWN:
                self._merits.clear()
            if self._tallies is None:
                found = kind.merit._replace(free=free)
            else:
                leftover = self._tallies.leftover
                found = kind.merit._replace(free=free, before=leftover(before), after=leftover(after))
            self._merits[key] = found
        return found

    def _free_without(self, position: int, held: States) -> float:
        """The share of a pool's devices that is free when one more is taken."""
        start, end, _ = self._pools[0]
        if len(self._pools) > 1:
            start, end, _ = next(each for each in self._pools if each.start <= position < each.end)
        return (held[start:end].count(0) - 1) / (end - start)

    def _causes(self, held: States) -> Iterator[Cause]:
        """What speaks against each device that the node can reach, if the request gets none of them."""
        for _, _, spans in self._pools:
            for start, end, facts in spans:
                yield from facts.causes_among(held[start:end])


def single_of(
    task: Task, selectors: Selectors, policy: Policy, reads: AttributeReads, budget: SearchBudget, known: KnownFacts
) -> Single | None:
    """The `Single` for all nodes that differ from the task's node only in what is held; None: only a search can tell.

    Of the task, whose claims are `is_single`, the usage is not read.

    Args:
        task: the claims, and one of the nodes, with all slices of its pools.
        selectors: evaluates selectors.
        policy: chooses the device.
        reads: what the claims and the policy read of devices. Devices that differ in nothing of it are judged once.
        budget: the limits.
        known: the facts about slices that tasks with these claims, classes, features and policy have met. The slices of
            this task are added.

    Raises:
        SearchLimitError: a limit was reached.
    """
    if policy.single is None or policy.weigh is not None or any(pool.problem for pool in task.pools):
        return None
    if policy.weighs_leftover and not task.features.partitionable_devices:
        return None  # counters then count in what is left, but not in the choice
    counters = {key: amount for pool in task.pools for key, amount in full(pool).items()}
    parts = Parts(counters) if policy.weighs_leftover else None
    try:
        budget.step()
        found = facts_of(task, selectors, reads, budget, known, parts)
    except SearchLimitError:
        raise
    except (AllocatorError, TooManyModelsError):
        return None
    if found is None:
        return None
    label, pools = found
    return Single(label, pools, counters, policy.single, None if parts is None else known.tallies)
