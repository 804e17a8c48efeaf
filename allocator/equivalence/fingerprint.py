"""What a decision depends on, names aside: nodes that are alike in it get the same answer.

Every function here turns a part of a node's situation into a value; where two nodes agree in all of them, pool by pool
in the order in which the node sees them, `allocate` answers the same for both, but for the names of nodes, pools and
devices in it. Whatever might matter is in; what is left out are names, attributes that nobody looks at, and which
value it is that devices share under a constraint.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import attrgetter
from typing import Final

from allocator.cel import CompileError, Reads
from allocator.cel.selectors import Selectors
from allocator.checks import table as checks
from allocator.checks.in_use import state_of
from allocator.checks.taint_rules import TaintRules
from allocator.model.claims import AllocationMode, Claim, DeviceClass, DeviceRequest
from allocator.model.devices import AttributeValue, Device, Node
from allocator.pools import Candidate, NodePool
from allocator.search.constraints import CONSTRAINTS, values_of
from allocator.search.limits import SearchBudget
from allocator.usage import PoolUsage

_ABSENT: Final = object()
_FREE_OR_HELD: Final = frozenset({0, 1})
_TEXTS: Final = {str}
_PLAIN: Final = frozenset({str, bool, int, object})
"""Types of values of which those of one type are equal only if they are the same to everybody."""
_UNREAD: Final = frozenset({"id", "attributes", "consumes_counters"})
_FIELDS: Final = attrgetter(*(each.name for each in fields(Device) if each.name not in _UNREAD))
"""What checks read, all but names, attributes, and what is drawn, which hardly two devices share."""


@dataclass(frozen=True, slots=True)
class AttributeReads:
    """Which attributes of devices some claims look at. All else about a device counts for every claim.

    Attributes:
        everything: it can't be told: all of them.
        values: those whose values matter; qualified names, sorted.
        matched: those of which it only matters which devices have a value in common.
        in_order: it matters which of several devices that are alike are held: requests with admin access get held
            ones, and one for all devices ends at the first that it can't have.
    """

    everything: bool = False
    values: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    in_order: bool = False


def attribute_reads_of(
    claims: Sequence[Claim], classes: Mapping[str, DeviceClass], selectors: Selectors, budget: SearchBudget
) -> AttributeReads:
    """What claims look at, all alternatives of their requests taken together.

    An expression that does not compile fails whatever the device is like, so it looks at nothing.

    Raises:
        SearchLimitError: time is up before all expressions are compiled; those that are will be known the next time.
    """
    read = list(_reads(claims, classes, selectors, budget))
    values = {name for reads in read for name in reads.attributes}
    specs = [spec for claim in claims for spec in claim.spec.constraints if spec.kind in CONSTRAINTS]
    matched = {name for spec in specs for name in CONSTRAINTS[spec.kind].reads(spec)}
    everything = any(reads.everything for reads in read)
    in_order = any(r.admin_access or r.mode is AllocationMode.ALL for r in _requests(claims))
    return AttributeReads(everything, tuple(sorted(values)), tuple(sorted(matched - values)), in_order)


def _requests(claims: Iterable[Claim]) -> Iterator[DeviceRequest]:
    return (alternative for claim in claims for request in claim.spec.requests for alternative in request.alternatives)


def _reads(
    claims: Iterable[Claim], classes: Mapping[str, DeviceClass], selectors: Selectors, budget: SearchBudget
) -> Iterator[Reads]:
    for request in _requests(claims):
        device_class = classes.get(request.device_class)
        expressions = request.selectors if device_class is None else (*device_class.selectors, *request.selectors)
        looks = [(selectors.reads, text) for text in expressions]
        looks += [(selectors.derivation_reads, each.expression) for each in request.derived_attributes]
        for reads_of, text in looks:
            budget.look()
            try:
                yield reads_of(text)
            except CompileError:
                continue


def pool_structure(view: NodePool) -> Hashable:
    """What there is of a pool, attributes aside."""
    if view.problem:
        return view.id.driver, view.incomplete
    published = _Published()
    counter_sets = view.counter_sets.items()
    return (
        view.id.driver,
        view.has_binding_conditions,
        tuple([published.of(candidate) for candidate in view.candidates]),
        tuple(published.numbers),
        tuple([checks.drawn_by(device) for device in view.elsewhere]),
        tuple([(name, tuple([(n, each.nano) for n, each in counters.items()])) for name, counters in counter_sets]),
    )


def attribute_column(view: NodePool, attribute: str) -> Hashable:
    """The values of an attribute, device by device."""
    values = tuple([of_device.get(attribute, _ABSENT) for of_device in view.attributes])
    types = set(map(type, values))
    if len(types) == 1 and _PLAIN.issuperset(types):
        return types.pop(), values
    return tuple(map(_told_apart, values))


def attribute_columns(view: NodePool) -> Hashable:
    """The values of all attributes, device by device."""
    return tuple(
        tuple((name, _told_apart(value)) for name, value in sorted(of_device.items())) for of_device in view.attributes
    )


def common_values(views: Sequence[NodePool], attribute: str) -> tuple[Hashable, ...]:
    """Which devices of some pools have a value of an attribute in common; of lists, the values themselves."""
    values = [of_device.get(attribute, ()) for view in views for of_device in view.attributes]
    numbers: dict[Hashable, int] = {}
    if set(map(type, values)) == _TEXTS:
        return tuple([numbers.setdefault(value, len(numbers)) for value in values])
    if any(value and isinstance(value, tuple) for value in values):
        return tuple(map(_told_apart, values))
    return tuple([-1 if value == () else numbers.setdefault(values_of(value), len(numbers)) for value in values])


def device_circumstances(view: NodePool, node: Node, used: PoolUsage, rules: TaintRules) -> tuple[Hashable, ...]:
    """What has come over the pool's devices: what is held, and what else is not published of them.

    Empty if nothing has. What is held stands first, one by one, if anything is: 0 and 1 for devices of which nothing
    is known but that they are free, or held as a whole; then those of other nodes that draw on the same counters.
    """
    states: list[Hashable] = []
    if used:
        devices = (*(c.device for c in view.candidates), *view.elsewhere)
        states = [state_of(used.get(device.id.device)) for device in devices]
    return (*states, *checks.circumstances(view, node, rules))


def interchangeable(states: tuple[Hashable, ...], runs: Iterable[int]) -> tuple[Hashable, ...]:
    """The same for circumstances of a pool that differ only in which devices of a run are held."""
    found: list[Hashable] = []
    for length in runs:
        of_run = states[len(found) : len(found) + length]
        found += sorted(of_run, key=bool) if _FREE_OR_HELD.issuperset(of_run) else of_run
    return (*found, *states[len(found) :])


def runs_of(views: Sequence[NodePool], reads: AttributeReads) -> tuple[tuple[int, ...], ...]:
    """Per pool, how many devices in a row are alike in everything but their names and circumstances, run by run."""
    patterns = [common_values(views, attribute) for attribute in reads.matched]
    found, start = [], 0
    for view in views:
        end = start + len(view.candidates)
        rows = _rows(view, reads, [each[start:end] for each in patterns])
        found.append(tuple(len(list(run)) for _, run in groupby(rows)))
        start = end
    return tuple(found)


def _rows(view: NodePool, reads: AttributeReads, patterns: Sequence[Sequence[Hashable]]) -> Iterator[Hashable]:
    published = _Published()
    for number, c in enumerate(view.candidates):
        names = sorted(c.device.attributes) if reads.everything else reads.values
        values = tuple((name, _told_apart(c.device.attributes.get(name, _ABSENT))) for name in names)
        yield published.of(c), values, [p[number] for p in patterns]


class _Published:
    """What decisions read of published devices. What checks read, devices of a slice mostly share: it is read once.

    Attributes:
        numbers: what checks read, with the number that stands for it.
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self._known: dict[Hashable, int] = {}

    def of(self, candidate: Candidate) -> Hashable:
        """What is read of a device."""
        device = candidate.device
        key = id(candidate.slice), candidate.unsupported, *map(id, _FIELDS(device))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.numbers.setdefault(checks.read_of(candidate), len(self.numbers))
        return (found, checks.drawn_by(device)) if device.consumes_counters else found


def _told_apart(value: AttributeValue | object) -> Hashable:
    """An attribute such that ``True``, ``1``, lists and versions stay apart."""
    if value is _ABSENT:
        return None
    elements = value if isinstance(value, tuple) else (value,)
    return isinstance(value, tuple), tuple((type(e).__name__, str(e)) for e in elements)
