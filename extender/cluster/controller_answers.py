"""What the controllers of negotiated claims have said about nodes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from allocator.tools import NO_TEXT, Printable


@dataclass(frozen=True, slots=True)
class ControllerAnswer:
    """The latest answer of a controller about one claim.

    Attributes:
        problem: why there is no answer about the claim; empty if there is one.
        unsuitable: the nodes that the controller refuses, each with the reason.
        asked: the nodes that it was asked about; None: all nodes.
    """

    problem: Printable = NO_TEXT
    unsuitable: Mapping[str, Printable] = field(default_factory=dict)
    asked: Collection[str] | None = frozenset()


UNASKED = ControllerAnswer()
"""The controller was not asked."""

ANY_NODE_SUITS = ControllerAnswer(asked=None)
"""For a bind, which does not ask again: the allocation itself is the answer."""
