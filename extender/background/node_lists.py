"""Lists of nodes that pods were asked about: in memory once for all pods with the same list."""

from collections.abc import Iterable
from sys import intern
from typing import Final

from allocator.tools import Recent

_MOST: Final = 64
"""Different lists that are looked for."""


class NodeLists:
    """The lists that came lately. Names come anew with each request, and a list of 5,000 takes 350 KB."""

    def __init__(self) -> None:
        self._known: Recent[tuple[str, ...]] = Recent(_MOST)

    def shared(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names in their order, as they are in memory already."""
        found = tuple(map(intern, names))
        return self._known.find(found) or self._known.keep(found, found)
