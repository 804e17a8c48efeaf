"""What a decision depends on, names aside: nodes that are alike in it get the same answer.

Every function here turns a part of a node's situation into a value; where two nodes agree in all of them, pool by pool
in the order in which the node sees them, `allocate` answers the same for both, but for the names of nodes, pools and
devices in it. Whatever might matter is in; what is left out are names, attributes that nobody looks at, and which
value it is that devices share under a constraint.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from allocator.cel import CompileError, Reads
from allocator.constraints import values_of
from allocator.model import (
    AllocationMode,
    AttributeValue,
    Capacity,
    Claim,
    CounterConsumption,
    Device,
    DeviceClass,
    DeviceRequest,
    DeviceTaint,
    Node,
    Placement,
    Slice,
    TaintRule,
)
from allocator.nodes import placement_matches
from allocator.pools import NodePool
from allocator.quantity import Quantity
from allocator.selectors import Selectors
from allocator.taints import TaintRules
from allocator.usage import DeviceUsage, PoolUsage

_ABSENT: Final = object()
_FREE_OR_HELD: Final = frozenset({0, 1})
_TEXTS: Final = {str}
_PLAIN: Final = frozenset({str, bool, int, object})
"""Types of values of which those of one type are equal only if they are the same to everybody."""


@dataclass(frozen=True, slots=True)
class Lens:
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


def lens_of(claims: Sequence[Claim], classes: Mapping[str, DeviceClass], selectors: Selectors) -> Lens:
    """What claims look at, all alternatives of their requests taken together.

    An expression that does not compile fails whatever the device is like, so it looks at nothing.
    """
    read = list(_reads(claims, classes, selectors))
    values = {name for reads in read for name in reads.attributes}
    matched = {constraint.attribute for claim in claims for constraint in claim.spec.constraints}
    everything = any(reads.everything for reads in read)
    in_order = any(r.admin_access or r.mode is AllocationMode.ALL for r in _requests(claims))
    return Lens(everything, tuple(sorted(values)), tuple(sorted(matched - values)), in_order)


def _requests(claims: Iterable[Claim]) -> Iterator[DeviceRequest]:
    return (alternative for claim in claims for request in claim.spec.requests for alternative in request.alternatives)


def _reads(claims: Iterable[Claim], classes: Mapping[str, DeviceClass], selectors: Selectors) -> Iterator[Reads]:
    for request in _requests(claims):
        device_class = classes.get(request.device_class)
        expressions = request.selectors if device_class is None else (*device_class.selectors, *request.selectors)
        looks = [(selectors.reads, text) for text in expressions]
        looks += [(selectors.derivation_reads, each.expression) for each in request.derived_attributes]
        for reads_of, text in looks:
            try:
                yield reads_of(text)
            except CompileError:
                continue


def structure(view: NodePool) -> Hashable:
    """What there is of a pool, attributes aside."""
    if view.problem:
        return view.id.driver, view.incomplete
    slices: dict[Slice, int] = {}
    facts = _Facts()
    devices = tuple(
        (slices.setdefault(c.slice, len(slices)), c.unsupported, facts.of(c.device)) for c in view.candidates
    )
    return (
        view.id.driver,
        view.has_binding_conditions,
        tuple((s.per_device_placement, bool(s.skip_node_operations), _range(s.placement)) for s in slices),
        devices,
        tuple(facts.of(device) for device in view.elsewhere),
        tuple(facts.amounts),
        tuple((name, tuple(_amounts(counters))) for name, counters in view.counter_sets.items()),
    )


def column(view: NodePool, attribute: str) -> Hashable:
    """The values of an attribute, device by device."""
    values = tuple([of_device.get(attribute, _ABSENT) for of_device in view.attributes])
    types = set(map(type, values))
    if len(types) == 1 and _PLAIN.issuperset(types):
        return types.pop(), values
    return tuple(map(_told_apart, values))


def all_columns(view: NodePool) -> Hashable:
    """The values of all attributes, device by device."""
    return tuple(
        tuple((name, _told_apart(value)) for name, value in sorted(of_device.items())) for of_device in view.attributes
    )


def pattern(views: Sequence[NodePool], attribute: str) -> tuple[Hashable, ...]:
    """Which devices of some pools have a value of an attribute in common; of lists, the values themselves."""
    values = [of_device.get(attribute, ()) for view in views for of_device in view.attributes]
    numbers: dict[Hashable, int] = {}
    if set(map(type, values)) == _TEXTS:
        return tuple([numbers.setdefault(value, len(numbers)) for value in values])
    if any(value and isinstance(value, tuple) for value in values):
        return tuple(map(_told_apart, values))
    return tuple([-1 if value == () else numbers.setdefault(values_of(value), len(numbers)) for value in values])


def circumstances(view: NodePool, node: Node, used: PoolUsage, rules: TaintRules) -> tuple[Hashable, ...]:
    """What has come over the pool's devices, one by one: what is held, tainted by rules, out of the node's reach.

    Empty if nothing has; 0 and 1 for devices of which nothing is known but that they are free, or held as a whole.
    Devices of other nodes that draw on the same counters stand at the end.
    """
    devices = [c.device for c in view.candidates]
    states: list[Hashable] = []
    if used:
        states = [_holding(used.get(device.id.device)) for device in (*devices, *view.elsewhere)]
    if any(_may_select(view, rule) for rule in rules.rules) or any(
        c.slice.per_device_placement for c in view.candidates
    ):
        more = [(tuple(map(_taint, rules.taints_of(d.id))), _is_reached(d, node)) for d in devices]
        states += more
    return tuple(states)


def settled(states: tuple[Hashable, ...], runs: Iterable[int]) -> tuple[Hashable, ...]:
    """The same for circumstances of a pool that differ only in which devices of a run are held."""
    found: list[Hashable] = []
    for length in runs:
        of_run = states[len(found) : len(found) + length]
        found += sorted(of_run, key=bool) if _FREE_OR_HELD.issuperset(of_run) else of_run
    return (*found, *states[len(found) :])


def runs_of(views: Sequence[NodePool], lens: Lens) -> tuple[tuple[int, ...], ...]:
    """Per pool, how many devices in a row are alike in everything but their names and circumstances, run by run."""
    patterns = [pattern(views, attribute) for attribute in lens.matched]
    found, start = [], 0
    for view in views:
        end = start + len(view.candidates)
        rows = _rows(view, lens, [each[start:end] for each in patterns])
        found.append(tuple(len(list(run)) for _, run in groupby(rows)))
        start = end
    return tuple(found)


def _rows(view: NodePool, lens: Lens, patterns: Sequence[Sequence[Hashable]]) -> Iterator[Hashable]:
    facts = _Facts()
    for number, c in enumerate(view.candidates):
        names = sorted(c.device.attributes) if lens.everything else lens.values
        values = tuple((name, _told_apart(c.device.attributes.get(name, _ABSENT))) for name in names)
        yield id(c.slice), c.unsupported, facts.of(c.device), values, [p[number] for p in patterns]


class _Facts:
    """Everything about devices but attributes. Devices of a slice share their amounts, which are looked at once.

    Attributes:
        amounts: what there is of capacities, with the number that stands for it in facts.
    """

    def __init__(self) -> None:
        self.amounts: dict[Hashable, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def of(self, device: Device) -> Hashable:
        """What is to be known of a device."""
        return (
            self._capacity(device),
            device.allow_multiple_allocations,
            device.binds_to_node,
            device.binding_conditions,
            tuple(map(_taint, device.taints)) if device.taints else (),
            tuple(map(_consumption, device.consumes_counters)) if device.consumes_counters else (),
            _range(device.placement),
        )

    def _capacity(self, device: Device) -> int:
        identity = id(device.capacity), id(device.quantities)
        number = self._numbers.get(identity)
        if number is None:
            published = tuple((name, _capacity(capacity)) for name, capacity in device.capacity.items())
            amounts = (published, tuple(_amounts(device.quantities)))
            number = self._numbers[identity] = self.amounts.setdefault(amounts, len(self.amounts))
        return number


def _amounts(amounts: Mapping[str, Quantity]) -> Iterator[Hashable]:
    return ((name, amount.nano, amount.format) for name, amount in amounts.items())


def _consumption(consumed: CounterConsumption) -> Hashable:
    return consumed.counter_set, tuple(_amounts(consumed.counters)), consumed.compatibility_groups


def _capacity(capacity: Capacity) -> Hashable:
    return capacity.value.nano, capacity.value.format, capacity.policy


def _taint(taint: DeviceTaint) -> Hashable:
    return taint.key, taint.value, taint.effect


def _range(placement: Placement | None) -> Hashable:
    """For whom devices are, as far as it decides: for one node, or for those that so many terms select."""
    if placement is None:
        return None
    terms = placement.node_selector.terms if placement.node_selector is not None else ()
    return bool(placement.node_name), min(len(terms), 2)


def _holding(usage: DeviceUsage | None) -> Hashable:
    if usage is None:
        return 0
    if not usage.shares and not usage.consumed:
        return 1
    return usage.holders > 0, bool(usage.shares), frozenset(usage.consumed.items())


def _may_select(view: NodePool, rule: TaintRule) -> bool:
    return rule.driver in (None, view.id.driver) and rule.pool in (None, view.id.pool)


def _is_reached(device: Device, node: Node) -> bool:
    return device.placement is None or placement_matches(device.placement, node)


def _told_apart(value: AttributeValue | object) -> Hashable:
    """An attribute such that ``True``, ``1``, lists and versions stay apart."""
    if value is _ABSENT:
        return None
    elements = value if isinstance(value, tuple) else (value,)
    return isinstance(value, tuple), tuple((type(e).__name__, str(e)) for e in elements)
