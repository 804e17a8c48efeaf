"""The best of the nodes that will do: to score a few hundred costs the scheduler less than to score thousands.

There may be thousands of nodes at each call, and few kinds of verdicts on them. So what is done for every node is done
by what Python has in C: a byte for each node says how it scores, and bytes are counted, translated and picked by.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Final

from allocator.outcome import Merit
from allocator.policy import Policy
from allocator.score import MAX_SCORE
from extender.deciding.verdict import Verdict

_merit: Callable[[Verdict], Merit] = attrgetter("merit")
_reason: Callable[[Verdict], str] = attrgetter("reason")

_REFUSED: Final = 0
_MARKS: Final = range(MAX_SCORE + 2)
"""0 for nodes that will not do, 1 more than the score for others."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Nodes, in the order asked, by what becomes of them.

    Attributes:
        names: of the nodes.
        verdicts: on each.
        marks: of each.
    """

    names: Sequence[str]
    verdicts: Sequence[Verdict]
    marks: bytes

    @classmethod
    def of(cls, names: Sequence[str], verdicts: Sequence[Verdict], policy: Policy) -> "Ranking":
        """By the policy's scores."""
        kinds = set(verdicts)  # many nodes share one
        scores = policy.scores({kind: kind.merit for kind in kinds if kind.merit is not None})
        marks = {kind: scores[kind] + 1 if kind in scores else _REFUSED for kind in kinds}
        return cls(names, verdicts, bytes(_each(marks, verdicts)))

    def refused(self) -> Mapping[str, str]:
        """The nodes that will not do, with the reason."""
        picked = _picks(self.marks, lambda mark: mark == _REFUSED)
        return dict(zip(compress(self.names, picked), map(_reason, compress(self.verdicts, picked)), strict=True))

    def best(self, most: int | None = None) -> Mapping[str, Merit]:
        """What speaks for those of the nodes that will do that score highest.

        Among equals those that come first: the scheduler asks in an order that goes round the zones.

        Args:
            most: how many at most; None: all that will do.
        """
        picked = self.marks if most is None else self._highest(most)
        return dict(zip(compress(self.names, picked), map(_merit, compress(self.verdicts, picked)), strict=True))

    def _highest(self, most: int) -> bytes:
        """Which nodes are picked."""
        room = most
        for mark in reversed(_MARKS[1:]):
            there = self.marks.count(mark)
            if there > room:
                break
            room -= there
        else:
            return self.marks
        above = _picks(self.marks, lambda other: other > mark)
        if not room:
            return above
        level = _picks(self.marks, lambda other: other == mark)
        end = len(level) - len(level.split(b"\1", room)[room])
        return _picks(self.marks[:end], lambda other: other >= mark) + above[end:]


def _picks(marks: bytes, is_picked: Callable[[int], bool]) -> bytes:
    """For each mark 1 or 0."""
    return marks.translate(bytes(map(is_picked, _MARKS)).ljust(256, b"\0"))


def _each(marks: Mapping[Verdict, int], verdicts: Sequence[Verdict]) -> Sequence[int]:
    """The mark of each verdict."""
    found: Sequence[int] = itemgetter(*verdicts)(marks) if len(verdicts) > 1 else [marks[each] for each in verdicts]
    return found
