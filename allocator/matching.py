"""The selectors of class and request, as a check."""

from collections.abc import Hashable, Iterator
from typing import Protocol

from allocator.cel import CelError
from allocator.check import Asked, Check, Refusal
from allocator.errors import SelectorError
from allocator.explain.expressions import Expressions
from allocator.explain.obstacles import Seen
from allocator.model import Device
from allocator.outcome import Cause
from allocator.pools import Candidate
from allocator.usage import DeviceUsage


class Matcher(Protocol):
    """Evaluates expressions, as `allocator.selectors.Selectors` do."""

    def matches(self, expression: str, device: Device) -> bool:
        """Whether a device satisfies an expression."""


class SelectorCheck(Check):
    """Does the device match all selectors? Attributes are read by name: `allocator.likeness.AttributeReads`."""

    __slots__ = ("_asked", "_matches", "_selectors")
    cause = Cause.SELECTOR

    def __init__(self, asked: Asked, matcher: Matcher) -> None:
        self._asked = asked
        self._selectors = asked.selectors
        self._matches = matcher.matches

    def speaks(self, candidate: Candidate, _: DeviceUsage, /) -> Refusal | None:
        """The first selector that is false."""
        device = candidate.device
        for source, text, _number in self._selectors:
            if candidate.unsupported:
                raise self._failure(source, device, f"attribute {candidate.unsupported}: unsupported value")
            try:
                if not self._matches(text, device):
                    return Refusal(Cause.SELECTOR, source)
            except CelError as error:
                raise self._failure(source, device, str(error)) from error
        return None

    def obstacles(self, candidate: Candidate, _: DeviceUsage, expressions: Expressions, /) -> Iterator[Seen]:
        """All conditions that do not hold, selector by selector."""
        for source, text, number in self._selectors:
            yield from expressions.unmet(source, text, -1 if number is None else number, candidate)

    @staticmethod
    def reads(candidate: Candidate, /) -> Hashable:
        """All that expressions can see but attributes."""
        device = candidate.device
        quantities = tuple([(name, each.nano, each.format) for name, each in device.quantities.items()])
        return candidate.unsupported, device.allow_multiple_allocations, quantities

    def _failure(self, source: str, device: Device, message: str) -> SelectorError:
        return SelectorError(self._asked.owner, self._asked.label, source, device.id, message)
