"""Answers that are remembered while the objects that they were made from are the same."""

from collections.abc import Hashable
from operator import is_
from typing import Final, Generic, TypeVar

from allocator.tools import Recent

_T = TypeVar("_T")

_MOST: Final = 10_000


class Remembered(Generic[_T]):
    """One answer for each key. Objects are compared by identity: values of a snapshot are the same until they change.

    Safe to use from several threads: at worst an answer is lost.
    """

    def __init__(self) -> None:
        self._known: Recent[tuple[tuple[object, ...], _T]] = Recent(_MOST)

    def find(self, key: Hashable, basis: tuple[object, ...]) -> _T | None:
        """The answer that was made from these very objects; None if there is none."""
        found = self._known.find(key)
        is_same = found is not None and len(found[0]) == len(basis) and all(map(is_, found[0], basis))
        return found[1] if found is not None and is_same else None

    def keep(self, key: Hashable, basis: tuple[object, ...], answer: _T) -> None:
        """Remember an answer in place of the one before."""
        self._known.keep(key, (basis, answer))
