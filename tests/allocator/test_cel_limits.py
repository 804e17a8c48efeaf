"""Limits: no expression hangs, fills the memory or overflows the stack."""

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import pytest

from allocator import Device, DeviceId, Limits, SearchLimitError, Selectors
from allocator.cel import (
    CelError,
    CompileError,
    CostLimitError,
    Environment,
    InternalError,
    OutOfTimeError,
    compile_expression,
)
from allocator.cel.compile.frame import Step
from allocator.cel.cost import LIMIT
from allocator.cel.functions.declare import Overload
from allocator.cel.types import Type
from allocator.cel.values import NONE, Duration, OptionalValue, Timestamp, UInt
from allocator.search import SearchBudget
from allocator.search.limits import TimedSelectors
from tests.allocator.celcalls import Call, by_type, signatures
from tests.allocator.test_cel_hostile import VALUES

DEVICE = Device(DeviceId("gpu.example.com", "pool", "gpu-0"))


def doubling(start: str, body: str, last: str, times: int = 40) -> str:
    """Variables, each made from the one before, then an expression of the last one."""
    names = ["v0", *(f"v{i}" for i in range(1, times))]
    binds = [f"cel.bind(v0, {start}, "]
    binds += [f"cel.bind({new}, {body.replace('x', old)}, " for old, new in pairwise(names)]
    return "".join(binds) + last.replace("x", names[-1]) + ")" * len(binds)


GROWING = {
    "strings by map": '["a"].map(x, x + x)' + ".map(x, x + x)" * 60 + ".size() == 1",
    "lists by map": "[[1]].map(x, x + x)" + ".map(x, x + x)" * 60 + ".size() == 1",
    "strings by bind": doubling('"a"', "x + x", "x.size() > 0"),
    "lists by bind": doubling("[1]", "x + x", "x.size() > 0"),
    "nested lists compared": doubling("[1, 1]", "[x, x]", "x == x"),
    "nested lists searched": doubling("[1, 1]", "[x, x]", "x.includes(x)"),
    "nested lists printed": doubling("[1, 1]", "[x, x]", '"%s".format([x]) == ""'),
    "nested maps compared": doubling('{"a": 1}', '{"a": x, "b": x}', "x == x", 30),
    "formats": '["a"].map(x, "%s%s".format([x, x]))' + '.map(x, "%s%s".format([x, x]))' * 60 + ".size() == 1",
    "joins": '["a"].map(x, [x, x].join())' + ".map(x, [x, x].join())" * 60 + ".size() == 1",
    "replacing nothing": '"aa"' + '.replace("", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")' * 40 + ".size() == 1",
    "nested loops": "true" + "".join(f" && [1, 2, 3, 4, 5, 6, 7, 8, 9].all(v{i}, true" for i in range(8)) + ")" * 8,
}


@pytest.mark.parametrize("expression", GROWING.values(), ids=GROWING.keys())
def test_growing_value_hits_the_cost_limit_while_it_is_small(expression: str) -> None:
    """The benchmark measures the time."""
    program = compile_expression(expression, Environment())
    tracemalloc.start()
    with pytest.raises(CostLimitError):
        program.evaluate(DEVICE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_cost_limit_is_not_absorbed() -> None:
    pairs = "sets.contains(lists.range(2000), lists.range(2000))"
    program = compile_expression(f"{pairs} || true", Environment())
    with pytest.raises(CostLimitError, match="actual cost limit exceeded"):
        program.evaluate(DEVICE)
    assert program.measure(DEVICE).cost > LIMIT


def test_expression_has_at_most_ten_kibibytes() -> None:
    assert compile_expression(f'"{"a" * 10_230}" == ""', Environment()).evaluate(DEVICE) is False
    with pytest.raises(CompileError, match="longer than 10240 bytes"):
        compile_expression(f'"{"ä" * 5_120}" == ""', Environment())


@pytest.mark.parametrize(
    "expression",
    [
        "[" * 2000 + "]" * 2000,
        "1" + "+1" * 4000,
        "true" + "?true:true" * 900,
        "a" + ".a" * 4000,
        "(-" * 1000 + "1" + ")" * 1000,
    ],
    ids=["lists", "sum", "choices", "fields", "signs"],
)
def test_nesting_has_a_limit(expression: str) -> None:
    with pytest.raises(CompileError, match=r"nests|unexpected"):
        compile_expression(expression, Environment())


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(" * 3000 + "true" + ")" * 3000, True),
        ("true" + " && true" * 1000, True),
        ("false" + " || false" * 1000, False),
        ("!" * 3000 + "true", True),
        ("[" * 200 + "]" * 200 + " == []", False),
        ("[1]" + ".map(x, x)" * 80 + " == [1]", True),
    ],
    ids=["parentheses", "and", "or", "not", "lists", "maps"],
)
def test_long_expression_that_is_not_deep_compiles(expression: str, value: bool) -> None:
    assert compile_expression(expression, Environment()).evaluate(DEVICE) is value


@pytest.mark.parametrize(
    "text",
    [
        '"' + "a\\" * 4000,
        '"' + r"\"" * 4000,
        "'" * 1001,
        '"""' + '\\a"' * 3000,
        "b'" + "\\x" * 3000,
        'r"""' + '"a' * 3000,
    ],
    ids=["backslashes", "escaped", "quotes", "triple", "bytes", "raw"],
)
def test_unterminated_string_is_refused_in_linear_time(text: str) -> None:
    """A backtracking lexer would not end."""
    with pytest.raises(CompileError):
        compile_expression(text, Environment())


def test_regular_expressions_do_not_backtrack() -> None:
    """Otherwise this would not end."""
    program = compile_expression(f'"{"a" * 2000}!".matches("^(a+)+$")', Environment())
    assert program.evaluate(DEVICE) is False


@pytest.mark.parametrize(
    "expression", ["", " ", "// nothing", "?!", ")", "1 2", "a b", "[1", "{1:", "f(", "1 ? 2", "..a"]
)
def test_nonsense_is_a_compile_error(expression: str) -> None:
    with pytest.raises(CelError):
        compile_expression(expression, Environment())


SLOW = {
    "loops": "true" + "".join(f" && [1, 2, 3, 4, 5, 6, 7, 8, 9].all(v{i}, true" for i in range(8)) + ")" * 8,
    "free steps": f"lists.range(90000).all(x, {' && '.join(['true'] * 1000)})",
    "membership": f"lists.range(90000).all(x, !(x in [{', '.join(str(n) for n in range(-1500, 0))}]))",
    "pairs": "lists.range(900).all(x, sets.contains(lists.range(300), lists.range(300)))",
    "long texts": "lists.range(90000).map(x, 'a').join().split('').all(x, isURL('http://a/' + x))",
}


class Clock:
    """A clock that advances by one second at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks)


@pytest.mark.parametrize("expression", SLOW.values(), ids=SLOW.keys())
def test_evaluation_ends_when_time_is_up(expression: str) -> None:
    """It ends after some looks at the clock, long before the cost limit."""
    program = compile_expression(expression, Environment())
    clock = Clock()
    with pytest.raises(OutOfTimeError, match="operation interrupted"):
        program.evaluate_until(DEVICE, lambda: clock() > 5)
    assert clock.looks == 6
    assert program.measure(DEVICE, lambda: True).cost < 100_000


def test_time_that_is_up_is_an_error_of_the_search_and_is_not_remembered() -> None:
    clock, selectors = Clock(), Selectors()
    expression = '["a"].all(x, lists.range(2000).all(y, x == "a"))'
    with pytest.raises(SearchLimitError, match="time"):
        TimedSelectors(selectors, SearchBudget(Limits(seconds=2.0), clock)).matches(expression, DEVICE)
    with pytest.raises(SearchLimitError, match="time"):
        TimedSelectors(selectors, SearchBudget(Limits(seconds=2.0), clock)).derive(expression, DEVICE)
    assert selectors.matches(expression, DEVICE) is True


def test_time_that_is_up_is_not_absorbed() -> None:
    program = compile_expression(f"{SLOW['loops']} || true", Environment())
    with pytest.raises(OutOfTimeError):
        program.evaluate_until(DEVICE, lambda: True)


@pytest.mark.parametrize("operator", ["&&", "||"])
def test_decisive_term_is_evaluated_once(operator: str) -> None:
    """Otherwise each level of nesting would double the time."""
    same, other = ("true", "false") if operator == "&&" else ("false", "true")
    text = f"{same} {operator} {same} {operator} (" * 35 + f"dyn({other})" + ")" * 35
    assert compile_expression(text, Environment()).evaluate(DEVICE) is (other == "true")


def test_sets_are_compared_only_if_the_cost_allows() -> None:
    """The cost is charged before the work."""
    program = compile_expression("sets.contains(lists.range(100000), lists.range(100000))", Environment())
    measured = program.measure(DEVICE)
    assert isinstance(measured.error, CostLimitError)
    assert measured.cost > LIMIT


@pytest.mark.parametrize(
    "expression",
    [
        doubling("{1: 1}", "{x: x}", "x == x"),
        "optional.of(1)" + ".optMap(a, a)" * 60 + ".hasValue()",
        "[" + ", ".join(["[]"] * 3_000) + "].size() == 3000",
        doubling("[1, 1]", "[x, x]", "sets.contains(x, x)"),
        doubling("'a'", "x + x", "x.lastIndexOf(x) == 0"),
    ],
    ids=["types", "optional values", "empty lists", "sets", "texts"],
)
def test_doubling_value_type_or_tree_ends_soon(expression: str) -> None:
    """It ends with an error or a value; if a tree, a type or a text doubled, it would not end."""
    try:
        program = compile_expression(expression, Environment())
    except CompileError as error:
        message: str = error.message
    else:
        message = str(program.measure(DEVICE).error)
    assert "internal error" not in message


def test_unexpected_exception_becomes_an_internal_error_that_names_the_expression() -> None:
    """No device has such a value today."""
    device = Device(DEVICE.id, attributes={"d/odd": object()})  # type: ignore[dict-item]  # a fault that we do not have
    odd = 'type(device.attributes["d"].odd) == int'
    for expression in (odd, f"[1].exists(x, {odd})"):
        with pytest.raises(InternalError, match=r"^internal error in selector evaluation: KeyError: .*d.\]\.odd"):
            Selectors().matches(expression, device)
        with pytest.raises(InternalError):
            Selectors().derive(expression, device)
        assert isinstance(compile_expression(expression, Environment()).measure(device).error, InternalError)


# A law: the time of a call grows no faster than its arguments or its cost, for all arguments.


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

    def is_too_slow(repeats: int) -> bool:
        after = compiling(long, repeats)
        return after > floor * 50 and after > TOLERANCE * 8 * compiling(short, repeats)

    assert not all(map(is_too_slow, (1, 5, 25)))  # each measurement with more repeats only if the one before fails


def test_the_time_to_compile_grows_no_faster_than_the_square_of_the_nesting() -> None:
    shallow, deep = (f"{'[' * depth}{']' * depth} == []" for depth in (50, 200))
    growth = [compiling(deep, repeats) / compiling(shallow, repeats) for repeats in (1, 3, 5)]
    assert min(growth) < 2 * 4**2
