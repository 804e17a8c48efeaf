"""Selectors of an explanation: which of their conditions do not hold for a device, and why."""

from collections.abc import Hashable, Iterator

from allocator.cel import CelError, Reads
from allocator.cel.selectors import Selectors
from allocator.explain.conditions import conditions_of, value_in_words, values_read, wish
from allocator.explain.names import nearest_attribute
from allocator.explain.obstacles import Obstacle, Seen
from allocator.model.devices import Device
from allocator.outcome import Cause
from allocator.pools import Candidate


class Expressions:
    """Remembers, for one explanation, what selectors say of devices with the same values."""

    def __init__(self, selectors: Selectors) -> None:
        self._selectors = selectors
        self._reads: dict[str, Reads] = {}
        self._known: dict[Hashable, tuple[Seen, ...]] = {}

    def error(self, expression: str, device: Device) -> str | None:
        """None: the expression holds; empty: it does not; else why it fails."""
        try:
            return None if self._selectors.matches(expression, device) else ""
        except CelError as error:
            return str(error).partition("\n")[0]

    def reads(self, expression: str) -> Reads:
        """What an expression reads; everything, if it does not compile."""
        if expression not in self._reads:
            try:
                self._reads[expression] = self._selectors.reads(expression)
            except CelError:
                self._reads[expression] = Reads(everything=True)
        return self._reads[expression]

    def unmet(self, source: str, text: str, number: int, candidate: Candidate) -> tuple[Seen, ...]:
        """The conditions of a selector that don't hold. Devices with the same values are looked at once.

        Args:
            source: where the selector stands.
            text: the selector.
            number: its place in the request; -1: it is the class's.
            candidate: the device.
        """
        device, reads = candidate.device, self.reads(text)
        if candidate.unsupported:
            error = f"attribute {candidate.unsupported}: unsupported value"
            return (Seen(Obstacle(Cause.SELECTOR, source, text.strip(), number, error=error)),)
        if reads.everything:
            return tuple(self._judged(source, text, number, device))
        key = (
            (source, text, device.driver, device.allow_multiple_allocations),
            tuple([_key(device.attributes.get(name)) for name in reads.attributes]),
            tuple([device.quantities.get(name) for name in reads.capacities]),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(self._judged(source, text, number, device))
        return found

    def _judged(self, source: str, text: str, number: int, device: Device) -> Iterator[Seen]:
        error = self.error(text, device)
        if error is None:
            return
        parts = conditions_of(text)
        failed = [(part, self.error(each, device)) for part, each in enumerate(parts)]
        # What fails is of no account beside what does not hold, as in the language.
        false = [part for part, why in failed if why == ""]
        told = false or [part for part, why in failed if why]
        if len(parts) == 1 or (error and false) or not told:
            yield self._told(source, text, number, -1 if number < 0 else 0, device, error)
            return
        for part in told:
            yield self._told(source, parts[part], number, part, device, failed[part][1] or "")

    def _told(self, source: str, condition: str, number: int, part: int, device: Device, error: str) -> Seen:
        reads = self.reads(condition)
        wanted = wish(condition)
        missing = next((name for name in reads.attributes if name not in device.attributes), "") if error else ""
        obstacle = Obstacle(
            Cause.SELECTOR,
            source,
            condition,
            number,
            part,
            wanted="" if wanted is None or len(values_read(reads, device)) != 1 else value_in_words(wanted.value),
            error=error,
            missing=missing,
            meant=nearest_attribute(missing, device) if missing else "",
        )
        return Seen(obstacle, () if error else values_read(reads, device))


def _key(value: object) -> Hashable:
    """``True`` is not 1."""
    return type(value), value if not isinstance(value, tuple) else tuple(map(_key, value))
