"""Constraints over the devices of a claim: matchAttribute and distinctAttribute.

A new kind needs two files: a member of `allocator.model.claims.ConstraintKind`, from which reading, validation and the
audit follow; and its class here, registered in `CONSTRAINTS`. A constraint compares devices by one attribute.
`allocator/model/validation/fields.json`, which is made from Kubernetes' OpenAPI, has to know the field, or manifests
with it are refused.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from allocator.checks.check import Undo
from allocator.model.claims import ConstraintKind, ConstraintSpec
from allocator.model.devices import AttributeValue
from allocator.model.semver import Version


def values_of(value: AttributeValue) -> frozenset[Hashable]:
    """The elements of a list, or the one value, each with its type: in Python ``True == 1``."""
    if type(value) is str:
        return frozenset({("str", value)})
    elements: Iterable[object] = value if isinstance(value, tuple) else (value,)
    return frozenset((type(e).__name__, e.text if isinstance(e, Version) else e) for e in elements)


def exact(value: AttributeValue) -> Hashable:
    """All of a value: whether it is a list, and its elements in order, each with its type."""
    elements: Iterable[object] = value if isinstance(value, tuple) else (value,)
    return isinstance(value, tuple), tuple((type(e).__name__, str(e)) for e in elements)


def constraint_covers(spec: ConstraintSpec, request: str, alternative: str) -> bool:
    """Whether a constraint covers a request, by the name of the request or of its chosen subrequest."""
    if not spec.requests or request in spec.requests:
        return True
    return bool(alternative) and f"{request}/{alternative}" in spec.requests


class Constraint(ABC):
    """A rule over the devices of its requests: a state, and how each further device changes the state.

    A subclass is one kind of constraint. It must define `start`, the state before the first device, and `admits`. If
    only the whole choice tells whether the rule holds, it defines `holds`, too. The rest tells pruning, policies,
    fingerprints and tables more; the defaults are always correct.

    Attributes:
        reads_values: the values themselves matter. Otherwise only this matters: which devices have a value in common.
            Then nodes with other values, but the same in common, get one answer.
        ties: all devices have a value in common.
    """

    __slots__ = ("_lists", "_state")
    start: ClassVar[Hashable]
    reads_values: ClassVar[bool] = True
    ties: ClassVar[bool] = False

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists
        self._state = self.start

    @abstractmethod
    def admits(self, value: AttributeValue) -> Hashable | None:
        """The state after a device with this value (an empty list: no value); None if the rule forbids the device.

        The order of devices must make no difference. A choice that is forbidden stays forbidden with further devices.
        """

    def holds(self) -> bool:
        """Whether the rule admits the whole choice; asked when no further device can come."""
        return True

    def take(self, value: AttributeValue) -> Undo | None:
        """Add a device; None, and nothing has changed, if the rule forbids it."""
        before, after = self._state, self.admits(value)
        if after is None:
            return None
        self._state = after

        def undo() -> None:
            self._state = before

        return undo

    def key(self) -> Hashable:
        """The state, which decides which further devices are admitted."""
        return self._state

    def admitted_values(self) -> frozenset[Hashable] | None:
        """The values that a further device may have: it must have one of them. None: any value."""
        return None

    @staticmethod
    def least_values(_: int, /) -> int:
        """The least number of different values that a number of devices must have."""
        return 0

    @staticmethod
    def enough(_: Sequence[tuple[int, Sequence[frozenset[Hashable]]]], /) -> Collection[Hashable] | None:
        """The values that devices may have so that there are enough of them for each of some demands; None: any.

        A demand is a number of devices, and the values of each device that may serve it.
        """
        return None

    @staticmethod
    def group_sizes(_: Mapping[int, frozenset[Hashable]], /) -> Mapping[int, int]:
        """Candidate to how many candidates may be taken together with it, given the values of each; empty: any."""
        return {}


class MatchAttribute(Constraint):
    """All devices share a value; of lists, one element is common to all.

    Without list-typed attributes a list suits only as the first device, as upstream has it.
    The state: the values that all devices have in common, and whether the latest was a list; None before the first.
    """

    __slots__ = ()
    start = (None, False)
    reads_values = False
    ties = True
    _state: tuple[frozenset[Hashable] | None, bool]

    def admits(self, value: AttributeValue) -> Hashable | None:
        """The device has a value in common with all devices before it."""
        is_list = isinstance(value, tuple)
        if is_list and not value:
            return None
        common, had_list = self._state
        values = values_of(value)
        if common is not None:
            values &= common
            if not values or (not self._lists and (is_list or had_list)):
                return None
        return values, is_list

    def admitted_values(self) -> frozenset[Hashable] | None:
        """The values that all devices have in common."""
        return self._state[0]

    @staticmethod
    def enough(demands: Sequence[tuple[int, Sequence[frozenset[Hashable]]]], /) -> Collection[Hashable]:
        """The values that, for each demand, as many devices have as it needs."""
        counts = [(need, Counter(value for each in having for value in each)) for need, having in demands]
        sets = [{value for value, number in having.items() if number >= need} for need, having in counts]
        return set[Hashable].intersection(*sets) if sets else set()

    @staticmethod
    def group_sizes(values: Mapping[int, frozenset[Hashable]], /) -> Mapping[int, int]:
        """The number of candidates that share a value with each, by its rarest value."""
        having = Counter(value for each in values.values() for value in each)
        return {index: min((having[value] for value in each), default=0) for index, each in values.items()}


class DistinctAttribute(Constraint):
    """No two devices share a value; lists are pairwise disjoint.

    Without list-typed attributes a list suits only as the first device, and excludes nothing, as upstream has it.
    The state: the values that are taken, and whether there is a device.
    """

    __slots__ = ()
    start: ClassVar[Hashable] = (frozenset(), False)
    reads_values = False
    _state: tuple[frozenset[Hashable], bool]

    def admits(self, value: AttributeValue) -> Hashable | None:
        """The device shares no value with any device before it."""
        is_list = isinstance(value, tuple)
        taken, is_bound = self._state
        if is_list and (not value or (is_bound and not self._lists)):
            return None
        values = values_of(value) if self._lists or not is_list else frozenset()
        return None if values & taken else (taken | values, True)

    @staticmethod
    def least_values(devices: int, /) -> int:
        """One for each device."""
        return devices


CONSTRAINTS: Final[Mapping[ConstraintKind | None, type[Constraint]]] = {
    ConstraintKind.MATCH: MatchAttribute,
    ConstraintKind.DISTINCT: DistinctAttribute,
}
"""What each kind means. A claim with another kind cannot be allocated."""


def constraint_class(spec: ConstraintSpec) -> type[Constraint]:
    """The rule that a claim specifies; the plan has refused kinds that are unknown."""
    return CONSTRAINTS[spec.kind]
