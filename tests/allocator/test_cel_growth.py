"""A law: the time of a call grows no faster than its arguments or its cost, for all arguments.

Each function is called with texts, lists and maps of many kinds, short and long. If the time grows faster, it is
measured again before it counts. The measure is processor time, because other work on the machine changes it little.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from allocator.cel import CompileError, Environment, InternalError, compile_expression
from allocator.cel.compile.frame import Step
from allocator.cel.functions.declare import Overload
from allocator.cel.types import Type
from allocator.cel.values import NONE, Duration, OptionalValue, Timestamp, UInt
from tests.allocator.celcalls import Call, by_type, signatures
from tests.allocator.test_cel_hostile import VALUES

SHORT, LONG = 500, 8_000
GROWTH = LONG // SHORT
TOLERANCE = 4.0
FLOOR = 200
"""A call that takes less time than this number of empty calls, or than its cost in empty calls, is not checked."""

UNITS = (
    "a", "9", "0", "1s", "1.", ".", "-", "a-", "a.", ":", "1:", " ", "é", "😀", "%41", "%s", "%%", "&", "a=b&",
    "/", "[", "]", "@", "\\", '"', "A/", "\n", "(", "a|", "=", "+", "_", "e", "\u2028", "'", "1_", "00",
    "\u017f", "(.*)",
)  # fmt: skip
PREFIXES = ("", "http://", "http://a/?", "1.0.0-", "0x", "::1/", "2020-01-01T00:00:00.", "+", "1e", "1.0.0+")
SUFFIXES = ("!", "s", "Z")


def texts() -> Iterator[tuple[str, str, str]]:
    """The beginning of a text, its repeated part, and its end."""
    yield from product(PREFIXES, UNITS, [""])
    yield from product([""], UNITS, SUFFIXES)


def text(kind: tuple[str, str, str], size: int) -> str:
    """A text of about ``size`` characters."""
    prefix, unit, suffix = kind
    return f"{prefix}{unit * (size // len(unit))}{suffix}"


ELEMENTS: dict[str, Callable[[int], Any]] = {
    "int": lambda index: index,
    "uint": UInt,
    "double": float,
    "bool": lambda index: index % 2 == 0,
    "string": lambda index: f"{'a' * 50}{index}",
    "bytes": lambda index: b"a" * 50 + str(index).encode(),
    "google.protobuf.Timestamp": Timestamp,
    "google.protobuf.Duration": Duration,
}
DYNAMIC = ("int", "string", "double")


def lists(kind: Type, size: int) -> Iterator[tuple[Any, ...]]:
    """Lists of elements of a type; if the type is open, lists of several types and of lists."""
    inner = kind.parameters[0]
    names = DYNAMIC if inner.name not in ELEMENTS else (inner.name,)
    for name in names:
        yield tuple(map(ELEMENTS[name], range(size)))
        yield tuple(map(ELEMENTS[name], reversed(range(size))))
    if inner.is_parameter or inner.is_dynamic:
        yield (tuple(range(100)),) * (size // 100)
        yield tuple((index,) for index in range(size))
        yield (NONE,) * size
        yield ({"a": OptionalValue(present=True, value="a" * 1000)},) * (size // 100)
    if inner.name == "list":
        yield (tuple(range(100)),) * (size // 100)


def arguments(kind: Type, size: int) -> list[Any]:
    """Values of a type with a size; none if its values have no size."""
    if kind.name == "string":
        return [text(each, size) for each in texts()]
    if kind.name == "bytes":
        return [b"a" * size, b"\xff" * size, "é".encode() * (size // 2)]
    if kind.name == "list":
        return list(lists(kind, size))
    if kind.name == "map":
        return [{str(index): index for index in range(size)}]
    if kind.is_parameter or kind.is_dynamic:
        return ["a" * size, tuple(range(size)), {index: index for index in range(size)}]
    return []


def small(kind: Type) -> Any:
    """A small value of a type."""
    if kind.is_parameter or kind.is_dynamic:
        return 1
    if kind.name == "string":
        return "a"
    if kind.name == "list":
        return (1,) if kind.parameters[0].name in {"<A>", "int", "dyn"} else (small(kind.parameters[0]),)
    if kind.name == "map":
        return {"a": 1}
    return VALUES[kind.name][-1]


def grown(overload: Overload) -> Iterator[tuple[list[Any], list[Any]]]:
    """Short and long arguments: one of them long, and all of them long."""
    kinds = overload.parameters
    rest = [small(kind) for kind in kinds]
    pairs = [list(zip(arguments(kind, SHORT), arguments(kind, LONG), strict=True)) for kind in kinds]
    for place, found in enumerate(pairs):
        for short, long in found:
            yield [*rest[:place], short, *rest[place + 1 :]], [*rest[:place], long, *rest[place + 1 :]]
    growing = [found for found in pairs if found]
    most = max(map(len, growing), default=0) if len(growing) > 1 else 0
    for number in range(0, most, max(1, most // 40)):
        chosen = [
            found[number % len(found)] if found else (value, value) for found, value in zip(pairs, rest, strict=True)
        ]
        yield [short for short, _ in chosen], [long for _, long in chosen]
        yield _with_other_half([short for short, _ in chosen]), _with_other_half([long for _, long in chosen])


def _with_other_half(values: Sequence[Any]) -> list[Any]:
    """The second text has a large part of the first, but not all of it."""
    first, second, *others = values
    if type(first) is not str or type(second) is not str:
        return [first, second, *others]
    quarter = first[: len(first) // 4]
    return [first, f"{quarter}\0{quarter}", *others]


def seconds(step: Step, values: list[Any], repeats: int) -> tuple[float, Call]:
    """The least time of some runs."""
    best, call = float("inf"), None
    for _ in range(repeats):
        start = time.thread_time()
        call = Call(step, values)
        best = min(best, time.thread_time() - start)
    assert call is not None
    return best, call


def too_fast(step: Step, short: list[Any], long: list[Any], floor: float) -> str | None:
    """The arguments whose time grew too fast in each measurement; None if there are none."""
    problem = None
    for repeats in (1, 5, 25):
        after, call = seconds(step, long, repeats)
        if after < floor / FLOOR * max(FLOOR, call.frame.cost) or isinstance(call.error, InternalError):
            return None
        before, first = seconds(step, short, repeats)
        counted = max(GROWTH, call.frame.cost / max(1, first.frame.cost))
        if after / before <= TOLERANCE * counted:
            return None
        shown = [repr(value)[:40] for value in long]
        problem = f"{after / before:.0f} times the time for {counted:.0f} times as much: {shown}"
    return problem


SIGNATURES = [
    (name, overload) for name, overload in signatures() if any(arguments(kind, 10) for kind in overload.parameters)
]


@pytest.fixture(scope="module")
def floor() -> float:
    """Calls below this time are too quick to be checked."""
    step = by_type(next(overload for name, overload in signatures() if name == "!_(bool)"))
    return FLOOR * min(seconds(step, [True], 200)[0] for _ in range(5))


@pytest.mark.parametrize(("name", "overload"), SIGNATURES, ids=[name for name, _ in SIGNATURES])
def test_time_grows_no_faster_than_arguments_or_cost(name: str, overload: Overload, floor: float) -> None:
    step = by_type(overload)
    problems = [found for short, long in grown(overload) if (found := too_fast(step, short, long, floor))]
    assert not problems, f"{name}: " + "\n".join(problems[:5])


TEXTS: dict[str, Callable[[int], str]] = {
    "terms": lambda size: "true" + " && true" * (size // 8),
    "operators": lambda size: "1" + "+1" * (size // 2),
    "signs": lambda size: "-" * size + "1",
    "parentheses": lambda size: "(" * (size // 2) + "1" + ")" * (size // 2),
    "fields": lambda size: "a" + ".a" * (size // 2),
    "digits": lambda size: "9" * size,
    "fraction": lambda size: "." + "9" * size,
    "escapes": lambda size: '"' + "\\n" * (size // 2) + '"',
    "quotes": lambda size: '"""' + 'a"' * (size // 2),
    "comments": lambda size: "//a\n" * (size // 4) + "true",
    "empty lists": lambda size: "[" + "[]," * (size // 3) + "[]]",
    "empty maps": lambda size: "[" + "{}," * (size // 3) + "{}]",
    "macros": lambda size: "[" + "[].map(x, x)," * (size // 13) + "[]]",
    "calls": lambda size: "[" + 'size(""),' * (size // 9) + "1]",
    "membership": lambda size: "1 in [" + ",".join("1" * (size // 2)) + "]",
    "template": lambda size: '"' + "%s" * (size // 4) + '".format([' + ",".join("1" * (size // 4)) + "])",
    "pattern": lambda size: '"a".matches("' + "a?" * (size // 2) + '")',
    "unknown name": lambda size: f"cel.bind({'ab' * (size // 4)}, 1, {'ba' * (size // 4)})",
    "sets": lambda size: f"sets.contains([{','.join('1' * (size // 4))}], [{','.join('2' * (size // 4))}])",
}


def compiling(expression: str, repeats: int) -> float:
    """The least time of some runs; the expression need not compile."""
    best = float("inf")
    for _ in range(repeats):
        start = time.thread_time()
        try:
            compile_expression(expression, Environment())
        except CompileError as error:
            assert "internal error" not in error.message  # noqa: PT017  # most of these are refused
        best = min(best, time.thread_time() - start)
    return best


@pytest.mark.parametrize("text_of", TEXTS.values(), ids=TEXTS.keys())
def test_the_time_to_compile_grows_no_faster_than_the_text(text_of: Callable[[int], str], floor: float) -> None:
    short, long = text_of(1_200), text_of(9_600)
    slow = [
        repeats
        for repeats in (1, 5, 25)
        if (after := compiling(long, repeats)) > floor * 50 and after > TOLERANCE * 8 * compiling(short, repeats)
    ]
    assert slow != [1, 5, 25]


def test_the_time_to_compile_grows_no_faster_than_the_square_of_the_nesting() -> None:
    shallow, deep = (f"{'[' * depth}{']' * depth} == []" for depth in (50, 200))
    growth = [compiling(deep, repeats) / compiling(shallow, repeats) for repeats in (1, 3, 5)]
    assert min(growth) < 2 * 4**2
