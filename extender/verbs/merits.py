"""Merits by node: there may be thousands of nodes, and few distinct merits."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Final

from allocator import Merit, Policy

NOTHING: Final = -1


class Merits(Mapping[str, Merit]):
    """Node name to the merit of the node.

    Args:
        names: of the nodes.
        kinds: distinct merits; an entry that no node has may be anything.
        codes: for each node, the index of its merit in `kinds`.
    """

    def __init__(self, names: Sequence[str] = (), kinds: Sequence[Merit] = (), codes: Sequence[int] = ()) -> None:
        self.kinds = kinds
        self._names = tuple(names)
        self._codes = codes

    def codes_of(self, names: Sequence[str]) -> Sequence[int]:
        """The index of each node's merit in `kinds`; `NOTHING` for nodes without one."""
        if tuple(names) == self._names:  # prioritize usually asks about what filter has named, in that order
            return self._codes
        return list(map(self._by_name.get, names, repeat(NOTHING)))

    def best(self, policy: Policy) -> Sequence[tuple[Merit, int]]:
        """The merits of the nodes that have the highest score, each with the number of these nodes."""
        counts = Counter(self._codes)
        scores = policy.scores({code: self.kinds[code] for code in counts})
        most = max(scores.values(), default=0)
        return [(self.kinds[code], count) for code, count in counts.items() if scores[code] == most]

    def __getitem__(self, name: str) -> Merit:
        return self.kinds[self._by_name[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return dict(zip(self._names, self._codes, strict=True))
