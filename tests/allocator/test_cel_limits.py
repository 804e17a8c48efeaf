"""Limits: no expression hangs, fills the memory or overflows the stack."""

import tracemalloc
from itertools import pairwise

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
from allocator.cel.cost import LIMIT
from allocator.search import SearchBudget
from allocator.search.limits import TimedSelectors

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
