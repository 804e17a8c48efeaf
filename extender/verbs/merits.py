"""What speaks for nodes: there may be thousands of nodes, and few kinds of merits."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Final

from allocator import Merit

NOTHING: Final = -1


class Merits(Mapping[str, Merit]):
    """Node to what speaks for it.

    Args:
        names: of the nodes.
        kinds: of merits; what no node has may be anything.
        codes: for each node, which of the kinds.
    """

    def __init__(self, names: Sequence[str] = (), kinds: Sequence[Merit] = (), codes: Sequence[int] = ()) -> None:
        self.kinds = kinds
        self._names = tuple(names)
        self._codes = codes

    def codes_of(self, names: Sequence[str]) -> Sequence[int]:
        """Which of the kinds each of some nodes has; `NOTHING` for those that nothing speaks for."""
        if tuple(names) == self._names:  # as a rule what filter has named is asked about next, and in that order
            return self._codes
        return list(map(self._by_name.get, names, repeat(NOTHING)))

    def __getitem__(self, name: str) -> Merit:
        return self.kinds[self._by_name[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return dict(zip(self._names, self._codes, strict=True))
