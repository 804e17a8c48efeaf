"""Constraints over the devices of a claim: matchAttribute and distinctAttribute.

A constraint that refuses has changed nothing, and an undo takes back exactly one addition.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from allocator.model import AttributeValue, ConstraintKind, ConstraintSpec
from allocator.semver import Version

Undo = Callable[[], object]


class Constraint(Protocol):
    """A rule over the devices that its requests have got so far."""

    def add(self, value: AttributeValue) -> Undo | None:
        """Count a device in by its value (an empty list: it has none); None if the rule forbids it."""

    def key(self) -> Hashable:
        """The state: what it depends on which further devices are admitted."""


def values_of(value: AttributeValue) -> frozenset[Hashable]:
    """The elements of a list, or the one value, such that ``True``, ``1`` and versions stay apart."""
    if type(value) is str:
        return frozenset({("str", value)})
    elements: Iterable[object] = value if isinstance(value, tuple) else (value,)
    return frozenset((type(e).__name__, e.text if isinstance(e, Version) else e) for e in elements)


def covers(spec: ConstraintSpec, request: str, alternative: str) -> bool:
    """Does the constraint speak of the request, by its name or by that of its chosen subrequest?"""
    if not spec.requests or request in spec.requests:
        return True
    return bool(alternative) and f"{request}/{alternative}" in spec.requests


class MatchAttribute:
    """All devices share a value; of lists, one element is common to all.

    Without list-typed attributes a list suits only as the first device, as upstream has it.
    """

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists
        self._common: frozenset[Hashable] | None = None
        self._has_list = False

    def add(self, value: AttributeValue) -> Undo | None:
        """Count a device in if it has a value in common with all before it."""
        if not value and isinstance(value, tuple):
            return None
        before, had_list = self._common, self._has_list
        is_list = isinstance(value, tuple)
        if before is None:
            common = values_of(value)
        else:
            if not self._lists and (is_list or had_list):
                return None
            common = before & values_of(value)
            if not common:
                return None
        self._common, self._has_list = common, is_list

        def undo() -> None:
            self._common, self._has_list = before, had_list

        return undo

    def key(self) -> Hashable:
        """The values that all devices have in common; None before the first."""
        return self._common


class DistinctAttribute:
    """No two devices share a value; lists are pairwise disjoint."""

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists
        self._seen: set[Hashable] = set()
        self._count = 0

    def add(self, value: AttributeValue) -> Undo | None:
        """Count a device in if it shares no value with any before it."""
        if not value and isinstance(value, tuple):
            return None
        elements = values_of(value)
        if isinstance(value, tuple) and not self._lists:
            if self._count:
                return None
            elements = frozenset()
        if elements & self._seen:
            return None
        self._seen |= elements
        self._count += 1

        def undo() -> None:
            self._seen -= elements
            self._count -= 1

        return undo

    def key(self) -> Hashable:
        """The values that are taken."""
        return frozenset(self._seen), self._count > 0


def constraint_of(spec: ConstraintSpec, *, lists: bool) -> Constraint:
    """The constraint that a claim specifies; its kind is known."""
    if spec.kind is ConstraintKind.MATCH:
        return MatchAttribute(lists=lists)
    return DistinctAttribute(lists=lists)
