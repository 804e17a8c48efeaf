"""Selectors of an explanation: which of their conditions do not hold for a device, why, and how to write them.

A condition that compares a value of a device with a constant gets a remedy: the constant that the device satisfies.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from allocator.cel import CelError, CompileError, Expired, OutOfTimeError, Reads, never
from allocator.cel.ast import Call, ListNode, Literal, Node
from allocator.cel.parse import parse
from allocator.cel.selectors import Selectors
from allocator.model.claims import DeviceRequest
from allocator.model.device_classes import DeviceClass
from allocator.model.quantity import Quantity
from allocator.model.semver import Version
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import WHOLE, Obstacle, Remedy, RemedyKind, Seen
from allocator.obstacles.selector_conditions import (
    STRING,
    conditions_of,
    guarded,
    only_value,
    reading,
    readings,
    value_in_words,
    values_read,
    with_attribute,
    with_condition,
)
from allocator.pools import Candidate
from allocator.reason import NO_MATCH
from allocator.tools.spelling import did_you_mean, is_misspelled, nearest_attribute

Constant: TypeAlias = str | int | Quantity | Version
_Edit: TypeAlias = tuple[int, int, str]
"""Start and end of a part of a condition, and what is written there instead."""

_LITERAL: Final = re.compile(rf"{STRING}|-?\s*(?:0x[0-9a-fA-F]+|\d+)|true|false", re.DOTALL)
_FLIPPED: Final = {"_==_": "_==_", "_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_"}
_METHODS: Final = {"isGreaterThan": ">= 0", "isLessThan": "<= 0"}
_PARSED: Final[Mapping[str, Callable[[str], Constant]]] = {"quantity": Quantity.parse, "semver": Version.parse}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A condition that is written otherwise, so that a device satisfies it.

    Attributes:
        text: what is done, as an order: ``lower memory to 40Gi``.
        weight: the distance of the new constant from the old one, less than `WHOLE`.
    """

    kind: RemedyKind
    text: str
    condition: str
    weight: int = 0


class _Written(NamedTuple):
    """A constant, and where it is written."""

    value: Constant
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison of a value, as a condition writes it.

    Attributes:
        relation: ``==``, ``in``, ``>=`` or ``<=``, with the value on the left.
        constants: several only for ``in``.
        including: what is written if the condition excludes the constant itself, so that it includes the constant.
    """

    relation: str
    constants: tuple[_Written, ...]
    including: tuple[_Edit, ...] = ()


def wanted(condition: str) -> str:
    """The one value that satisfies a condition of the form ``attribute == constant``, in words; empty for others."""
    found = _comparison(condition)
    return value_in_words(found.constants[0].value) if found is not None and found.relation == "==" else ""


_RELATIONS: Final = {
    (">=", False): "of at least",
    (">=", True): "of more than",
    ("<=", False): "of at most",
    ("<=", True): "of less than",
}
"""A relation, and whether it excludes the constant itself."""


def condition_in_words(condition: str, name: str) -> str:
    """What a device has that meets a condition: ``model b200``, ``memory of at least 80Gi``.

    Args:
        condition: a part of a selector.
        name: the only attribute or capacity that the condition reads.

    Returns:
        Empty: the condition is no comparison with a constant.
    """
    found = _comparison(condition) if name else None
    if found is None:
        return ""
    constants = [value_in_words(each.value) for each in found.constants]
    relation = _RELATIONS.get((found.relation, bool(found.including)))
    return f"{name} {relation} {constants[0]}" if relation else f"{name} {' or '.join(constants)}"


def rewritten(condition: str, name: str, value: object) -> Rewritten | None:
    """A condition with a constant that a device satisfies.

    Args:
        condition: a part of a selector.
        name: the only attribute or capacity that the condition reads.
        value: what the device has.

    Returns:
        None: the condition does not compare with a constant of the type that the device has.
    """
    found = _comparison(condition)
    if not isinstance(value, Constant) or isinstance(value, bool) or found is None:
        return None
    if any(type(constant.value) is not type(value) for constant in found.constants):
        return None
    if isinstance(value, str):
        misspelled = next((each for each in found.constants if is_misspelled(str(each.value), value)), None)
        if misspelled is not None:
            text = f"write {_literal(value)} instead of {_literal(misspelled.value)}"
            return Rewritten(RemedyKind.CORRECT, text, _with_constant(condition, [(*misspelled[1:], _literal(value))]))
    constant, shown = found.constants[-1], value_in_words(value)
    weight = min(_distance(each.value, value) for each in found.constants)
    if found.relation == "in":
        edit = (constant.end, constant.end, f", {_literal(value)}")
        return Rewritten(
            RemedyKind.RELAX_SELECTOR, f"accept {name} {shown}, too,", _with_constant(condition, [edit]), weight
        )
    changed = _with_constant(condition, [(*constant[1:], _literal(value)), *found.including])
    if found.relation == "==":
        text = f"ask for {name} {shown} instead of {value_in_words(constant.value)}"
        return Rewritten(RemedyKind.RELAX_SELECTOR, text, changed, weight)
    if isinstance(value, str):
        return None
    order = f"{'lower' if found.relation == '>=' else 'raise'} {name} to {shown}"
    return Rewritten(RemedyKind.ASK_FOR_LESS, order if weight else f"accept {name} {shown}, too,", changed, weight)


def _with_constant(condition: str, edits: Iterable[_Edit]) -> str:
    for start, end, text in sorted(edits, reverse=True):
        condition = condition[:start] + text + condition[end:]
    return condition


def _literal(value: Constant) -> str:
    """A constant as it is written between the brackets of ``quantity`` or ``semver``, or without these."""
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)


def _distance(constant: Constant, value: Constant) -> int:
    """The distance of two constants of one type from each other, less than `WHOLE`."""
    match constant, value:
        case int(left), int(right):
            return min(WHOLE - 1, abs(left - right) * WHOLE // max(abs(left), abs(right), 1))
        case Quantity(nano=left), Quantity(nano=right):
            return _distance(left, right)
        case Version(), Version():
            pairs = zip(_numbers(constant), _numbers(value), strict=True)
            hundreds, tens, ones = (min(9, abs(left - right)) for left, right in pairs)
            return 100 * hundreds + 10 * tens + ones
    return round((WHOLE - 1) * (1 - SequenceMatcher(None, str(constant), str(value)).ratio()))


def _numbers(version: Version) -> tuple[int, int, int]:
    return version.major, version.minor, version.patch


@lru_cache(maxsize=512)
def _comparison(condition: str) -> _Comparison | None:
    try:
        node = parse(condition)
    except CompileError:
        return None
    match node:
        case Call("@in", (_, ListNode(elements))):
            constants = [_written(each, condition) for each, _ in elements]
            found = tuple(each for each in constants if each is not None)
            return _Comparison("in", found) if found and len(found) == len(constants) else None
        case Call("!_", (Call(function, (argument,)),)) if function in _METHODS:
            return _of(_written(argument, condition), ">=" if function == "isLessThan" else "<=")
        case Call(function, (argument,), position) if function in _METHODS:
            order = _METHODS[function]
            edits = ((position, position + len(function), "compareTo"), (len(condition), len(condition), f" {order}"))
            return _of(_written(argument, condition), order[:2], *edits)
        case Call(operator, (left, right), position) if operator in _FLIPPED:
            return _of_operator(condition, operator, left, right, position)
    return None


def _of_operator(condition: str, operator: str, left: Node, right: Node, position: int) -> _Comparison | None:
    strict = operator in {"_<_", "_>_"}
    edits = [(position, position + 1, f"{operator[1]}=")] if strict else []
    match left, right:
        case Call("compareTo", (argument,)), Literal(value=0):
            constant = _written(argument, condition)
        case _ if (constant := _written(right, condition)) is None:
            operator, constant = _FLIPPED[operator], _written(left, condition)
    return _of(constant, operator.strip("_") if not strict else f"{operator[1]}=", *edits)


def _of(constant: _Written | None, relation: str, *including: _Edit) -> _Comparison | None:
    return None if constant is None else _Comparison(relation, (constant,), including)


def _written(node: Node, condition: str) -> _Written | None:
    """A text, a whole number, a truth value, or one in brackets of ``quantity`` or ``semver``."""
    read: Callable[[str], Constant] = str
    if isinstance(node, Call) and node.function in _PARSED and node.target is None and node.arguments:
        read, node = _PARSED[node.function], node.arguments[0]
    if not isinstance(node, Literal) or type(node.value) not in {str, int, bool}:
        return None
    token = _LITERAL.match(condition, node.position)
    try:
        value = node.value if isinstance(node.value, int) else read(str(node.value))
    except ValueError:
        return None
    return None if token is None else _Written(value, *token.span())


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
            yield self._seen_on_device(selector, 0, selector.text.strip(), device, error)
            return
        for part in told:
            yield self._seen_on_device(selector, part, parts[part], device, failed[part][1] or "")

    def _seen_on_device(self, selector: Selector, part: int, condition: str, device: Device, error: str) -> Seen:
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
    of_class, near = selector.of_class, did_you_mean(meant) if missing else ""
    return Obstacle(NO_MATCH, text, condition=condition, wanted=wanted, of_class=of_class, missing=missing, meant=near)


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
