"""Random calls of declared overloads: a function that is added is reached without a change here."""

from collections.abc import Callable
from random import Random
from typing import Final

from allocator.cel import Environment
from allocator.cel.functions.declare import Overload
from allocator.cel.types import Type

_HIDDEN: Final = "@"
"""Functions that only macros call have this sign in their name."""

_OPERATORS: Final = {"!_": "!({})", "-_": "-({})", "@in": "({}) in ({})"}

CALLS: Final = tuple(
    (name, overload)
    for name, function in sorted(Environment().declarations.functions.items())
    if _HIDDEN not in name or name in _OPERATORS
    for overload in function.overloads
)
"""Every overload that can be called, with its function."""

_KINDS: Final = {
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
    "kubernetes.Quantity": "quantity",
    "kubernetes.Semver": "semver",
    "kubernetes.URL": "url",
    "net.IP": "ip",
    "net.CIDR": "cidr",
    "kubernetes.NamedFormat": "format",
    "null_type": "dyn",
    "any": "dyn",
}
_SIMPLE: Final = (
    "int",
    "string",
    "bool",
    "uint",
    "double",
    "bytes",
    "dyn",
    "timestamp",
    "duration",
    "quantity",
    "semver",
)

Grow = Callable[[str], str]
"""Makes an expression of a kind."""


def call(random: Random, grow: Grow) -> tuple[str, str]:
    """A call of any overload, and an expression of the type of its result."""
    name, overload = random.choice(CALLS)
    bound: dict[str, str] = {}
    return _applied(random, name, overload, grow, bound), _argument(random, overload.result, grow, bound)


def _applied(random: Random, name: str, overload: Overload, grow: Grow, bound: dict[str, str]) -> str:
    arguments = [_argument(random, kind, grow, bound) for kind in overload.parameters]
    if name in _OPERATORS:
        return _OPERATORS[name].format(*arguments)
    if name.startswith("_"):
        return f"({arguments[0]}) {name.strip('_')} ({arguments[1]})"
    if overload.member:
        return f"({arguments[0]}).{name}({', '.join(arguments[1:])})"
    return f"{name}({', '.join(arguments)})"


def _argument(random: Random, kind: Type, grow: Grow, bound: dict[str, str]) -> str:
    """An expression of a type; now and then of unknown or of another type."""
    roll = random.random()
    if roll < 0.03:
        return grow(random.choice(_SIMPLE))
    if roll < 0.13:
        return f"dyn({_plain(random, kind, grow, bound)})"
    return _plain(random, kind, grow, bound)


def _plain(random: Random, kind: Type, grow: Grow, bound: dict[str, str]) -> str:
    match kind.name:
        case "list":
            return _list(random, kind.parameters[0], grow, bound)
        case "map":
            key, value = (
                grow(random.choice(("string", "int", "bool", "uint"))),
                _plain(random, kind.parameters[1], grow, bound),
            )
            return f"{{{key}: {value}}}" if random.random() < 0.9 else "{}"
        case "optional_type":
            return random.choice(("optional.of({})", "optional.ofNonZeroValue({})", "[{}][?0]", "[{}].last()")).format(
                _plain(random, kind.parameters[0], grow, bound)
            )
        case "type":
            return random.choice(("int", "list", "type({})".format(grow("dyn")), "net.IP", "optional_type"))
        case name if kind.is_parameter:
            return grow(bound.setdefault(name, random.choice(_SIMPLE)))
        case name:
            return grow(_KINDS.get(name, name))


def _list(random: Random, element: Type, grow: Grow, bound: dict[str, str]) -> str:
    named = {"int": "ints", "string": "strings"}.get(element.name)
    if named is not None and random.random() < 0.5:
        return grow(named)
    return f"[{', '.join(_plain(random, element, grow, bound) for _ in range(random.choice((0, 1, 2, 2, 3))))}]"
