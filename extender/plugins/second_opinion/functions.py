"""cel-python's own operators and functions, each behind a guard: where it is known to differ, there is no answer."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from celpy import celtypes
from celpy.evaluation import CELEvalError, base_functions

from extender.plugins.second_opinion.unchecked import Difference, Meter, Unchecked
from extender.plugins.second_opinion.values import FUNCTIONS, Amount, Semver

_KINDS: Final = (
    celtypes.BoolType, celtypes.UintType, celtypes.IntType, celtypes.DoubleType, celtypes.StringType,
    celtypes.BytesType, celtypes.ListType, celtypes.MapType, Amount, Semver,
)  # fmt: skip
_CONDITIONS: Final = (celtypes.BoolType, CELEvalError)
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)
_EXACT: Final = 2**53


def _kind(value: object) -> type:
    return next((kind for kind in _KINDS if isinstance(value, kind)), type(value))


def _check_alike(one: Any, other: Any) -> None:  # noqa: ANN401 - values of cel-python
    """Refuse to compare two values of two types, also within lists and maps."""
    if _kind(one) is not _kind(other):
        raise Unchecked(Difference.TWO_TYPES)
    if isinstance(one, list):
        for each in zip(one, other, strict=False):
            _check_alike(*each)
    elif isinstance(one, dict):
        keys = [*one, *other]
        for key in keys[1:]:
            _check_alike(keys[0], key)
        for key in one.keys() & other.keys():
            _check_alike(one[key], other[key])


def _check_nothing(_meter: Meter, *_: object) -> None:
    pass


def _check_comparison(_meter: Meter, one: object, other: object) -> None:
    _check_alike(one, other)


def _check_in(_meter: Meter, item: object, container: Any) -> None:  # noqa: ANN401 - a value of cel-python
    if not isinstance(container, celtypes.ListType | celtypes.MapType):
        raise Unchecked(Difference.TYPES)
    for each in container:
        _check_alike(item, each)


def _check_index(_meter: Meter, container: object, index: Any) -> None:  # noqa: ANN401 - a value of cel-python
    if isinstance(container, celtypes.ListType):
        if not isinstance(index, celtypes.IntType):
            raise Unchecked(Difference.TWO_TYPES)
        if index < 0:
            raise Unchecked(Difference.NEGATIVE_INDEX)
    elif isinstance(container, celtypes.MapType):
        for key in container:
            _check_alike(key, index)
    else:
        raise Unchecked(Difference.TYPES)


def _check_division(_meter: Meter, one: object, other: object) -> None:
    if isinstance(one, float) and not other:
        raise Unchecked(Difference.ZERO_DIVISOR)


def _check_texts(_meter: Meter, *values: object) -> None:
    if not all(isinstance(value, str) for value in values):
        raise Unchecked(Difference.TYPES)


def _check_size(_meter: Meter, *values: object) -> None:
    if len(values) != 1 or not isinstance(values[0], str | bytes | list | dict):
        raise Unchecked(Difference.NULL_SIZE)


def _check_number(_meter: Meter, value: Any) -> None:  # noqa: ANN401 - a value of cel-python
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise Unchecked(Difference.NUMBER_TEXT)
    if isinstance(value, float) and not 0 <= value < _EXACT:
        raise Unchecked(Difference.ROUNDING)
    if not isinstance(value, str | float | celtypes.IntType | celtypes.UintType):
        raise Unchecked(Difference.TYPES)


def _check_double(_meter: Meter, value: Any) -> None:  # noqa: ANN401 - a value of cel-python
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise Unchecked(Difference.NUMBER_TEXT)
    if not isinstance(value, str | float | celtypes.IntType | celtypes.UintType):
        raise Unchecked(Difference.TYPES)


def _check_text(_meter: Meter, value: object) -> None:
    if isinstance(value, celtypes.BoolType | float):
        raise Unchecked(Difference.BOOL_TEXT)
    if not isinstance(value, str | bytes | celtypes.IntType | celtypes.UintType):
        raise Unchecked(Difference.TYPES)


def _check_conditions(_meter: Meter, *values: object) -> None:
    if not all(isinstance(value, _CONDITIONS) for value in values):
        raise Unchecked(Difference.NOT_BOOL)


def _check_choice(_meter: Meter, condition: object, *_: object) -> None:
    _check_conditions(_meter, condition)


_GUARDS: Final[Mapping[str, Callable[..., None]]] = {
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"), _check_comparison),
    **dict.fromkeys(("_&&_", "_||_", "!_"), _check_conditions),
    **dict.fromkeys(("contains", "startsWith", "endsWith", "matches", "bytes"), _check_texts),
    **dict.fromkeys(("int", "uint"), _check_number),
    "_+_": _check_nothing,
    "_?_:_": _check_choice,
    "_in_": _check_in,
    "_[_]": _check_index,
    "_/_": _check_division,
    "size": _check_size,
    "double": _check_double,
    "string": _check_text,
}
_OWN_TYPES: Final[Mapping[type, Callable[[Any], Any]]] = {
    bool: celtypes.BoolType,
    bytes: celtypes.BytesType,
    float: celtypes.DoubleType,
    list: celtypes.ListType,
    str: celtypes.StringType,
}
_TAKES_ERRORS: Final = frozenset({"_&&_", "_||_", "!_", "_?_:_"})
"""The operators that do not pass on every error."""


def adapted(value: Any) -> Any:  # noqa: ANN401 - a value of cel-python
    """A value with cel-python's own type: some of its operators yield the type of Python below it."""
    own = _OWN_TYPES.get(type(value))
    return value if own is None else own(value)


def _guarded(name: str, meter: Meter) -> Callable[..., object]:
    function, check, takes_errors = base_functions[name], _GUARDS[name], name in _TAKES_ERRORS

    def call(*values: Any) -> object:  # noqa: ANN401 - values of cel-python
        error = None if takes_errors else next((each for each in values if isinstance(each, CELEvalError)), None)
        if error is not None:
            if name == "_in_" and values[1] == []:
                raise Unchecked(Difference.EMPTY_LIST)
            return error
        meter.charge(values)
        check(meter, *values)
        return adapted(function(*values))

    call.__name__ = name
    return call


NAMES: Final = frozenset({*FUNCTIONS, "size", "int", "uint", "double", "string", "bytes", "has", "dyn"})
"""The functions that may be called."""

METHODS: Final = frozenset({*FUNCTIONS, "size", "contains", "startsWith", "endsWith", "matches"})
"""The methods that may be called."""


def functions(meter: Meter) -> dict[str, Callable[..., Any]]:
    """What replaces functions of cel-python, or is added to them; each call counts."""
    return {**{name: _guarded(name, meter) for name in _GUARDS}, **FUNCTIONS}
