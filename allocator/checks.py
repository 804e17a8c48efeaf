"""The checks of devices, in order: what can speak against a device, when it is switched on, and what it is given.

Who looks for a device takes the first check that speaks (`Checks.all`), an explanation goes through all of them
(`Checks.told`, `books`), and equivalence is what the checks read (`read_of`, `drawn_of`, `circumstances`). A new
feature of devices is a module with its check, and a line here.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from allocator.binding import BindingCheck
from allocator.capacity import CapacityCheck
from allocator.check import Asked, Book, Check, Refusal
from allocator.compatibility import Compatibility
from allocator.counters import Counters, PartitionCheck
from allocator.features import Features
from allocator.in_use import InUseCheck
from allocator.matching import Matcher, SelectorCheck
from allocator.model import Device, Node, PoolId
from allocator.node_operations import NodeOperationsCheck
from allocator.placement import PlacementCheck
from allocator.pools import Candidate, NodePool
from allocator.taints import TaintCheck, TaintRules
from allocator.usage import DeviceUsage, Usage


class Question(NamedTuple):
    """Who asks for devices, where, and by which rules."""

    asked: Asked
    node: Node
    rules: TaintRules
    features: Features
    matcher: Matcher


class Entry(NamedTuple):
    """A check, and how it is made for a question: None if it is switched off."""

    check: type[Check]
    made: Callable[[Question], Check | None]


_IN_USE: Final = (Entry(InUseCheck, lambda q: None if q.asked.request.admin_access else InUseCheck()),)
_MATCHING: Final = (
    Entry(BindingCheck, lambda q: None if q.features.binding_conditions else BindingCheck()),
    Entry(SelectorCheck, lambda q: SelectorCheck(q.asked, q.matcher)),
    Entry(PlacementCheck, lambda q: PlacementCheck(q.node)),
)
"""What a device must pass to be of the kind that is asked for."""
_CAPACITY: Final = Entry(
    CapacityCheck,
    lambda q: (
        CapacityCheck(q.asked, fractional=q.features.fractional_capacity_range)
        if q.features.consumable_capacity
        else None
    ),
)
_ALLOCATABLE: Final = (
    Entry(NodeOperationsCheck, lambda q: NodeOperationsCheck(q.node, is_on=q.features.optional_node_operations)),
    Entry(PartitionCheck, lambda q: None if q.features.partitionable_devices else PartitionCheck()),
    Entry(TaintCheck, lambda q: TaintCheck(q.asked.request.tolerations, q.rules) if q.features.device_taints else None),
)
CHECKS: Final = (*_IN_USE, *_MATCHING, _CAPACITY, *_ALLOCATABLE)
"""In upstream's order, which decides which error a pod meets."""

BOOKS: Final = (Compatibility, Counters)
"""What devices use up together, in upstream's order."""


class Checks:
    """The checks of one question that are switched on.

    Attributes:
        matching: those of the kind of device.
        membership: those that decide which devices are "all devices": total capacity counts, not what is left of it.
        all: in upstream's order.
        capacity: knows what the request takes of shared devices.
    """

    __slots__ = ("all", "capacity", "matching", "membership")

    def __init__(self, question: Question) -> None:
        capacity = _CAPACITY.made(question)
        self.capacity = capacity if isinstance(capacity, CapacityCheck) else None
        self.matching = _made(_MATCHING, question)
        self.membership = self.matching if capacity is None else (*self.matching, capacity)
        self.all = (*_made(_IN_USE, question), *self.membership, *_made(_ALLOCATABLE, question))

    @property
    def told(self) -> Iterable[Check]:
        """In the order of explanations: a held device that would not match if it were free does not match."""
        return sorted(self.all, key=lambda check: isinstance(check, InUseCheck))


def _made(entries: Iterable[Entry], question: Question) -> tuple[Check, ...]:
    return tuple([check for each in entries if (check := each.made(question)) is not None])


def first_refusal(checks: Iterable[Check], candidate: Candidate, used: DeviceUsage) -> Refusal | None:
    """What the first check that speaks says.

    Raises:
        SelectorError, CapacityError, SearchLimitError: as `Check.speaks`.
    """
    for check in checks:
        refusal = check.speaks(candidate, used)
        if refusal is not None:
            return refusal
    return None


def books(counters: Counters, pools: Mapping[PoolId, NodePool], usage: Usage, features: Features) -> tuple[Book, ...]:
    """The books of some pools, as far as they are switched on."""
    if not features.partitionable_devices:
        return ()
    return (*([Compatibility(pools, usage)] if features.compatibility_groups else []), counters)


def needs_search(checks: Checks, candidate: Candidate) -> bool:
    """Whether it takes more than the knowledge which devices are held to tell who gets this one."""
    return any(check.needs_search(candidate) for check in checks.all) or any(
        book.needs_search(candidate.device) for book in BOOKS
    )


def read_of(candidate: Candidate) -> Hashable:
    """All that decisions read of a published device, attributes and names aside."""
    return tuple([entry.check.reads(candidate) for entry in CHECKS]), drawn_of(candidate.device)


def drawn_of(device: Device) -> tuple[Hashable, ...]:
    """What a device takes of what devices use up together."""
    return tuple([book.reads(device) for book in BOOKS])


def circumstances(view: NodePool, node: Node, rules: TaintRules) -> Iterator[Hashable]:
    """What decisions read of a pool's devices besides what is published and held, check by check."""
    for check in (PlacementCheck(node), NodeOperationsCheck(node, is_on=True), TaintCheck((), rules)):
        found = check.circumstances(view)
        if found:
            yield check.cause, tuple(found)
