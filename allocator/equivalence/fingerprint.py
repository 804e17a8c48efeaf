"""Fingerprints: what a decision depends on, as values that can be compared.

Each function turns one part of a node's situation into a value. Values are compared pool by pool, in the order in which
a node sees its pools. If all values of two nodes are equal, `allocate` gives both nodes the same answer; only the names
of nodes, pools and devices in the answer differ. A fingerprint leaves out names, attributes that no expression reads,
and the value that devices share under a constraint.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple, TypeGuard, cast
from weakref import WeakKeyDictionary

from allocator.cel import CompileError, Reads
from allocator.cel.selectors import Selectors
from allocator.checks import table as checks
from allocator.checks.in_use import state_of
from allocator.checks.taint_rules import TaintRules
from allocator.model.claims import AllocationMode, Claim, DeviceRequest
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import AttributeValue
from allocator.model.nodes import Node
from allocator.model.slices.device import Device
from allocator.policies.policy import Policy
from allocator.pools import Candidate, NodePool, SliceView
from allocator.reason import Cause
from allocator.search.constraints import CONSTRAINTS, exact, values_of
from allocator.search.limits import SearchBudget
from allocator.usage import PoolUsage

_ABSENT: Final = object()
_FREE_OR_HELD: Final = frozenset({0, 1})
_TEXTS: Final = {str}
_PLAIN: Final = frozenset({str, bool, int, object})
"""Types whose equal values are the same to every expression, as long as no other type is among them."""
_UNREAD: Final = frozenset({"id", "attributes", "consumes_counters"})
_FIELDS: Final = attrgetter(*(each.name for each in fields(Device) if each.name not in _UNREAD))
"""The fields of a device that many devices of a slice share, as identical objects."""


@dataclass(frozen=True, slots=True)
class AttributeReads:
    """Which attributes of devices some claims read. The other fields of a device count for every claim.

    Attributes:
        everything: an expression may read any attribute.
        values: attributes whose values matter; qualified names, sorted.
        matched: attributes where only this matters: which devices have a value in common.
        in_order: of several equal devices it matters which ones are held. Requests with admin access get held
            devices, and a request for all devices ends at the first device that it can't have.
    """

    everything: bool = False
    values: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    in_order: bool = False


def attribute_reads_of(
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    selectors: Selectors,
    budget: SearchBudget,
    policy: Policy,
) -> AttributeReads:
    """What claims read in all alternatives of their requests, and what the policy reads.

    An expression that does not compile reads nothing: it fails on every device.

    Raises:
        SearchLimitError: time was up before all expressions were compiled. The next call need not compile these again.
    """
    expressions = list(_expressions(claims, classes, selectors))
    if policy.weighs_classes:
        expressions += [(selectors.reads, text) for each in classes.values() for text in each.selectors]
    read = list(_reads(expressions, budget))
    values = {name for reads in read for name in reads.attributes} | set(policy.reads)
    specs = [spec for claim in claims for spec in claim.spec.constraints if spec.kind in CONSTRAINTS]
    values |= {spec.attribute for spec in specs if CONSTRAINTS[spec.kind].reads_values}
    matched = {spec.attribute for spec in specs}
    everything = any(reads.everything for reads in read)
    in_order = any(r.admin_access or r.mode is AllocationMode.ALL for r in _requests(claims))
    return AttributeReads(everything, tuple(sorted(values)), tuple(sorted(matched - values)), in_order)


def _requests(claims: Iterable[Claim]) -> Iterator[DeviceRequest]:
    return (alternative for claim in claims for request in claim.spec.requests for alternative in request.alternatives)


def _expressions(
    claims: Iterable[Claim], classes: Mapping[str, DeviceClass], selectors: Selectors
) -> Iterator[tuple[Callable[[str], Reads], str]]:
    """The expressions of claims and their classes, each with the function that returns what it reads."""
    for request in _requests(claims):
        device_class = classes.get(request.device_class)
        texts = request.selectors if device_class is None else (*device_class.selectors, *request.selectors)
        yield from ((selectors.reads, text) for text in texts)
        yield from ((selectors.derivation_reads, each.expression) for each in request.derived_attributes)


def _reads(expressions: Iterable[tuple[Callable[[str], Reads], str]], budget: SearchBudget) -> Iterator[Reads]:
    for reads_of, text in expressions:
        budget.look()
        try:
            yield reads_of(text)
        except CompileError:
            continue


def slice_structure(view: SliceView) -> Hashable:
    """What drivers publish of a slice, without attributes."""
    published = _Published()
    return tuple([published.of(candidate) for candidate in view.candidates]), tuple(published.numbers)


def pool_structure(view: NodePool, slices: Sequence[Hashable]) -> Hashable:
    """What drivers publish of a pool, without attributes.

    Args:
        view: the pool, with all devices of its slices.
        slices: for each slice of the pool, its `slice_structure`, or a value that stands for it.
    """
    if view.problem:
        return view.id.driver, view.incomplete
    counter_sets = view.counter_sets.items()
    return (
        view.id.driver,
        view.has_binding_conditions,
        tuple(slices),
        tuple([checks.drawn_by(device) for device in view.elsewhere]),
        tuple([(name, tuple([(n, each.nano) for n, each in counters.items()])) for name, counters in counter_sets]),
    )


def attribute_column(view: SliceView, attribute: str) -> Hashable:
    """The values of an attribute, device by device."""
    values = tuple([of_device.get(attribute, _ABSENT) for of_device in view.attributes])
    types = [*map(type, values)]
    first = types[0] if types else None
    if first in _PLAIN and types.count(first) == len(types):
        return first, values
    return tuple(map(_typed, values))


def attribute_columns(view: SliceView) -> Hashable:
    """The values of all attributes, device by device."""
    return tuple(
        tuple((name, _typed(value)) for name, value in sorted(of_device.items())) for of_device in view.attributes
    )


def common_values(views: Sequence[NodePool], attribute: str) -> tuple[Hashable, ...]:
    """Devices that have a value in common have the same number, -1 without a value; the values, if there are lists."""
    values = [of_device.get(attribute) for view in views for of_device in view.attributes]
    numbers: dict[Hashable, int] = {}
    if set(map(type, values)) == _TEXTS:
        return tuple([numbers.setdefault(value, len(numbers)) for value in values])
    if any(isinstance(value, tuple) for value in values):
        return tuple([None if value is None else exact(value) for value in values])
    return tuple([-1 if value is None else numbers.setdefault(values_of(value), len(numbers)) for value in values])


def device_circumstances(view: NodePool, node: Node, used: PoolUsage, rules: TaintRules) -> tuple[Hashable, ...]:
    """What decisions read of a pool's devices beyond what drivers publish; empty if there is nothing.

    If any device of the pool is held, the first values are 0 for each candidate that is free, and `state_of` for each
    other one, then the same for the devices in `NodePool.elsewhere`. The values of checks follow
    (`checks.circumstances`).
    """
    states: list[Hashable] = []
    if used:
        names = [candidate.device.id.device for candidate in view.candidates]
        names += [device.id.device for device in view.elsewhere]
        states = [0 if usage is None else state_of(usage) for usage in map(used.get, names)]
    return (*states, *checks.circumstances(view, node, rules))


def interchangeable(states: tuple[Hashable, ...], runs: Iterable[int]) -> tuple[Hashable, ...]:
    """Circumstances with the states of each run sorted: equal if only other devices of a run are held.

    The states of a run whose devices differ in a circumstance keep their order: a rule may taint one of the devices.

    Args:
        states: of a pool (`device_circumstances`).
        runs: of the same pool (`KnownRuns`).
    """
    found: list[Hashable] = []
    columns = [values for _, values in filter(_is_of_check, states)]
    for length in runs:
        run = slice(len(found), len(found) + length)
        of_run = states[run]
        is_alike = _FREE_OR_HELD.issuperset(of_run) and all(len(set(values[run])) <= 1 for values in columns)
        found += sorted(of_run, key=bool) if is_alike else of_run
    return (*found, *states[len(found) :])


def _is_of_check(value: Hashable) -> TypeGuard[tuple[Cause, tuple[Hashable, ...]]]:
    """Whether a value is what a check reads of a pool, and not the state of a device."""
    return isinstance(value, tuple) and isinstance(value[0], Cause)


class _SliceRuns(NamedTuple):
    """The runs of a slice that has devices: their lengths, and what is read of its first and of its last device.

    The last two are None if there is no other slice to join.
    """

    lengths: tuple[int, ...]
    first: Hashable
    last: Hashable


_NO_DEVICES: Final = _SliceRuns((), None, None)


@dataclass(frozen=True, slots=True, eq=False)
class KnownRuns:
    """The runs of pools: devices in a row that differ only in their names and circumstances.

    The runs of a slice are known as long as the slice is there, unless its node has no other slice. So after a change
    of one slice of a large pool, the devices of this slice alone are read. Safe to use from several threads.

    Attributes:
        reads: what is read of devices.
    """

    reads: AttributeReads
    _of: WeakKeyDictionary[SliceView, _SliceRuns] = field(init=False, default_factory=WeakKeyDictionary)

    def of(self, views: Sequence[NodePool]) -> tuple[tuple[int, ...], ...]:
        """Per pool, the lengths of its runs; ``views``: with all devices of their slices."""
        published, stays = _Published(), sum([len(view.slices) for view in views]) > 1
        return tuple(
            [_joined([self._of_slice(each, published, stays=stays) for each in view.slices]) for view in views]
        )

    def _of_slice(self, view: SliceView, published: "_Published", *, stays: bool) -> _SliceRuns:
        found = self._of.get(view)
        if found is None:
            found = self._found(view, published, is_joined=stays)
            if stays:
                self._of[view] = found
        return found

    def _found(self, view: SliceView, published: "_Published", *, is_joined: bool) -> _SliceRuns:
        if not view.candidates:
            return _NO_DEVICES
        candidates, values = view.candidates, [*_values(view, self.reads, self.reads.matched)]
        runs = groupby(zip(map(published.of, candidates), values, strict=True))
        ends = [(_read_of(candidates[place]), values[place]) if is_joined else None for place in (0, -1)]
        return _SliceRuns(tuple([len(list(run)) for _, run in runs]), *ends)


def _joined(slices: Iterable[_SliceRuns]) -> tuple[int, ...]:
    """The lengths of the runs of slices, one after the other."""
    found: list[int] = []
    before: _SliceRuns | None = None
    for each in slices:
        if not each.lengths:
            continue
        lengths = each.lengths
        if before is not None and before.last == each.first:
            found[-1] += lengths[0]
            lengths = lengths[1:]
        found += lengths
        before = each
    return tuple(found)


def _read_of(candidate: Candidate) -> Hashable:
    """What is read of a device, without attributes."""
    return checks.read_of(candidate), checks.drawn_by(candidate.device)


def _values(view: SliceView, reads: AttributeReads, more: tuple[str, ...] = ()) -> Iterator[Hashable]:
    """The attributes that are read of each candidate, and some more."""
    some = (*reads.values, *more)
    for of_device in view.attributes:
        names = (*sorted(of_device), *more) if reads.everything else some
        yield tuple([(name, _typed(of_device.get(name, _ABSENT))) for name in names])


class Rows:
    """Values for candidates: equal for those that differ in names, circumstances and consumed counters alone.

    Args:
        reads: what is read of devices.
    """

    def __init__(self, reads: AttributeReads) -> None:
        self._reads = reads
        self._published = _Published()

    def of(self, view: SliceView) -> Iterator[Hashable]:
        """A value for each candidate of a slice."""
        for c, values in zip(view.candidates, _values(view, self._reads), strict=True):
            yield c.device.driver, self._published.number(c), bool(c.device.consumes_counters), values


class _Published:
    """The parts of published devices that decisions read. Devices with identical fields are read once.

    Attributes:
        numbers: what checks read, to the number that stands for it.
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self._known: dict[Hashable, int] = {}

    def of(self, candidate: Candidate) -> Hashable:
        """What is read of a device."""
        found, device = self.number(candidate), candidate.device
        return (found, checks.drawn_by(device)) if device.consumes_counters else found

    def number(self, candidate: Candidate) -> int:
        """The number of what checks read of a device. Counters are left out."""
        key = id(candidate.slice), candidate.unsupported, *map(id, _FIELDS(candidate.device))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.numbers.setdefault(checks.read_of(candidate), len(self.numbers))
        return found


def _typed(value: AttributeValue | object) -> Hashable:
    """Equal for values that are `exact`ly equal; None for an attribute that the device does not have."""
    if type(value) is str:  # equals no value of another type
        return value
    return None if value is _ABSENT else exact(cast("AttributeValue", value))
