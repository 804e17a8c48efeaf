"""Errors say where, show it with a caret, and suggest what may have been meant."""

from textwrap import dedent

import pytest

from allocator.cel import CompileError, Environment, compile_expression

SHOWN = {
    "1 +": """\
        1:4: Syntax error: unexpected end of the expression
         | 1 +
         | ...^""",
    'devise.driver == "x"': """\
        1:1: undeclared reference to 'devise'; did you mean 'device'?
         | devise.driver == "x"
         | ^""",
    'device.drivr == "x"': """\
        1:7: undefined field 'drivr'; did you mean 'driver'?
         | device.drivr == "x"
         | ......^""",
    'true &&\n  quantty("1Gi") == 1': """\
        2:3: undeclared reference to 'quantty'; did you mean 'quantity'?
         |   quantty("1Gi") == 1
         | ..^""",
    '"a" == 1': """\
        1:5: found no matching overload for '_==_' applied to '(string, int)'
         | "a" == 1
         | ....^""",
    'device.driver.startWith("a")': """\
        1:15: undeclared reference to 'startWith'; did you mean 'startsWith'?
         | device.driver.startWith("a")
         | ..............^""",
    '"a\\qb"': """\
        1:1: invalid escape sequence \\q
         | "a\\qb"
         | ^""",
    "99999999999999999999": """\
        1:1: invalid int literal: 99999999999999999999 does not fit 64 bits
         | 99999999999999999999
         | ^""",
    "[1].all(1, true)": """\
        1:9: argument must be a simple name
         | [1].all(1, true)
         | ........^""",
    "has(device)": """\
        1:5: invalid argument to has() macro
         | has(device)
         | ....^""",
    "for": """\
        1:1: reserved identifier: for
         | for
         | ^""",
}


@pytest.mark.parametrize(("expression", "text"), SHOWN.items())
def test_compile_error_shows_the_fault_with_a_caret(expression: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(expression, Environment())
    assert str(caught.value) == dedent(text)


def test_compile_error_has_position_message_and_expression() -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression("true &&\n x", Environment())
    error = caught.value
    assert (error.line, error.column, error.message) == (2, 2, "undeclared reference to 'x'")
    assert error.expression == "true &&\n x"


def test_compile_error_shows_only_part_of_a_long_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(f'"{"a" * 500}" == 1', Environment())
    assert max(map(len, str(caught.value).splitlines())) < 150


@pytest.mark.parametrize("expression", ["\ud800", '"\ud800"', "\x00", '"\x00" +', "`", "é"])
def test_invalid_text_is_a_compile_error_that_can_be_printed(expression: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(expression, Environment())
    assert str(caught.value).encode()


TOPOLOGY = 'device.attributes["gpu.example.com"].topology'


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('[1, "a"] == []', "expected type 'int' but found 'string'"),
        (f'[{TOPOLOGY}, "numa-1"] == []', "expected type 'dyn' but found 'string'"),
        (f'["numa-1", {TOPOLOGY}] == []', "expected type 'string' but found 'dyn'"),
        (f'{{"a": 1, "b": {TOPOLOGY}}} == {{}}', "expected type 'int' but found 'dyn'"),
    ],
)
def test_literal_with_elements_of_two_types_does_not_compile(expression: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_expression(expression, Environment())


@pytest.mark.parametrize(
    "expression",
    [
        "[[], [1]] == []",
        f"[{TOPOLOGY}, {TOPOLOGY}] == []",
        f'"%s %d %s".format([{TOPOLOGY}, 1, "a"]) == ""',
    ],
)
def test_literal_of_one_type_and_arguments_of_format_compile(expression: str) -> None:
    assert compile_expression(expression, Environment()).type.name == "bool"
