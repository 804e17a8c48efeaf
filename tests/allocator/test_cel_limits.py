"""Nothing that an expression can do hangs, fills the memory or overflows the stack."""

import tracemalloc
from itertools import pairwise

import pytest

from allocator.cel import CelError, CompileError, CostLimitError, Environment, compile_expression
from allocator.cel.cost import LIMIT
from allocator.model import Device, DeviceId

DEVICE = Device(DeviceId("gpu.example.com", "pool", "gpu-0"))


def doubling(start: str, body: str, last: str, times: int = 40) -> str:
    """Variables of which each is made from the one before, then an expression of the last."""
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
def test_what_grows_is_stopped_while_it_is_small(expression: str) -> None:
    """By the limit on cost, which is counted; how long that takes, the benchmark tells."""
    program = compile_expression(expression, Environment())
    tracemalloc.start()
    with pytest.raises(CostLimitError):
        program.evaluate(DEVICE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_the_limit_cannot_be_absorbed() -> None:
    program = compile_expression(f"{GROWING['strings by map']} || true", Environment())
    with pytest.raises(CostLimitError, match="actual cost limit exceeded"):
        program.evaluate(DEVICE)
    assert program.measure(DEVICE).cost > LIMIT


def test_an_expression_has_at_most_ten_kibibytes() -> None:
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
def test_what_is_long_but_not_deep_works(expression: str, value: bool) -> None:
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
def test_unterminated_strings_are_refused(text: str) -> None:
    """In linear time: with a backtracking lexer this would not end."""
    with pytest.raises(CompileError):
        compile_expression(text, Environment())


def test_regular_expressions_do_not_backtrack() -> None:
    """Or this would not end."""
    program = compile_expression(f'"{"a" * 2000}!".matches("^(a+)+$")', Environment())
    assert program.evaluate(DEVICE) is False


@pytest.mark.parametrize(
    "expression", ["", " ", "// nothing", "?!", ")", "1 2", "a b", "[1", "{1:", "f(", "1 ? 2", "..a"]
)
def test_nonsense_is_a_compile_error(expression: str) -> None:
    with pytest.raises(CelError):
        compile_expression(expression, Environment())
