"""What becomes of a node."""

from dataclasses import dataclass
from typing import Final

from allocator.outcome import Merit

UNKNOWN_NODE: Final = "node not yet known"
OUT_OF_TIME: Final = "not looked at in time"


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


NOTHING_NEEDED: Final = Verdict(Merit())
NOT_KNOWN: Final = Verdict(reason=UNKNOWN_NODE)
TOO_LATE: Final = Verdict(reason=OUT_OF_TIME, lasting=False)
