"""Optional values. ``or`` and ``orValue`` are part of the plan, because they evaluate their argument only if needed."""

from typing import Final

from allocator.cel.errors import EvaluationError
from allocator.cel.functions.declare import Library, free, function, member
from allocator.cel.types import BOOL, A, optional_of
from allocator.cel.values import NONE, Duration, OptionalValue, Timestamp, Value


def _of(value: Value) -> OptionalValue:
    return OptionalValue(present=True, value=value)


def _of_non_zero(value: Value) -> OptionalValue:
    return NONE if _is_zero(value) else _of(value)


def _is_zero(value: Value) -> bool:
    if isinstance(value, Timestamp | Duration):
        return value.nanos == 0
    if isinstance(value, OptionalValue):
        return not value.present
    if value is None or isinstance(value, bool | int | float | str | bytes | tuple | dict):
        return not value
    return False


def _value(optional: OptionalValue) -> Value:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


LIBRARY: Final[Library] = (
    function("optional.of", free(A, result=optional_of(A), call=_of)),
    function("optional.ofNonZeroValue", free(A, result=optional_of(A), call=_of_non_zero)),
    function("optional.none", free(result=optional_of(A), call=lambda: NONE)),
    function("hasValue", member(optional_of(A), result=BOOL, call=lambda optional: optional.present)),
    function("value", member(optional_of(A), result=A, call=_value)),
)
