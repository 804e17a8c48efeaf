"""Text to syntax tree: the grammar of ``grammar.lark``, what each of its rules builds, and the values of literals.

lark builds the tree bottom-up while it parses, so that nesting needs no recursion. Macros are expanded on the way.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from allocator.cel.ast import Call, Ident, Index, ListNode, Literal, MapNode, Node, Select, Struct, dotted, extent
from allocator.cel.errors import CompileError
from allocator.cel.macros import MacroError, expand
from allocator.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt

_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_MOST_DIGITS: Final = 20
_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip


def integer(token: str) -> int:
    """``42``, ``-42``, ``0x2a``.

    Raises:
        ValueError: beyond 64 bits.
    """
    value = _whole(_joined(token))
    if value is None or not INT_MIN <= value <= INT_MAX:
        raise ValueError(f"invalid int literal: {token[:64]} does not fit 64 bits")
    return value


def unsigned(token: str) -> UInt:
    """``42u``, ``0x2aU``.

    Raises:
        ValueError: beyond 64 bits.
    """
    value = _whole(token[:-1])
    if value is None or value > UINT_MAX:
        raise ValueError(f"invalid uint literal: {token[:64]} does not fit 64 bits")
    return UInt(value)


def _joined(token: str) -> str:
    """A number without the space that may follow its sign."""
    return f"-{token[1:].lstrip()}" if token[0] == "-" else token


def _whole(digits: str) -> int | None:
    """The number; None if it has more digits than 64 bits can hold, because Python is slow to read these."""
    sign, base = ("-" if digits[0] == "-" else ""), (16 if "x" in digits else 10)
    shortest = digits.removeprefix("-").removeprefix("0x" if base == 16 else "").lstrip("0") or "0"
    return int(sign + shortest, base) if len(shortest) <= _MOST_DIGITS else None


def double(token: str) -> float:
    """``1.5``, ``1e3``.

    Raises:
        ValueError: larger than any double.
    """
    value = float(_joined(token))
    if math.isinf(value):
        raise ValueError(f"invalid double literal: {token[:64]} is too large")
    return value


def string(token: str) -> str:
    """A quoted string, raw or not, single or triple quotes.

    Raises:
        ValueError: an escape that does not exist.
    """
    body, raw = _body(token)
    return body if raw else _ESCAPE.sub(_character, body)


def byte_string(token: str) -> bytes:
    r"""``b"..."``; escapes ``\xHH`` and ``\OOO`` are bytes, all else is UTF-8.

    Raises:
        ValueError: an escape that does not exist or is not allowed in bytes.
    """
    body, raw = _body(token[1:])
    if raw:
        return body.encode()
    parts, end = [], 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[end : match.start()].encode())
        parts.append(_byte(match))
        end = match.end()
    parts.append(body[end:].encode())
    return b"".join(parts)


def _body(token: str) -> tuple[str, bool]:
    raw = token[0] in "rR"
    quoted = token[1:] if raw else token
    width = 3 if quoted[:3] in ('"""', "'''") and len(quoted) >= 6 else 1
    return quoted[width:-width].replace("\r\n", "\n"), raw


def _byte(match: "re.Match[str]") -> bytes:
    small_x, large_x, short, long, octal, _ = match.groups()
    if short or long:
        raise ValueError(f"unicode escape {match.group()} in a bytes literal")
    if small_x or large_x:
        return bytes([int(small_x or large_x, 16)])
    return bytes([int(octal, 8)]) if octal else _character(match).encode()


def _character(match: "re.Match[str]") -> str:
    small_x, large_x, short, long, octal, simple = match.groups()
    if simple is not None:
        if simple not in _SIMPLE:
            raise ValueError(f"invalid escape sequence {match.group()}")
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(small_x or large_x or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"invalid unicode code point {match.group()}")
    return chr(code)


MAX_BYTES: Final = 10 * 1024
"""Limit on the bytes of an expression in UTF-8 (`resource.k8s.io` has the same limit)."""

MAX_DEPTH: Final = 250
"""Limit on the depth of an expression (cel-go has the same limit)."""

MAX_NODES: Final = 20_000
"""Limit on the nodes of the tree: ``optMap`` and ``optFlatMap`` double their target, also upstream."""

_RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
_LITERALS: Final[Mapping[str, Callable[[str], object]]] = {
    "CONSTANT": {"true": True, "false": False, "null": None}.__getitem__,
    "INT": integer,
    "UINT": unsigned,
    "DOUBLE": double,
    "STRING": string,
    "BYTES": byte_string,
}


def parse(expression: str) -> Node:
    """The syntax tree of an expression, macros expanded.

    Raises:
        CompileError: not CEL, or beyond the limits on length and nesting.
    """
    try:
        length = len(expression.encode())
    except UnicodeEncodeError as error:
        raise CompileError(expression, error.start, "invalid Unicode: half of a surrogate pair") from None
    if length > MAX_BYTES:
        raise CompileError(expression, 0, f"expression is longer than {MAX_BYTES} bytes")
    try:
        node = cast("Node", _parser().parse(expression))  # the transformer has made nodes of the tree
    except (UnexpectedToken, UnexpectedCharacters, UnexpectedEOF) as error:
        raise _syntax_error(expression, error) from None
    except MacroError as error:
        raise CompileError(expression, error.position, str(error)) from None
    depth, count = extent(node)
    if depth > MAX_DEPTH:
        raise CompileError(expression, 0, f"expression nests deeper than {MAX_DEPTH}")
    if count > MAX_NODES:
        raise CompileError(expression, 0, f"expression has more than {MAX_NODES} parts once its macros are expanded")
    return node


@cache
def _parser() -> Lark:
    """The parser; built once, without state of its own."""
    return Lark.open_from_package(
        "allocator.cel", "grammar.lark", parser="lalr", lexer="contextual", start="expr",
        maybe_placeholders=False, transformer=_Builder(),
    )  # fmt: skip


def _syntax_error(expression: str, error: UnexpectedToken | UnexpectedCharacters | UnexpectedEOF) -> CompileError:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return CompileError(expression, _start_of(error.token), f"Syntax error: unexpected '{error.token}'")
    if isinstance(error, UnexpectedCharacters):
        start = cast("int", error.pos_in_stream)
        return CompileError(expression, start, f"Syntax error: unexpected {expression[start : start + 1]!r}")
    return CompileError(expression, len(expression), "Syntax error: unexpected end of the expression")


def _start_of(token: Token) -> int:
    return token.start_pos or 0


Parts: TypeAlias = list[Any]
"""Children of a rule: what other rules have built, and tokens."""


class _Builder(Transformer[Token, Node]):
    """A method for each rule or alias of the grammar."""

    def choice(self, parts: Parts) -> Node:
        condition, mark, yes, no = parts
        return Call("_?_:_", (condition, yes, no), _start_of(mark))

    def logic(self, parts: Parts) -> Node:
        """Chains become one call with many arguments, so that they do not nest."""
        left, token, right = parts
        function = f"_{token}_"
        before = left.arguments if isinstance(left, Call) and left.function == function else (left,)
        return Call(function, (*before, right), _start_of(token))

    def operation(self, parts: Parts) -> Node:
        left, operator, right = parts
        return Call("@in" if operator == "in" else f"_{operator}_", (left, right), _start_of(operator))

    def signed(self, parts: Parts) -> Node:
        """Two signs of a kind cancel out, as in cel-go."""
        *signs, operand = parts
        sign = signs[0][0]
        odd = sum(token.count(sign) for token in signs) % 2
        return Call(f"{sign}_", (operand,), _start_of(signs[0])) if odd else operand

    def select(self, parts: Parts, *, optional: bool = False) -> Node:
        operand, dot, field = parts
        return Select(operand, field.strip("`"), _start_of(dot), optional=optional)

    def optional_select(self, parts: Parts) -> Node:
        return self.select(parts, optional=True)

    def index(self, parts: Parts, *, optional: bool = False) -> Node:
        operand, bracket, key = parts
        return Index(operand, key, _start_of(bracket), optional=optional)

    def optional_index(self, parts: Parts) -> Node:
        return self.index(parts, optional=True)

    def member_call(self, parts: Parts) -> Node:
        target, _, name, *arguments = parts
        return expand(Call(str(name), tuple(*arguments), _start_of(name), target))

    def message(self, parts: Parts) -> Node:
        return Struct(dotted(parts[0]) or "?", _start_of(parts[1]))

    def call(self, parts: Parts) -> Node:
        name, *arguments = parts
        return expand(Call(str(name), tuple(*arguments), _start_of(name)))

    def name(self, parts: Parts) -> Node:
        (token,) = parts
        if token in _RESERVED:
            raise MacroError(_start_of(token), f"reserved identifier: {token}")
        return Ident(str(token), _start_of(token))

    def list(self, parts: Parts) -> Node:
        bracket, *elements = parts
        return ListNode(tuple(elements), _start_of(bracket))

    def map(self, parts: Parts) -> Node:
        brace, *entries = parts
        return MapNode(tuple(entries), _start_of(brace))

    def literal(self, parts: Parts) -> Node:
        (token,) = parts
        try:
            return Literal(_LITERALS[token.type](str(token)), _start_of(token))
        except ValueError as error:
            raise MacroError(_start_of(token), str(error)) from None

    arguments = setter = tuple

    def element(self, parts: Parts) -> tuple[Node, bool]:
        return parts[-1], len(parts) == 2

    def entry(self, parts: Parts) -> tuple[Node, Node, bool]:
        return parts[-2], parts[-1], len(parts) == 3
