"""What becomes of a node, and of many."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, overload

from allocator import Merit

UNKNOWN_NODE: Final = "node not yet known"
OUT_OF_TIME: Final = "not looked at in time"


class NotAtHandError(Exception):
    """To find the answer would take a search, or a look at many nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What becomes of a node.

    Attributes:
        merit: what speaks for it; None if it will not do.
        reason: why it will not do.
        lasting: the same question would get the same answer; not so where a search was stopped.
    """

    merit: Merit | None = None
    reason: str = ""
    lasting: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """What becomes of many nodes: there are few kinds of verdicts, and each node has one of them.

    Attributes:
        kinds: each once; perhaps more than there are nodes of.
        codes: for each node, which of the kinds.
    """

    kinds: Sequence[Verdict]
    codes: Sequence[int]

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> "Verdicts":
        """One verdict for each node."""
        numbers: dict[Verdict, int] = {}
        codes = [numbers.setdefault(verdict, len(numbers)) for verdict in verdicts]
        return cls(tuple(numbers), codes)

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int) -> Verdict: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Verdict]: ...
    def __getitem__(self, index: int | slice) -> Verdict | Sequence[Verdict]:
        if isinstance(index, slice):
            return Verdicts(self.kinds, self.codes[index])
        return self.kinds[self.codes[index]]


NOTHING_NEEDED: Final = Verdict(Merit())
NOT_KNOWN: Final = Verdict(reason=UNKNOWN_NODE)
TOO_LATE: Final = Verdict(reason=OUT_OF_TIME, lasting=False)
