"""Syntax at its edges, as cel-go parses it."""

import pytest

from allocator import Device, DeviceId
from allocator.cel import CompileError, Environment, compile_expression

DEVICE = Device(DeviceId("gpu.example.com", "pool", "gpu-0"), attributes={"d/for": 1, "d/a": 1})

COSTS = {
    "[1, 2,] == [1, 2] && [,] == []": 1,
    "{'a': 1,} == {'a': 1} && {,} == {}": 1,
    "- 1 == -1": 1,
    "- 9223372036854775808 < 0": 1,
    "--1 == 1": 1,
    "---1 == -1": 2,
    "- -dyn(1) == 1": 1,
    "1--1 == 2": 2,
    "!!true": 0,
    "1 < 2 == true": 2,
    "bR'a\\' == b'a\\\\'": 1,
    "'''a'b''' == \"a'b\"": 1,
    "device.attributes['d'].for == 1": 5,
    "device.attributes['d'].`a` == 1 && 1 in[1]": 5,
    "true ? false : true ? true : false": 0,
    ".device.driver.size() > 0 // a comment\n": None,
}


@pytest.mark.parametrize(("expression", "cost"), COSTS.items())
def test_expression_is_read_as_cel_go_reads_it(expression: str, cost: int | None) -> None:
    measured = compile_expression(expression, Environment()).measure(DEVICE)
    assert measured.error is None
    assert measured.value is (expression != "true ? false : true ? true : false")
    assert cost is None or measured.cost == cost


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['d'].in == 1",
        "device.attributes['d'].true == 1",
        "has(device.attributes['d'].null)",
        "[1].all(in, true)",
        "'d' indevice.attributes",
        "rb'a' == b'a'",
        "size([1],) == 1",
        "device.attributes['d',] == {}",
        "!-dyn(1) || true",
        "true // a comment\n false",
        "1..size() == 1",
        "1_000 == 1000",
    ],
)
def test_expression_that_cel_go_refuses_does_not_compile(expression: str) -> None:
    with pytest.raises(CompileError):
        compile_expression(expression, Environment())
