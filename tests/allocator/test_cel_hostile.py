"""Nothing that a selector is made of raises anything but an error of the expression, whatever it meets."""

import math
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import product
from typing import Any

import pytest

from allocator.cel import CompileError, Environment, EvaluationError, InternalError, compile_expression
from allocator.cel.functions.declare import Overload
from allocator.cel.functions.formats import FORMATS
from allocator.cel.functions.network import LIBRARY as NETWORK
from allocator.cel.functions.urls import parse_url
from allocator.cel.types import NULLABLE
from allocator.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Address,
    Computed,
    DefaultMap,
    Duration,
    OptionalValue,
    Timestamp,
    TypeValue,
    UInt,
    to_key,
)
from allocator.model import Device, DeviceId
from allocator.quantity import Quantity
from allocator.semver import Version
from tests.allocator.celcalls import FUNCTIONS, Call, by_type, by_value, signatures


def nested(depth: int) -> Any:
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
    "string": ("", "a", "9" * 10_000, "\ud800", "%s", "%.999999999d", "UTC", "+99:99", "a\x00", "-" * 10_000, "(", "é"),
    "bytes": (b"", b"\xff", b"a" * 10_000),
    "list": ((), (None,), (1, 2), ("a", "b"), (math.nan,), (1, "a"), (NONE,), ((1,), (None,)), nested(400), nested(5_000)),
    "map": ({}, {"a": None}, {to_key(value=True): 1, 1: 2}, DefaultMap(), {"a": nested(400)}),
    "google.protobuf.Timestamp": (Timestamp(0), Timestamp(-62135596800 * 10**9), Timestamp(253402300799 * 10**9)),
    "google.protobuf.Duration": (Duration(0), Duration(INT_MIN), Duration(INT_MAX)),
    "type": (TypeValue("int"),),
    "optional_type": (NONE, OptionalValue(present=True, value=None), OptionalValue(present=True, value=1)),
    "kubernetes.Quantity": (
        Quantity.parse("0"), Quantity.parse("-1e300"), Quantity.parse(f"{'9' * 300}e300"),
        Computed(Quantity.parse("1"), 0),
    ),
    "kubernetes.Semver": (Version.parse("1.2.3"), Version.parse(f"{2**64 - 1}.0.0-a+b")),
    "kubernetes.URL": (parse_url("https://[::1]:80/a?b=c"),),
    "net.IP": (Address(ip_address("::1")), Address(ip_address("255.255.255.255"))),
    "net.CIDR": (CIDR("::/0"), CIDR("1.2.3.4/32")),
    "kubernetes.NamedFormat": (FORMATS["dns1123Label"], FORMATS["uri"], FORMATS["byte"]),
}  # fmt: skip
"""What there is to meet, by the name of its type."""

SAMPLE = [values[-1] for values in VALUES.values()] + [None, "\ud800", (), math.nan]
EVERYTHING = [value for values in VALUES.values() for value in values]


def problem(call: Call, name: str, values: tuple[Any, ...]) -> str | None:
    """None if a call ended as it may."""
    if isinstance(call.error, InternalError):
        return f"{name} {[str(type(value).__name__) + ' ' + repr(value)[:40] for value in values]}: {call.error}"[:600]
    return None


def choices(kinds: int) -> Iterator[tuple[Any, ...]]:
    """All values for one or two arguments, a sample for more."""
    return product(EVERYTHING if kinds < 3 else SAMPLE[:12] if kinds == 3 else SAMPLE[:2], repeat=kinds)


def ids(parameters: list[tuple[str, Overload]]) -> list[str]:
    return [name for name, _ in parameters]


SIGNATURES = list(signatures())


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_take_anything(name: str) -> None:
    """As ``dyn`` values: each is taken, or is an error of the expression."""
    function = FUNCTIONS[name]
    problems = []
    for count, member in sorted({(len(o.parameters), o.member) for o in function.overloads}):
        step = by_value(function, count, member=member)
        assert step is not None
        problems += [found for values in choices(count) if (found := problem(Call(step, values), name, values))]
    assert not problems, "\n".join(problems[:5])


@pytest.mark.parametrize(("name", "overload"), SIGNATURES, ids=ids(SIGNATURES))
def test_overloads_take_all_values_of_their_types_and_null(name: str, overload: Overload) -> None:
    """Where types are known, values are not looked at; null may stand for some of them."""
    step = by_type(overload)
    pools = [
        EVERYTHING
        if kind.is_dynamic or kind.is_parameter
        else (*VALUES[kind.name], *([None] if kind.name in NULLABLE else []))
        for kind in overload.parameters
    ]
    if len(pools) > 2:
        pools = [pool[:6] for pool in pools]
    problems = [found for values in product(*pools) if (found := problem(Call(step, values), name, values))]
    assert not problems, "\n".join(problems[:5])
