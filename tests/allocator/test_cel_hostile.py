"""Hostile values: functions, operators and macros raise only errors of the expression, whatever their arguments are."""

import math
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import product
from typing import Any

import pytest

from allocator import Quantity, Version
from allocator.cel import CompileError, Environment, EvaluationError, InternalError, compile_expression
from allocator.cel.amounts import Computed
from allocator.cel.functions.declare import Overload
from allocator.cel.functions.formats import FORMATS
from allocator.cel.functions.network import LIBRARY as NETWORK
from allocator.cel.functions.urls import parse_url
from allocator.cel.keys import to_key
from allocator.cel.macros import MACROS
from allocator.cel.types import NULLABLE
from allocator.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Address,
    DefaultMap,
    Duration,
    OptionalValue,
    Timestamp,
    TypeValue,
    UInt,
)
from tests.allocator.celcalls import DEVICE, FUNCTIONS, Call, by_type, by_value, signatures


def nested(depth: int) -> Any:
    """A list within lists."""
    value: Any = (1,)
    for _ in range(depth):
        value = (value,)
    return value


CIDR = next(f for f in NETWORK if f.name == "cidr").overloads[0].implementation
VALUES: dict[str, tuple[Any, ...]] = {
    "null_type": (None,),
    "bool": (True, False),
    "int": (0, 1, -1, INT_MIN, INT_MAX),
    "uint": (UInt(0), UInt(UINT_MAX)),
    "double": (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324),
    "string": ("", "a", "9" * 10_000, "\ud800", "%s", "%.99999d", "UTC", "+99:99", "\0", "-" * 10_000, "(", "é"),
    "bytes": (b"", b"\xff", b"a" * 10_000),
    "list": ((), (None,), (1, 2), ("a", "b"), (math.nan,), (1, "a"), (NONE,), ((1,), (None,)), nested(9), nested(900)),
    "map": ({}, {"a": None}, {to_key(value=True): 1, 1: 2}, DefaultMap(), {"a": nested(100)}),
    "google.protobuf.Timestamp": (Timestamp(0), Timestamp(-62135596800 * 10**9), Timestamp(253402300799 * 10**9)),
    "google.protobuf.Duration": (Duration(0), Duration(INT_MIN), Duration(INT_MAX)),
    "type": (TypeValue("int"),),
    "optional_type": (NONE, OptionalValue(present=True, value=None), OptionalValue(present=True, value=1)),
    "kubernetes.Quantity": (
        Quantity.parse("0"), Quantity.parse("-1e300"), Quantity.parse(f"{'9' * 300}e300"),
        Computed(Quantity.parse("1"), 1, 0, long=False),
    ),
    "kubernetes.Semver": (Version.parse("1.2.3"), Version.parse(f"{2**64 - 1}.0.0-a+b")),
    "kubernetes.URL": (parse_url("https://[::1]:80/a?b=c"),),
    "net.IP": (Address(ip_address("::1")), Address(ip_address("255.255.255.255"))),
    "net.CIDR": (CIDR("::/0"), CIDR("1.2.3.4/32")),
    "kubernetes.NamedFormat": (FORMATS["dns1123Label"], FORMATS["uri"], FORMATS["byte"]),
}  # fmt: skip
"""Values by the name of their type."""

SAMPLE = [values[-1] for values in VALUES.values()] + [None, "\ud800", (), math.nan]
EVERYTHING = [value for values in VALUES.values() for value in values]


def problem(call: Call, name: str, values: tuple[Any, ...]) -> str | None:
    """The fault of a call; None if it ended with a value or an error of the expression."""
    shown = [f"{type(value).__name__} {value!r:.40}" for value in values]
    return f"{name} {shown}: {call.error}" if isinstance(call.error, InternalError) else None


def choices(kinds: int) -> Iterator[tuple[Any, ...]]:
    """All values for one or two arguments, a sample for more."""
    return product(EVERYTHING if kinds < 3 else SAMPLE[:12] if kinds == 3 else SAMPLE[:2], repeat=kinds)


SIGNATURES = list(signatures())


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_takes_dynamic_values_of_every_type(name: str) -> None:
    """A value is accepted, or it is an error of the expression."""
    function = FUNCTIONS[name]
    problems = []
    for count, member in sorted({(len(o.parameters), o.member) for o in function.overloads}):
        step = by_value(function, count, member=member)
        assert step is not None
        problems += [found for values in choices(count) if (found := problem(Call(step, values), name, values))]
    assert not problems, "\n".join(problems[:5])


@pytest.mark.parametrize(("name", "overload"), SIGNATURES, ids=[name for name, _ in SIGNATURES])
def test_overload_takes_every_value_of_its_types_and_null(name: str, overload: Overload) -> None:
    """If types are known, values are not checked at run time; some types allow null."""
    step = by_type(overload)
    pools = [
        EVERYTHING
        if kind.is_dynamic or kind.is_parameter
        else (*VALUES[kind.name], *([None] if kind.name in NULLABLE else []))
        for kind in overload.parameters
    ]
    if len(pools) > 2:
        pools = [pool[: 6 if len(pools) == 3 else 2] for pool in pools]
    problems = [found for values in product(*pools) if (found := problem(Call(step, values), name, values))]
    assert not problems, "\n".join(problems[:5])


OPERANDS = (
    "null", "1", "1u", "1.5", '""', "b''", "[]", "[null]", "{}", "{1: null}", "dyn(null)", "dyn([dyn(1), dyn(null)])",
    "optional.none()", "optional.of(null)", "device", "device.attributes", 'device.attributes["d"].none', "dyn(ip)",
)  # fmt: skip


@pytest.mark.parametrize(("name", "count", "member"), sorted(MACROS))
def test_macro_takes_operands_of_every_type(name: str, count: int, member: bool) -> None:
    """It does not compile, or it yields a value or an error of the expression."""
    variables = ("x", "y") if count > 2 and not name.startswith("cel.") else ("x",)
    for target, body, last in product(OPERANDS, ("null", "1", "x", "dyn(null)", "[x]"), ("true", "x")):
        arguments = [*variables, body, last, last][:count]
        text = f"({target}).{name}({', '.join(arguments)})" if member else f"{name}({', '.join(arguments)})"
        try:
            program = compile_expression(text, Environment())
        except CompileError as error:
            fault = str(error)
        else:
            fault = str(program.measure(DEVICE).error)
        assert "internal error in selector" not in fault.partition("\n")[0], text


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("null.major() == 1", "no such overload"),
        ('semver("1.0.0").isLessThan(null)', "no such overload"),
        ('quantity("1").add(null) == quantity("1")', "no such overload"),
        ("null.hasValue()", "no such overload"),
        ('(true ? null : semver("1.0.0")).major() == 1', "no such overload"),
        ('timestamp("2020-01-01T00:00:00Z").getHours("nowhere") == 1', "unknown time zone"),
        ('timestamp("2020-01-01T00:00:00Z").getMilliseconds("nowhere") == 1', "unknown time zone"),
        ("[1][?dyn(0.0/0.0)] == optional.none()", "unsupported index value"),
    ],
)
def test_null_and_invalid_zone_are_errors_of_the_expression(expression: str, message: str) -> None:
    program = compile_expression(expression, Environment())
    with pytest.raises(EvaluationError, match=message):
        program.evaluate(DEVICE)
    assert message in str(program.measure(DEVICE).error)


@pytest.mark.parametrize(
    "expression",
    [
        'timestamp("2020-01-01T00:00:00Z").getHours("+99:99") == 4',
        'timestamp("2020-01-01T00:00:00Z").getHours("") == 0',
        'timestamp("2020-01-01T00:00:00Z").getHours("-1:30") == 22',
        'timestamp("9999-12-31T00:00:00Z").getFullYear("+99:00") == 10000',
        'timestamp("0001-01-01T00:00:00Z").getFullYear("-99:00") == 0',
        'timestamp("0001-01-01T00:00:00Z").getMonth("-99:00") == 11',
        'double("1_000") == 1000.0',
        'double("0x1p4") == 16.0',
        'int("0000000000000000000000000000000000000005") == 5',
        'uint("0000000000000000000000000000000000000005") == 5u',
        'duration("0.3333333333333333333h") == duration("1200s")',
        'duration("-9223372036854775808ns") < duration("0")',
        'isQuantity(".")',
    ],
)
def test_number_or_time_at_its_limit_is_read_as_upstream(expression: str) -> None:
    program = compile_expression(expression, Environment())
    assert program.evaluate(DEVICE) is True
    assert program.measure(DEVICE).value is True


@pytest.mark.parametrize(
    "expression",
    [
        'double("1e999") == 1.0',
        'double("1__0") == 1.0',
        'double("1_") == 1.0',
        'double("_1") == 1.0',
        'double("e1") == 1.0',
        'double(".") == 1.0',
        'double("0x1") == 1.0',
        "1e999 == 1.0",
        "9" * 5_000 + " == 1",
        "9" * 5_000 + "u == 1u",
        f'int("{"9" * 9_900}") == 1',
        f'duration("{"9" * 9_900}s") == duration("1s")',
        "timestamp(null) == null",
    ],
)
def test_constant_that_upstream_refuses_does_not_compile(expression: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(expression, Environment())
    assert "internal error" not in str(caught.value)
