"""Hostile selectors: every declared function and macro with growing, extreme and wrong arguments.

What there is, is read from the declarations: a function that is added is reached without a change here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from allocator.cel.environment import Environment
from allocator.cel.functions.declare import Overload
from allocator.cel.macros import MACROS
from allocator.cel.types import Type
from tests.hostile.specimens import DRIVER

SIZES: Final = (1, 30, 1000, 9000)
"""Of arguments: characters or elements, as far as an expression may be long (10 KiB)."""

TEXT: Final = f'device.attributes["{DRIVER}"].text'
NUMBER: Final = f'device.attributes["{DRIVER}"].number'

_TEXTS: Final = (
    *("x", "9", "1h", "(", ".", " ", "a-", "0.", "1e9", "::", "%s", "%", "/", "1,", "Ω", "(a+)+", "T", "-9", "[a"),
    *("\\\\", "\\u0000", "\\'", "\\U0001F680", "1Ei", "h", "1.0.", "a*", "a{999}", ".9", "00:", "#?&="),
)
"""What texts repeat: each is the worst input of some function, and an odd one of all others."""

_WRONG: Final = (
    *("null", "dyn(null)", "dyn(1)", "dyn(-1.5)", "dyn('x')", "dyn(b'x')", "dyn([])", "dyn([null])", "dyn({})"),
    *("dyn({'a': null})", "dyn(true)", "dyn(type(1))", "dyn(optional.none())", "dyn(duration('1s'))"),
    *(
        "dyn(timestamp(0))",
        "dyn(quantity('1'))",
        "dyn(semver('1.0.0'))",
        "dyn(ip('::1'))",
        "dyn(18446744073709551615u)",
    ),
    *("device", "device.attributes", f'device.attributes["{DRIVER}"].missing', "dyn(double('NaN'))"),
)
_EXTREME: Final[Mapping[str, tuple[str, ...]]] = {
    "bool": ("true", "false"),
    "int": ("0", "-1", "9223372036854775807", "-9223372036854775808", "1000", f"{NUMBER}"),
    "uint": ("0u", "18446744073709551615u"),
    "double": ("0.0", "-0.0", "1e308", "-1.7e308", "5e-324", "double('NaN')", "double('-Infinity')"),
    "google.protobuf.Timestamp": ("timestamp('0001-01-01T00:00:00Z')", "timestamp('9999-12-31T23:59:59.999999999Z')"),
    "google.protobuf.Duration": ("duration('315576000000s')", "duration('-315576000000s')", "duration('1ns')"),
    "kubernetes.Quantity": (
        *("quantity('9223372036854775807E')", "quantity('1n')", "quantity('-1e18')", "quantity('1e999999999')"),
    ),
    "kubernetes.Semver": ("semver('18446744073709551615.0.0')", "semver('v1', true)"),
    "kubernetes.URL": ("url('https://user:pw@[::1]:99999/p?q=%zz#f')",),
    "net.IP": ("ip('255.255.255.255')", "ip('::ffff:0:0')"),
    "net.CIDR": ("cidr('0.0.0.0/0')", "cidr('::/128')"),
    "kubernetes.NamedFormat": ("format.dns1123Subdomain()", "format.qualifiedName()", "format.datetime()"),
    "kubernetes.DRADevice": ("device",),
    "type": ("int", "type(device)"),
    "null_type": ("null",),
}
_MADE: Final[Mapping[str, str]] = {
    "google.protobuf.Timestamp": "timestamp({})",
    "google.protobuf.Duration": "duration({})",
    "double": "double({})",
    "int": "int({})",
    "uint": "uint({})",
    "bool": "bool({})",
    "kubernetes.Quantity": "quantity({})",
    "kubernetes.Semver": "semver({})",
    "kubernetes.URL": "url({})",
    "net.IP": "ip({})",
    "net.CIDR": "cidr({})",
    "bytes": "bytes({})",
}
"""Types that a text makes: they grow with it."""

_OPERATORS: Final = {"!_": "!({})", "-_": "-({})", "@in": "({}) in ({})"}
_MACRO_BODIES: Final[Mapping[str, str]] = {
    "sortBy": "x",
    "transformMapEntry": "{y: x}",
    "optMap": "x",
    "optFlatMap": "optional.of(x)",
}


@dataclass(frozen=True, slots=True)
class HostileSelector:
    """An expression for a selector.

    Attributes:
        of: the declaration that it is for, in words.
    """

    number: int
    of: str
    expression: str

    @property
    def label(self) -> str:
        """What ``--only`` takes."""
        return f"selector:{self.number}"


def declarations() -> tuple[str, ...]:
    """Every overload and macro, in words."""
    functions = Environment().declarations.functions
    overloads = (_told(name, each) for name, function in functions.items() for each in function.overloads)
    return (*overloads, *(_macro_told(*key) for key in MACROS))


def hostile_selectors() -> tuple[HostileSelector, ...]:
    """All of them, always in the same order; their size leaves nothing to chance, so they take no seed."""
    found: dict[str, str] = {}
    for of, expression in (*_of_functions(), *_of_macros(), *_of_shapes()):
        found.setdefault(expression, of)
    return tuple(HostileSelector(number, of, expression) for number, (expression, of) in enumerate(found.items()))


def _told(name: str, overload: Overload) -> str:
    return f"{name}({', '.join(map(str, overload.parameters))})"


def _macro_told(name: str, arguments: int, member: bool) -> str:
    return f"macro {'.' if member else ''}{name}/{arguments}"


# --- functions ----------------------------------------------------------------------------------------------


def _of_functions() -> Iterator[tuple[str, str]]:
    for name, function in Environment().declarations.functions.items():
        for overload in function.overloads:
            for arguments in _arguments(overload):
                yield _told(name, overload), _as_bool(_called(name, overload, arguments))


def _arguments(overload: Overload) -> Iterator[list[str]]:
    """Each argument growing, extreme and wrong while the others are valid."""
    parameters = overload.parameters
    plain = [next(iter(_extreme(each))) for each in parameters]
    yield plain
    for index, parameter in enumerate(parameters):
        for value in (*_extreme(parameter), *_growing(parameter), *_WRONG):
            yield [*plain[:index], value, *plain[index + 1 :]]
    for values in islice(zip(*(_growing(each) for each in parameters), strict=False), 8):
        yield list(values)


def _extreme(kind: Type) -> Iterator[str]:
    """Values of a type that are short."""
    match kind.name:
        case "string":
            yield from ("'abc'", TEXT, "''", r"'\u0000\u001b[31m'", "'(a|b)*'")
        case "bytes":
            yield from ("b'abc'", r"b'\xff\x00'")
        case "list":
            inner = next(_extreme(kind.parameters[0]))
            yield from (f"[{inner}]", "[]", f"[{inner}, {inner}, dyn(null)]")
        case "map":
            key, value = (next(_extreme(each)) for each in kind.parameters)
            yield from (f"{{{key}: {value}}}", "{}")
        case "optional_type":
            yield from (f"optional.of({next(_extreme(kind.parameters[0]))})", "optional.none()")
        case _:
            yield from _EXTREME.get(kind.name, ("1", "'abc'", TEXT, "[1, 'a', null]"))


def _growing(kind: Type) -> Iterator[str]:
    """Values of a type, larger and larger."""
    match kind.name:
        case "string":
            yield from (f"'{text * (size // len(text) or 1)}'" for text in _TEXTS for size in SIZES)
            yield from (_grown(text) for text in ("9", "1h", "a", "(", "a-"))
        case "bytes":
            yield from (f"bytes('{'x' * size}')" for size in SIZES)
        case "list":
            inner = next(_extreme(kind.parameters[0]))
            for size in SIZES:
                yield f"[{', '.join([inner] * max(1, min(size, 8000 // (len(inner) + 2))))}]"
            yield from (f"lists.range({size}).map(i, {inner})" for size in (1000, 100_000))
            yield "[[" * 100 + "]]" * 100
        case "map":
            for size in SIZES:
                yield "{" + ", ".join(f"'key-{index}': {index}" for index in range(min(size, 500))) + "}"
        case "int":
            yield from ("10", "1000", "100000", "10000000", "1000000000000")
        case "optional_type":
            yield from (f"optional.of({each})" for each in islice(_growing(kind.parameters[0]), 4))
        case _:
            yield from ()
    yield from _growing_made(_MADE.get(kind.name, ""))


def _growing_made(template: str) -> Iterator[str]:
    for text in ("9", "1h", "1.", "0", "1e9", "a-", ":", ".") if template else ():
        yield from (template.format(f"'{text * (size // len(text) or 1)}'") for size in SIZES[1:])


def _grown(text: str) -> str:
    """A text of some 100,000 characters, that an expression makes."""
    return f"lists.range(1000).map(i, '{(text * 100)[:100]}').join()"


def _called(name: str, overload: Overload, arguments: list[str]) -> str:
    if name in _OPERATORS:
        return _OPERATORS[name].format(*arguments)
    if name.startswith("_") and name.endswith("_"):
        return f"({arguments[0]}) {name.strip('_')} ({arguments[1]})"
    if name == "@not_strictly_false":
        return f"[{arguments[0]}].all(x, x)"
    if name == "@sortByAssociatedKeys":
        return f"({arguments[0]}).sortBy(x, ({arguments[1]})[0])"
    if overload.member:
        return f"({arguments[0]}).{name}({', '.join(arguments[1:])})"
    return f"{name}({', '.join(arguments)})"


def _as_bool(expression: str) -> str:
    """A selector that has to work a value out, whatever its type is; the device keeps it from being folded."""
    return f"[dyn({expression}), dyn({TEXT})].size() == 2"


# --- macros -------------------------------------------------------------------------------------------------


def _of_macros() -> Iterator[tuple[str, str]]:
    for key in MACROS:
        for expression in _macro(*key):
            yield _macro_told(*key), expression


def _macro(name: str, arguments: int, member: bool) -> Iterator[str]:
    if not member:
        yield from _free_macro(name)
        return
    names = ["x", "y"][: 1 if (name, arguments) in _ONE_VARIABLE else 2]
    predicates = ["true"] * (arguments - len(names) - 1)
    body = _MACRO_BODIES.get(name, "true")
    targets = ("[]", "[1, 'a', null]", "{}", "{'a': null}", "lists.range(100000)", f"{TEXT}", "optional.of(1)", *_WRONG)
    for target in targets:
        for last in (body, "null", "dyn(x)", "device", "[x, x, x, x]", "x == null"):
            yield _as_bool(f"({target}).{name}({', '.join([*names, *predicates, last])})")
    for depth in (2, 5, 20, 60):
        inner = body
        for level in range(depth):
            variables = [f"{each}{level}" for each in names]
            inner = f"lists.range(50).{name}({', '.join([*variables, *predicates, inner])})"
        yield _as_bool(inner.replace("{y: x}", "{1: 1}").replace("of(x)", "of(1)").replace(", x)", ", 1)"))
    yield _as_bool(f"[1].{name}({', '.join(['1 + 1', *names[1:], *predicates, body])})")


_ONE_VARIABLE: Final = {
    *(
        (name, 2)
        for name in ("all", "exists", "exists_one", "existsOne", "map", "filter", "sortBy", "optMap", "optFlatMap")
    ),
    ("map", 3),
}


def _free_macro(name: str) -> Iterator[str]:
    if name == "has":
        yield from (
            f"has({each})" for each in ("device.x", "device.attributes.x.y", "1", "has(device.x)", "dyn(null).x")
        )
        yield "has(device" + ".a" * 3000 + ")"
        return
    for size in (2, 10, 30):
        doubled = "'x'"
        for level in range(size):
            doubled = f"cel.bind(v{level}, {doubled}, v{level} + v{level})"
        yield _as_bool(doubled)
        lists = "[1]"
        for level in range(size):
            lists = f"cel.bind(v{level}, {lists}, [v{level}, v{level}])"
        yield _as_bool(lists)
        yield f"{lists} == {lists}" if len(lists) < 5000 else lists


# --- shapes -------------------------------------------------------------------------------------------------


_ODD_AS_A_WHOLE: Final = tuple(
    (what, odd)
    for what, group in {
        "odd text": (
            "",
            " ",
            "\x00",
            "\x1b[31mtrue",
            "'\\u{1}'",
            "'\\ud800' == ''",
            "\U0001f680",
            "\u202etrue",
            "true\n",
            "r'\\'",
        ),
        "odd result": (
            "device",
            "null",
            "null == null",
            "type(null)",
            "1",
            "[]",
            "dyn(null)",
            "device == device",
            "device.attributes",
        ),
        "odd name": (
            "x.y.z()",
            "@result",
            "__comprehension__",
            "device.@in",
            "cel.@mapInsert({}, 1, 2)",
            "google.protobuf.Any{}",
        ),
    }.items()
    for odd in group
)


def _of_shapes() -> Iterator[tuple[str, str]]:
    """Expressions that are odd as a whole."""
    for size in (10, 200, 300, 1000, 5000, 10_239, 10_300, 1_000_000):
        yield "parentheses", "(" * (size // 2) + "true" + ")" * (size // 2)
        yield "open parentheses", "(" * size
        yield "not", "!" * size + "true"
        yield "minus", "-" * size + "1 == 1"
        yield "list", "[" * (size // 2) + "]" * (size // 2) + " == []"
        yield "map", "{1:" * (size // 4) + "1" + "}" * (size // 4) + " == {}"
        yield "index", "[1]" + "[0]" * (size // 3) + " == 1"
        yield "select", "device" + ".a" * (size // 2) + " == 1"
        yield "sum", "1" + "+1" * (size // 2) + " == 1"
        yield "and", "true" + "&&true" * (size // 6)
        yield "ternary", "true?" * (size // 10) + "true" + ":true" * (size // 10)
        yield "method", "'a'" + ".trim()" * (size // 7) + " == 'a'"
        yield "digits", "9" * size + " == 1"
        yield "double", "0." + "9" * size + " == 1.0"
        yield "exponent", "1e" + "9" * size + " == 1.0"
        yield "name", "a" * size
        yield "text", "'" + "a" * size + "' == ''"
        yield "open text", "'" + "\\" * size
        yield "blanks", " " * size + "true"
        yield "comment", "//" + "x" * size + "\ntrue"
    yield from _ODD_AS_A_WHOLE
