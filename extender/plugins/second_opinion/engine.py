"""The second engine: cel-python, with Kubernetes' functions for devices, within a bound of work.

Where cel-python differs from CEL as Kubernetes has it, or lacks something, the engine gives no answer and says why. No
answer is made up, and none is a false alarm. So cel-python's own operators and functions stand behind a guard each.
"""

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import celpy
import lark
from celpy import celtypes
from celpy.celparser import CELParseError
from celpy.evaluation import Activation, CELEvalError, Evaluator, base_functions

from allocator import Device
from allocator.audit import Answer, NotChecked, Opinion
from allocator.tools import Recent
from extender.plugins.second_opinion.unchecked import Difference, Meter, Unchecked, weight
from extender.plugins.second_opinion.values import FUNCTIONS, Amount, Semver, device_value

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


Tree: TypeAlias = Any
"""A node of cel-python's syntax tree; lark's types say little of it."""

Token: TypeAlias = Any
"""A leaf of the tree."""

MOST_TEXT: Final = 4_000
"""The most characters of the selectors whose trees are kept. A tree takes 0.6 to 3.6 KB for each."""

LONGEST: Final = 2_000
"""The longest selector that is read, in characters: cel-python takes up to 0.04 ms for each."""

_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_OF_CONDITIONS: Final = frozenset({"all", "exists", "exists_one", "filter"})
_VARIABLE: Final = "device"
_RESERVED: Final = frozenset({*base_functions, *NAMES, *METHODS, _VARIABLE, "google"})
_PLAIN_ESCAPES: Final = frozenset("\\\"'nrt")
_LONGEST_NUMBER: Final = 18
_OF_TYPES: Final = (TypeError, AttributeError)


class CelPython:
    """cel-python as a `SecondEngine`. One thread uses it at a time.

    Args:
        clock: measures durations, in seconds.
    """

    name = "cel-python"

    def __init__(self, clock: Callable[[], float]) -> None:
        logging.getLogger("celpy").setLevel(logging.CRITICAL + 1)  # it logs values that any user can write
        limit = sys.getrecursionlimit()
        try:
            self._environment = celpy.Environment()
        finally:
            sys.setrecursionlimit(limit)  # cel-python sets it for the whole process
        self._meter = Meter(clock)
        self._functions = functions(self._meter)
        self._trees: Recent[Any] = Recent(MOST_TEXT, lambda text, _: len(text))
        self._latest: tuple[Device, celtypes.MapType] | None = None

    def judge(self, selector: str, device: Device) -> Opinion:
        """Return what cel-python answers, or why it is not asked."""
        tree = self._trees.find(selector) or self._trees.keep(selector, self._parsed(selector))
        if isinstance(tree, NotChecked):
            return tree
        self._meter.begin()
        try:
            return self._evaluated(tree, device)
        except Unchecked as found:
            return NotChecked(found.why)
        except RecursionError:
            return NotChecked("the selector nests too deep for the second engine")
        except CELEvalError as error:
            if issubclass(_class_of(error), _OF_TYPES):
                return NotChecked(Difference.TYPES.value)
            return Answer.FAILS
        except Exception as error:  # noqa: BLE001 - a fault of cel-python says nothing of the device
            return NotChecked(f"cel-python ends with {type(error).__name__}")

    def _evaluated(self, tree: Tree, device: Device) -> Answer:
        if self._latest is None or self._latest[0] is not device:
            self._latest = device, device_value(device)
        activation = self._environment.program(tree, self._functions).new_activation()
        value = _GuardedEvaluator(tree, activation, self._meter).evaluate({_VARIABLE: self._latest[1]})
        if not isinstance(value, celtypes.BoolType):
            return Answer.FAILS
        return Answer.TRUE if value else Answer.FALSE

    def _parsed(self, selector: str) -> "Tree | NotChecked":
        if len(selector) > LONGEST:
            return NotChecked("the selector is too long")
        try:
            tree = self._environment.compile(selector)
        except CELParseError:
            return NotChecked("cel-python does not read its syntax")
        except Exception as error:  # noqa: BLE001 - a fault of cel-python says nothing of the selector
            return NotChecked(f"cel-python ends with {type(error).__name__}")
        why = next(_unsupported(tree), None)
        return tree if why is None else NotChecked(why)


class _GuardedEvaluator(Evaluator):
    """cel-python's interpreter; it counts, and raises `Unchecked` where it is known to differ."""

    def __init__(self, ast: Tree, activation: Activation, meter: Meter) -> None:
        super().__init__(ast, activation)
        self._meter = meter
        self._visited: object = None
        """The latest value: when a macro begins, that which the macro runs over."""

    def sub_evaluator(self, ast: Tree) -> "_GuardedEvaluator":
        """The evaluator for the body of a macro."""
        return _GuardedEvaluator(ast, self.activation, self._meter)

    def visit(self, tree: Tree) -> Any:  # noqa: ANN401 - a value of cel-python
        """The value of a node."""
        self._meter.spend()
        value = super().visit(tree)
        weight(value)
        self._visited = value
        return value

    def visit_children(self, tree: Tree) -> list[Any]:
        """The values of the children."""
        return [self.visit(child) if isinstance(child, lark.Tree) else child for child in tree.children]

    def mapinits(self, tree: Tree) -> Any:  # noqa: ANN401 - a value of cel-python
        """A map that is written out."""
        value = super().mapinits(tree)
        if isinstance(value, dict) and any(isinstance(each, CELEvalError) for each in value.values()):
            raise Unchecked(Difference.ERROR_IN_MAP)
        return value

    def macro_has_eval(self, exprlist: Tree) -> Any:  # noqa: ANN401 - a value of cel-python
        """The macro ``has``."""
        (value,) = self.visit_children(exprlist)
        if isinstance(value, CELEvalError):
            field = next(each for each in exprlist.iter_subtrees_topdown() if each.data == "member_dot")
            if value.tree is not field or not issubclass(_class_of(value), KeyError):
                raise Unchecked(Difference.HAS_ERROR)
        return celtypes.BoolType(not isinstance(value, CELEvalError))

    def build_macro_eval(self, child: Tree) -> Callable[[Any], Any]:
        """The body of ``map``, ``filter`` or ``exists_one``, as a function of its variable."""
        return partial(self._checked, super().build_macro_eval(child), self._macro(child))

    def build_ss_macro_eval(self, child: Tree) -> Callable[[Any], Any]:
        """The body of ``all`` or ``exists``."""
        return partial(self._checked, super().build_ss_macro_eval(child), self._macro(child))

    def _macro(self, child: Tree) -> str:
        """The name of a macro that begins now."""
        if not isinstance(self._visited, celtypes.ListType | celtypes.MapType):
            raise Unchecked(Difference.MACRO_ON_TEXT)
        return str(child.children[1].value)

    def _checked(self, body: Callable[[Any], Any], macro: str, element: object) -> object:
        try:
            value = body(element)
        except CELEvalError as error:
            raise Unchecked(Difference.ERROR_IN_MACRO) from error
        if macro in _OF_CONDITIONS and not isinstance(value, celtypes.BoolType | CELEvalError):
            raise Unchecked(Difference.NOT_BOOL)
        return value


def _class_of(error: CELEvalError) -> type:
    """The Python error behind an error of cel-python."""
    found = error.args[1] if len(error.args) > 1 else None
    return found if isinstance(found, type) else ValueError


def _unsupported(tree: Tree) -> Iterator[str]:
    """What a selector uses that is not checked: each a text for `NotChecked`."""
    used, variables = [], set()
    for each in tree.iter_subtrees_topdown():
        if each.data == "ident":
            used.append(each.children[0].value)
        elif each.data == "ident_arg":
            yield from _unsupported_call(each.children[0].value, NAMES)
        elif each.data == "member_dot_arg":
            name, arguments = each.children[1].value, each.children[2].children if len(each.children) > 2 else []
            if name not in _MACROS:
                yield from _unsupported_call(name, METHODS)
            elif len(arguments) != 2:
                yield f"the selector uses {name}() with {len(arguments)} arguments"
            else:
                variables.add(next(arguments[0].find_data("ident")).children[0].value)
        elif each.data in {"dot_ident", "dot_ident_arg", "member_object"}:
            yield "the selector uses a message, or a name that begins with a dot"
        elif each.data == "literal" and _has_escapes(each.children[0]):
            yield Difference.ESCAPES.value
        elif each.data == "literal" and _is_large(each.children[0]):
            yield Difference.LARGE_NUMBER.value
    yield from (f"the selector uses {name}" for name in used if name not in variables and name != _VARIABLE)
    if variables & _RESERVED:
        yield Difference.SHADOWED.value


def _unsupported_call(name: str, known: frozenset[str]) -> Iterator[str]:
    if name not in known:
        yield f"the selector uses {name}()"


def _is_large(token: Token) -> bool:
    return token.type in {"INT_LIT", "UINT_LIT"} and len(token.value) > _LONGEST_NUMBER


def _has_escapes(token: Token) -> bool:
    """Whether a text has escapes that cel-python reads in another way; of bytes, any but plain characters."""
    text = token.value
    if token.type == "BYTES_LIT":
        return "\\" in text or not text.isascii()
    if token.type not in {"STRING_LIT", "MLSTRING_LIT"} or text[0] in "rR":
        return False
    parts = text.split("\\\\")
    return any(after[:1] not in _PLAIN_ESCAPES for part in parts for after in part.split("\\")[1:])
