"""A law: on what cel-python supports, its results and ours are the same."""

import re

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from allocator import Device, DeviceId, Quantity
from allocator.cel import CompileError, Environment, EvaluationError, compile_expression
from tests.allocator.celpython import FAILS, Outcome, described, evaluate

DEVICE = Device(
    DeviceId("gpu.example.com", "pool", "gpu-0"),
    attributes={
        "d/yes": True, "d/no": False, "d/one": 1, "d/big": 2**62, "d/text": "a100", "d/empty": "",
        "d/names": ("a", "b"), "d/numbers": (1, 2, 3),
    },
    quantities={"d/memory": Quantity.parse("80Gi")},
)  # fmt: skip

# In expressions, @ stands for the attributes and # for the capacity of a domain; {kind} for an expression of that type.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "bool": (
        "true", "false", "@.yes", "@.no", "@.missing", "has(@.one)", "has(@.missing)", "'one' in @",
        "has(#.memory)", "'memory' in #", "size(#) == {int}", "#.missing == #.memory",
        "({bool} && {bool})", "({bool} || {bool})", "!({bool})", "({bool} ? {bool} : {bool})",
        "({int} == {int})", "({int} != {int})", "({int} < {int})", "({int} >= {int})", "({uint} < {uint})",
        "({double} <= {double})", "({double} == {double})", "({string} == {string})", "({string} < {string})",
        "({bytes} == {bytes})", "({ints} == {ints})", "({map} == {map})",
        "{string}.startsWith({string})", "{string}.endsWith({string})", "{text}.contains({string})",
        "{string}.matches('^a[0-9]*$')", "({int} in @.numbers)", "({int} in [{int}, 2])", "({string} in {strings})",
        "({string} in {map})",
        "{ints}.all(x, x > {int})", "{ints}.exists(x, x == {int})", "{ints}.exists_one(x, x < {int})",
        "{strings}.all(s, s.size() > {int})", "{map}.exists(k, k == {string})",
    ),
    "int": (
        "0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "@.one", "@.big",
        "({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "-({int})",
        "size({string})", "{string}.size()", "{ints}.size()", "size({map})", "size({bytes})", "{ints}[{index}]",
        "int({uint})", "int({double})", "int({string})", "{map}[{string}]", "{map}.a", "({bool} ? {int} : {int})",
    ),
    "index": ("0", "1", "5", "size({string})"),
    "uint": (
        "0u", "1u", "18446744073709551615u", "({uint} + {uint})", "({uint} - {uint})", "({uint} * {uint})",
        "({uint} / {uint})", "({uint} % {uint})", "uint({int})", "uint(2.75)",
    ),
    "double": (
        "0.0", "1.5", "-2.25", "1e10", "({double} + {double})", "({double} - {double})", "({double} * {double})",
        "({double} / 4.0)", "double({int})", "double({string})", "-({double})",
    ),
    "string": (
        "''", "'a'", "'é😀'", "@.text", "@.empty", "device.driver", "({string} + {string})", "string({int})",
        "string({uint})", "string({bytes})", "({bool} ? {string} : {string})", "{strings}[{index}]",
    ),
    "text": ("'a100'", "@.text", "@.empty", "device.driver"),
    "bytes": ("b''", "b'a'", "bytes({string})", "({bytes} + {bytes})"),
    "ints": (
        "[1].filter(x, x > 1)", "[1, 2, 3]", "[{int}, {int}]", "@.numbers", "({ints} + {ints})",
        "{ints}.map(x, x + {int})", "{ints}.filter(x, x > {int})",
    ),
    "strings": (
        "['a', 'b']", "[{string}]", "@.names", "{strings}.map(s, s + {string})", "{strings}.filter(s, s > {string})",
    ),
    "map": ("{'a': 1, 'b': 2}", "{'a': @.one, '': -7}", "{@.text: 3}", "({bool} ? {map} : {map})"),
}  # fmt: skip
HOLE = re.compile(r"\{([a-z]+)\}")
LEAVES = {kind: tuple(text for text in texts if not HOLE.search(text)) for kind, texts in TEMPLATES.items()}

DEVIATIONS = {
    "string(true) == 'true'": "it writes booleans as Python does",
    "(1 / 0) in []": "what is looked for in an empty list is evaluated",
    "[1, 2][-1] == 2": "a negative index counts from the end",
    "'a' in {'a': 1 / 0}": "an error within a map is a value of the map",
    "uint(-0.5 * 1.0) == 0u": "it rounds before it looks at the sign",
    "1.0 / -0.0 < 0.0": "the sign of a zero divisor is lost",
    "dyn(1) == dyn(1.0)": "numbers of two types do not compare",
    "('a' + 'b').contains('a')": "a sum of strings has no contains()",
    "double(([] + @.numbers)[0]) == 1.0": "an element whose type the checker does not know has any type",
}
"""Where cel-python differs from cel-go; the law avoids these. Ours are as cel-go's (the recorded cases hold them)."""


def expand(expression: str) -> str:
    return expression.replace("@", 'device.attributes["d"]').replace("#", 'device.capacity["d"]')


def ours(expression: str) -> Outcome:
    try:
        return described(compile_expression(expression, Environment()).evaluate(DEVICE))
    except EvaluationError:
        return FAILS


@st.composite
def expressions(draw: st.DrawFn, kind: str, depth: int) -> str:
    """An expression of a type, nested at most that deep."""
    template = draw(st.sampled_from(TEMPLATES[kind] if depth else LEAVES[kind]))
    return HOLE.sub(lambda hole: draw(expressions(hole[1], depth - 1)), template)


@settings(max_examples=300)
@given(st.sampled_from(sorted(TEMPLATES)).flatmap(lambda kind: expressions(kind, 3)).map(expand))
def test_result_is_that_of_cel_python(expression: str) -> None:
    try:
        found = ours(expression)
    except CompileError:
        reject()  # a constant that cannot be converted
    assert found == evaluate(expression, DEVICE)


@pytest.mark.parametrize("expression", DEVIATIONS, ids=DEVIATIONS.values())
def test_cel_python_still_deviates_from_cel_go(expression: str) -> None:
    assert ours(expand(expression)) != evaluate(expand(expression), DEVICE)
