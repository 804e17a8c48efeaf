"""Optional values. ``or`` and ``orValue`` are part of the plan, because they evaluate their argument only if needed."""

from typing import Final

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, A, list_of, optional_of
from allocator.cel.values import NONE, Duration, OptionalValue, Timestamp, Value, shown

_ZERO_TIME: Final = -62_135_596_800 * 10**9
"""Go's zero time, the first moment of the year 1."""


def _optional_of(value: Value) -> OptionalValue:
    return OptionalValue(present=True, value=value)


def _of_non_zero(value: Value) -> OptionalValue:
    return NONE if _is_zero(value) else _optional_of(value)


def _is_zero(value: Value) -> bool:
    if isinstance(value, Timestamp | Duration):
        return value.nanos == (_ZERO_TIME if isinstance(value, Timestamp) else 0)
    if value is None or isinstance(value, bool | int | float | str | bytes | tuple | dict):
        return not value
    return False


def _value(optional: OptionalValue) -> Value:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _first(values: tuple[Value, ...]) -> OptionalValue:
    return _optional_of(values[0]) if values else NONE


def _last(values: tuple[Value, ...]) -> OptionalValue:
    return _optional_of(values[-1]) if values else NONE


def _unwrap(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """The values of the optionals that have one."""
    for value in values:
        if type(value) is not OptionalValue:
            raise EvaluationError(f"value {shown(value)} is not optional")
    return tuple(optional.value for optional in values if optional.present)


LIBRARY: Final[Library] = (
    function("optional.of", free(A, result=optional_of(A), call=_optional_of)),
    function("optional.ofNonZeroValue", free(A, result=optional_of(A), call=_of_non_zero)),
    function("optional.none", free(result=optional_of(A), call=lambda: NONE)),
    function("hasValue", member(optional_of(A), result=BOOL, call=lambda optional: optional.present)),
    function("value", member(optional_of(A), result=A, call=_value)),
    function("first", member(list_of(A), result=optional_of(A), call=_first)),
    function("last", member(list_of(A), result=optional_of(A), call=_last)),
    function("optional.unwrap", free(list_of(optional_of(A)), result=list_of(A), call=_unwrap)),
    function("unwrapOpt", member(list_of(optional_of(A)), result=list_of(A), call=_unwrap)),
)
