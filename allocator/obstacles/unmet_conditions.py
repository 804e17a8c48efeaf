"""Selectors of an explanation: which of their conditions do not hold for a device, why, and how to write them."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from allocator.cel import CelError, Expired, OutOfTimeError, Reads, never
from allocator.cel.selectors import Selectors
from allocator.model.claims import DeviceRequest
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import Device
from allocator.obstacles.comparisons import Rewritten, rewritten, wanted
from allocator.obstacles.obstacle import WHOLE, Obstacle, Remedy, RemedyKind, Seen
from allocator.obstacles.selector_conditions import (
    conditions_of,
    guarded,
    only_value,
    reading,
    readings,
    values_read,
    with_attribute,
    with_condition,
)
from allocator.pools import Candidate
from allocator.request_causes import NO_MATCH
from allocator.tools.spelling import did_you_mean, nearest_attribute


class Selector(NamedTuple):
    """A selector of a request or of a class: where it stands, and its number there."""

    source: str
    text: str
    number: int
    of_class: bool = False


class Expressions:
    """Remembers, for one explanation, what selectors say of devices with the same values.

    Each method that evaluates a selector raises `TimeoutError` when the time of the explanation is up.
    """

    def __init__(self, selectors: Selectors, expired: Expired = never) -> None:
        self._selectors = selectors
        self._expired = expired
        self._reads: dict[str, Reads] = {}
        self._known: dict[Hashable, tuple[Seen, ...]] = {}

    def error(self, expression: str, device: Device) -> str | None:
        """None: the expression holds; empty: it does not; else why it fails."""
        try:
            return None if self._selectors.matches(expression, device, self._expired) else ""
        except OutOfTimeError:
            raise TimeoutError from None
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

    def unmet(self, selector: Selector, candidate: Candidate) -> tuple[Seen, ...]:
        """The conditions of a selector that do not hold. Devices with the same values are looked at once."""
        device, reads = candidate.device, self.reads(selector.text)
        if candidate.unsupported:
            error = f"attribute {candidate.unsupported}: unsupported value"
            obstacle = _obstacle(selector, selector.text.strip(), error)
            remedies = [] if selector.of_class else [_dropping(selector, "condition 0", selector.text.strip())]
            return (Seen(obstacle, remedies=lambda: remedies),)
        if reads.everything:
            return tuple(self._judged(selector, device))
        key = (
            (selector, device.driver, device.allow_multiple_allocations),
            tuple([_key(device.attributes.get(name)) for name in reads.attributes]),
            tuple([device.quantities.get(name) for name in reads.capacities]),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(self._judged(selector, device))
        return found

    def _judged(self, selector: Selector, device: Device) -> Iterator[Seen]:
        error = self.error(selector.text, device)
        if error is None:
            return
        parts = conditions_of(selector.text)
        failed = [(part, self.error(each, device)) for part, each in enumerate(parts)]
        # As in the language, a condition that is false outweighs one that fails.
        false = [part for part, why in failed if why == ""]
        told = false or [part for part, why in failed if why]
        if len(parts) == 1 or (error and false) or not told:
            yield self._seen(selector, 0, selector.text.strip(), device, error)
            return
        for part in told:
            yield self._seen(selector, part, parts[part], device, failed[part][1] or "")

    def _seen(self, selector: Selector, part: int, condition: str, device: Device, error: str) -> Seen:
        reads = self.reads(condition)
        missing = next((name for name in reads.attributes if name not in device.attributes), "") if error else ""
        meant = nearest_attribute(missing, device.attributes) if missing else ""
        remedies = partial(self._remedies, selector, part, condition, device, missing, meant)
        if error:
            guards = partial(_guards, selector, f"condition {part}", condition, missing, reads.attributes)
            return Seen(_obstacle(selector, condition, error, missing, meant), remedies=remedies, guards=guards)
        values = values_read(reads, device)
        one = wanted(condition) if len(values) == 1 else ""
        return Seen(_obstacle(selector, condition, wanted=one), values, remedies)

    def _remedies(
        self, selector: Selector, part: int, condition: str, device: Device, missing: str, meant: str
    ) -> Iterator[Remedy]:
        """Correct a name, write another constant, or drop the condition.

        Others ask for a class, too, so it keeps its conditions: only what is misspelled there is corrected.
        """
        old = readings(condition, missing) if meant else ()
        if old:
            yield _correcting(selector, missing, meant)
            if self.error(with_attribute(condition, missing, meant), device) is None:
                return
        what = f"condition {part}"
        near = rewritten(condition, *only_value(self.reads(condition), device))
        if near is not None and (near.kind is RemedyKind.CORRECT or not selector.of_class):
            yield _writing(selector, what, near, condition)
        if not selector.of_class:
            yield _dropping(selector, what, condition)


def _obstacle(
    selector: Selector, condition: str, error: str = "", missing: str = "", meant: str = "", wanted: str = ""
) -> Obstacle:
    where = f"{condition} ({selector.source})"
    if missing:
        text = f"without attribute {missing}, which is read by {where}{did_you_mean(meant)}"
    else:
        text = f"on which {where} fails: {error}" if error else f"not matching {where}"
    return Obstacle(NO_MATCH, text, condition=condition, wanted=wanted, of_class=selector.of_class)


def _correcting(selector: Selector, missing: str, meant: str) -> Remedy:
    """Read the attribute that exists instead of the one that does not."""
    orders = (f"write {reading(meant)} instead of {old}" for old in readings(selector.text, missing))
    return _remedy(
        selector,
        RemedyKind.CORRECT,
        f"attribute {missing}",
        f"write {meant} instead of {missing} in",
        "; ".join(orders),
        partial(with_attribute, missing=missing, meant=meant),
    )


def _writing(selector: Selector, what: str, near: Rewritten, old: str) -> Remedy:
    """Compare with another constant."""
    edit = partial(with_condition, old=old, new=near.condition)
    order = f"write {near.condition}{'' if old == selector.text.strip() else f' instead of {old}'}"
    return _remedy(selector, near.kind, what, f"{near.text} in", order, edit, near.weight)


def _guards(selector: Selector, what: str, condition: str, missing: str, attributes: Iterable[str]) -> Iterator[Remedy]:
    """Ask whether a device has the attributes before they are read; the same for devices that lack others of them."""
    read = [name for name in attributes if readings(condition, name)]
    new = guarded(condition, read) if missing else ""
    if new:
        near = Rewritten(RemedyKind.CORRECT, f"pass over devices without attribute {' or '.join(read)}", new)
        yield _writing(selector, f"{what} guard", near, condition)


def _dropping(selector: Selector, what: str, gone: str) -> Remedy:
    """Do without a condition, or without the whole selector."""
    is_all = gone == selector.text.strip()
    order = "remove it" if is_all else f"remove {gone}"
    edit = partial(with_condition, old=gone, new="true") if not is_all else lambda _: "true"
    return _remedy(selector, RemedyKind.RELAX_SELECTOR, what, f"drop the condition {gone} from", order, edit, WHOLE)


def _remedy(
    selector: Selector, kind: RemedyKind, what: str, text: str, order: str, edit: Callable[[str], str], weight: int = 0
) -> Remedy:
    number = selector.number
    return Remedy(
        kind,
        f"selector {number} {what}",
        text,
        f"selector {number}: {order}",
        lambda request: _edited(request, number, edit),
        weight,
        edit_class=(lambda of: _edited(of, number, edit)) if selector.of_class else None,
    )


_Selecting = TypeVar("_Selecting", DeviceRequest, DeviceClass)


def _edited(of: _Selecting, number: int, edit: Callable[[str], str]) -> _Selecting:
    selectors = (edit(text) if n == number else text for n, text in enumerate(of.selectors))
    return replace(of, selectors=tuple(selectors))


def _key(value: object) -> Hashable:
    """``True`` is not 1."""
    return type(value), value if not isinstance(value, tuple) else tuple(map(_key, value))
