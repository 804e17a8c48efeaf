"""The table of checks: all reasons to reject a device, in order.

The search stops at the first check that rejects a device (`Checks.all`). An explanation tells what every check says
(`Checks.told`, `books`). Fingerprints hold what the checks read (`read_of`, `drawn_by`, `circumstances`).

A new feature of devices needs a module with its check, and the name of that check in this table. The check has the
reason for filter, the words of explanations, tables and the console, and the state of a device that it refuses
(`unusable`, unless the check names another). A new field is an attribute of `Device`, and an entry of `FIELDS` in the
same module (`allocator.model.slices.device`), which reads and validates it. If a gate of Kubernetes turns the feature
on, the gate is in `allocator.model.features`. If the feature can be overdrawn, it has a rule in `allocator.audit`.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from allocator.checks import counters as shared_counters
from allocator.checks.binding_conditions import BINDING
from allocator.checks.capacity import CAPACITY
from allocator.checks.check import Asked, Check, Refusal, Situation, nothing
from allocator.checks.compatibility import INCOMPATIBLE, Compatibility, groups_of
from allocator.checks.counters import PARTITION, SHORT, Counters
from allocator.checks.in_use import IN_USE
from allocator.checks.matching import MATCHING
from allocator.checks.node_operations import NODE_OPERATIONS
from allocator.checks.placement import PLACEMENT
from allocator.checks.taint_rules import TaintRules
from allocator.checks.taints import TAINTS
from allocator.model.claims import DeviceRequest
from allocator.model.devices import PoolId
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.model.slices.device import Device
from allocator.pools import Candidate, NodePool
from allocator.reason import CONSTRAINT, COUNT, POOL, RESULTS, Cause
from allocator.usage import DeviceUsage, Usage

_OF_KIND: Final = (BINDING, MATCHING, PLACEMENT)
_OF_MEMBERS: Final = (*_OF_KIND, CAPACITY)
CHECKS: Final = (IN_USE, *_OF_MEMBERS, NODE_OPERATIONS, PARTITION, TAINTS)
"""In upstream's order, which decides which error a pod gets."""

CHECK_OF: Final[Mapping[Cause, Check]] = {check.cause: check for check in CHECKS}
"""The check that has a cause. What is short in a book (`books`) is no check."""

CAUSES: Final = tuple(
    sorted(
        (CONSTRAINT, RESULTS, COUNT, POOL, SHORT, INCOMPATIBLE, *(check.cause for check in CHECKS)),
        key=lambda cause: cause.rank,
    )
)
"""All causes there are, what came closest to being served first."""

Book: TypeAlias = Compatibility | Counters
"""What devices of one node use up together, by allocated claims and by the current search."""

_CIRCUMSTANTIAL: Final = tuple(check for check in CHECKS if check.circumstances is not nothing)

_GATES: Final = tuple({check.gate[0]: None for check in CHECKS if check.gate[0]})
_READ_GATES: Final = attrgetter(*_GATES)


class Checks(NamedTuple):
    """The checks that can speak in a situation.

    Attributes:
        of_kind: whether the device is of the kind that the request asks for.
        of_members: whether the device belongs to "all devices"; total capacity counts, not what is left of it.
        all: whether the device may be taken.
        told: `all` in the order of explanations, with `IN_USE` last: a device in use that would not match if it were
            free does not match.
    """

    of_kind: tuple[Check, ...]
    of_members: tuple[Check, ...]
    all: tuple[Check, ...]
    told: tuple[Check, ...]


def checks_for(fields: frozenset[str], request: DeviceRequest, rules: TaintRules, features: Features) -> Checks:
    """The checks that can speak against devices with these fields set."""
    if request.capacity is not None:
        fields |= {"capacity"}
    if rules.rules:
        fields |= {"taints"}
    return _checks(_READ_GATES(features), fields)


@lru_cache
def _checks(gates: tuple[bool, ...], fields: frozenset[str]) -> Checks:
    state = {"": True, **dict(zip(_GATES, gates, strict=True))}

    def speaking(*checks: Check) -> tuple[Check, ...]:
        on = (each for each in checks if state[each.gate[0]] is each.gate[1])
        return tuple([each for each in on if not each.fields or not fields.isdisjoint(each.fields)])

    told = [each for each in CHECKS if each is not IN_USE]
    return Checks(speaking(*_OF_KIND), speaking(*_OF_MEMBERS), speaking(*CHECKS), speaking(*told, IN_USE))


def first_refusal(
    checks: Iterable[Check], situation: Situation, asked: Asked, candidate: Candidate, used: DeviceUsage
) -> Refusal | None:
    """The refusal of the first check that speaks.

    Raises:
        SelectorError, CapacityError, SearchLimitError: as `Check.speaks`.
    """
    for check in checks:
        refusal = check.speaks(situation, asked, candidate, used)
        if refusal is not None:
            return refusal
    return None


def books(
    fields: frozenset[str], counters: Counters, pools: Mapping[PoolId, NodePool], usage: Usage, features: Features
) -> tuple[Book, ...]:
    """The books for devices with these fields set, in upstream's order."""
    if "consumes_counters" not in fields or not features.partitionable_devices:
        return ()
    return (Compatibility(pools, usage), counters) if features.compatibility_groups else (counters,)


def drawn_by(device: Device) -> tuple[Hashable, ...]:
    """What books read of a device; empty if it consumes no counters."""
    return (groups_of(device), shared_counters.drawn_by(device)) if device.consumes_counters else ()


def read_of(candidate: Candidate) -> Hashable:
    """What checks read of a published device, without attributes and names."""
    return tuple([check.reads(candidate) for check in CHECKS])


def circumstances(view: NodePool, node: Node, rules: TaintRules) -> Iterator[Hashable]:
    """What checks read of a pool's devices that is neither published nor held."""
    for check in _CIRCUMSTANTIAL:
        found = check.circumstances(view, node, rules)
        if found:
            yield check.cause, tuple(found)


def needs_search(checks: Checks, candidate: Candidate) -> bool:
    """`Check.needs_search` of any check. Compatibility groups need a search, too (`has_groups`)."""
    return any(check.needs_search(candidate) for check in checks.all)
