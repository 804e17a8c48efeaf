"""Text to syntax tree, with the grammar of cel-python.

All that is used of cel-python is here: its grammar file, some rules of which are replaced. Its string terminals can
take exponential time, it does not know optional syntax, and its own parser is a singleton that also changes the
process. The tree is built while parsing, bottom-up, so that nesting costs no recursion.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.abc import FileLoader
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeAlias, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from allocator.cel import literals
from allocator.cel.ast import Call, Ident, Index, ListNode, Literal, MapNode, Node, Select, Struct, extent
from allocator.cel.errors import CompileError
from allocator.cel.macros import MacroError, Macros

MAX_BYTES: Final = 10 * 1024
"""How long an expression may be, in UTF-8 (`resource.k8s.io` has the same limit)."""

MAX_DEPTH: Final = 250
"""How deep an expression may nest (cel-go has the same limit)."""

MAX_NODES: Final = 20_000
"""How many nodes its tree may have: ``optMap`` and ``optFlatMap`` double what they are called on, also upstream."""

_RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}

_RULES: Final = r'''
member_dot     : member "." IDENT | member "." ESCAPED_IDENT
member_opt_dot : member "." "?" IDENT | member "." "?" ESCAPED_IDENT
member_opt_index : member "[" "?" expr "]"
member         : member_dot | member_opt_dot | member_dot_arg | member_index | member_opt_index | member_object
               | primary
list_lit       : "[" [listinits [","]] "]"
listinits      : listinit ("," listinit)*
listinit       : ["?"] expr
map_lit        : "{" [mapinits [","]] "}"
mapinits       : mapinit ("," mapinit)*
mapinit        : ["?"] expr ":" expr
fieldinits     : fieldinit ("," fieldinit)* [","]
fieldinit      : ["?"] IDENT ":" expr
literal        : UINT_LIT | FLOAT_LIT | INT_LIT | MLSTRING_LIT | STRING_LIT | MLBYTES_LIT | BYTES_LIT
INT_LIT.1      : /-?(?:0x[0-9a-fA-F]+|[0-9]+)/
UINT_LIT.3     : /(?:0x[0-9a-fA-F]+|[0-9]+)[uU]/
FLOAT_LIT.2    : /-?(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)/
STRING_LIT.4   : /[rR]"[^"\r\n]*"|[rR]'[^'\r\n]*'|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'/
MLSTRING_LIT.5 : /[rR]"""(?:[^"]|"(?!""))*"""|[rR]\'\'\'(?:[^']|'(?!\'\'))*\'\'\'/ | _ML_QUOTED
BYTES_LIT.6    : /(?:[bB][rR]?|[rR][bB])(?=["'])/ _QUOTED
MLBYTES_LIT.7  : /(?:[bB][rR]?|[rR][bB])(?=["'])/ _ML_QUOTED
_QUOTED        : /(?:"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')/
_ML_QUOTED     : /(?:"""(?:[^"\\]|\\[\s\S]|"(?!""))*"""|\'\'\'(?:[^'\\]|\\[\s\S]|'(?!\'\'))*\'\'\')/
ESCAPED_IDENT  : /`[a-zA-Z0-9_.\-\/ ]+`/
'''.replace(r"\'", "'")
_REPLACED: Final = (
    "member", "member_dot", "list_lit", "map_lit", "mapinits", "fieldinits", "literal", "INT_LIT", "UINT_LIT",
    "FLOAT_LIT", "STRING_LIT", "MLSTRING_LIT", "BYTES_LIT", "BOOL_LIT", "NULL_LIT", "RESERVED.0", "DIGIT", "HEXDIGIT",
    "EXPONENT",
)  # fmt: skip


_LITERALS: Final[Mapping[str, Callable[[str], object]]] = {
    "INT_LIT": literals.integer,
    "UINT_LIT": literals.unsigned,
    "FLOAT_LIT": literals.double,
    "STRING_LIT": literals.string,
    "MLSTRING_LIT": literals.string,
    "BYTES_LIT": literals.byte_string,
    "MLBYTES_LIT": literals.byte_string,
}


def parse(expression: str, macros: Macros) -> Node:
    """The syntax tree of an expression, macros expanded.

    Raises:
        CompileError: not CEL, or beyond the limits on length and nesting.
    """
    try:
        length = len(expression.encode())
    except UnicodeEncodeError as error:
        raise CompileError(expression, error.start, "half of a surrogate pair is no character") from None
    if length > MAX_BYTES:
        raise CompileError(expression, 0, f"expression is longer than {MAX_BYTES} bytes")
    try:
        node = cast("Node", _parser(macros).parse(expression))  # the transformer has made nodes of the tree
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
def _parser(macros: Macros) -> Lark:
    """The parser; built once per set of macros, without state of its own."""
    grammar = _grammar()
    for name in _REPLACED:
        grammar = re.sub(rf"^{re.escape(name)}\s*:.*\n(?:[ \t]+\|.*\n)*", "", grammar, flags=re.MULTILINE)
    return Lark(
        grammar + _RULES, parser="lalr", lexer="contextual", start="expr", keep_all_tokens=True,
        maybe_placeholders=False, transformer=_Builder(macros),
    )  # fmt: skip


def _grammar() -> str:
    """cel-python's grammar file, read without running any of its code."""
    spec = find_spec("celpy")
    if spec is None or not isinstance(spec.loader, FileLoader) or not spec.submodule_search_locations:
        raise ImportError("cel-python is not installed")
    return spec.loader.get_data(f"{spec.submodule_search_locations[0]}/cel.lark").decode()


def _syntax_error(expression: str, error: UnexpectedToken | UnexpectedCharacters | UnexpectedEOF) -> CompileError:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        position = _at(error.token)
        return CompileError(expression, position, f"Syntax error: unexpected '{error.token}'")
    if isinstance(error, UnexpectedCharacters):
        start = cast("int", error.pos_in_stream)
        return CompileError(expression, start, f"Syntax error: unexpected {expression[start : start + 1]!r}")
    return CompileError(expression, len(expression), "Syntax error: unexpected end of the expression")


def _at(token: Token) -> int:
    return token.start_pos or 0


Part: TypeAlias = Any
"""What a rule makes: mostly a node; a pair or tuple for the rule above to use."""

Parts: TypeAlias = list[Part]
"""Children of a rule: what other rules made, and tokens."""


class _Sign(NamedTuple):
    """``!`` or ``-`` before what is not in parentheses: two of a kind cancel out."""

    operator: Token
    operand: Node


def _signed(part: Node | _Sign) -> Node:
    return Call(f"{part.operator}_", (part.operand,), _at(part.operator)) if isinstance(part, _Sign) else part


class _Builder(Transformer[Token, Node]):
    """A method per rule; children are nodes and, because all tokens are kept, tokens with their positions."""

    def __init__(self, macros: Macros) -> None:
        super().__init__()
        self._macros = macros

    def _pass(self, parts: Parts) -> Part:
        return parts[0]

    primary = member = _pass

    def paren_expr(self, parts: Parts) -> Part:
        return parts[1]

    def expr(self, parts: Parts) -> Part:
        if len(parts) == 1:
            return parts[0]
        condition, mark, yes, _, no = parts
        return Call("_?_:_", (condition, yes, no), _at(mark))

    def _logic(self, function: str, parts: Parts) -> Part:
        """Chains become one call with many arguments, so that they do not nest."""
        if len(parts) == 1:
            return parts[0]
        left, token, right = parts
        before = left.arguments if isinstance(left, Call) and left.function == function else (left,)
        return Call(function, (*before, right), _at(token))

    def conditionalor(self, parts: Parts) -> Part:
        return self._logic("_||_", parts)

    def conditionaland(self, parts: Parts) -> Part:
        return self._logic("_&&_", parts)

    def _operation(self, parts: Parts) -> Node:
        """``addition_add : addition "+"`` leaves a pair, which the next rule up completes."""
        right = _signed(parts[-1])
        if len(parts) == 1:
            return right
        left, operator = parts[0]
        name = "@in" if operator == "in" else f"_{operator}_"
        return Call(name, (left, right), _at(operator))

    relation = addition = multiplication = _operation

    def _half(self, parts: Parts) -> tuple[object, ...]:
        return tuple(parts)

    relation_lt = relation_le = relation_gt = relation_ge = relation_eq = relation_ne = relation_in = _half
    addition_add = addition_sub = multiplication_mul = multiplication_div = multiplication_mod = _half
    unary_not = unary_neg = _pass

    def unary(self, parts: Parts) -> Part:
        if len(parts) == 1:
            return parts[0]
        operator, operand = parts
        if isinstance(operand, _Sign) and operand.operator == operator:
            return operand.operand
        return _Sign(operator, _signed(operand))

    def member_dot(self, parts: Parts) -> Node:
        return Select(parts[0], str(parts[2]).strip("`"), _at(parts[1]))

    def member_opt_dot(self, parts: Parts) -> Node:
        return Select(parts[0], str(parts[3]).strip("`"), _at(parts[1]), optional=True)

    def member_index(self, parts: Parts) -> Node:
        return Index(parts[0], parts[2], _at(parts[1]))

    def member_opt_index(self, parts: Parts) -> Node:
        return Index(parts[0], parts[3], _at(parts[1]), optional=True)

    def member_dot_arg(self, parts: Parts) -> Node:
        arguments = parts[4] if len(parts) == 6 else ()
        return self._macros.expand(Call(str(parts[2]), arguments, _at(parts[2]), parts[0]))

    def member_object(self, parts: Parts) -> Node:
        return Struct(_dotted(parts[0]), _at(parts[1]))

    fieldinits = fieldinit = _pass

    def dot_ident_arg(self, parts: Parts) -> Node:
        return self.ident_arg(parts[1:])

    def dot_ident(self, parts: Parts) -> Node:
        return self.ident(parts[1:])

    def ident_arg(self, parts: Parts) -> Node:
        arguments = parts[2] if len(parts) == 4 else ()
        return self._macros.expand(Call(str(parts[0]), arguments, _at(parts[0])))

    def ident(self, parts: Parts) -> Node:
        token = parts[0]
        if token in _CONSTANTS:
            return Literal(_CONSTANTS[token], _at(token))
        if token in _RESERVED:
            raise MacroError(_at(token), f"reserved identifier: {token}")
        return Ident(str(token), _at(token))

    def list_lit(self, parts: Parts) -> Node:
        return ListNode(parts[1] if isinstance(parts[1], tuple) else (), _at(parts[0]))

    def map_lit(self, parts: Parts) -> Node:
        return MapNode(parts[1] if isinstance(parts[1], tuple) else (), _at(parts[0]))

    def _separated(self, parts: Parts) -> tuple[Node, ...]:
        return tuple(parts[::2])

    exprlist = listinits = mapinits = _separated

    def listinit(self, parts: Parts) -> tuple[Node, bool]:
        return (parts[-1], len(parts) == 2)

    def mapinit(self, parts: Parts) -> tuple[Node, Node, bool]:
        return (parts[-3], parts[-1], len(parts) == 4)

    def literal(self, parts: Parts) -> Node:
        token = parts[0]
        try:
            return Literal(_LITERALS[token.type](str(token)), _at(token))
        except ValueError as error:
            raise MacroError(_at(token), str(error)) from None


def _dotted(node: Node) -> str:
    names = []
    while isinstance(node, Select):
        names.append(node.field)
        node = node.operand
    return ".".join([node.name if isinstance(node, Ident) else "?", *reversed(names)])
