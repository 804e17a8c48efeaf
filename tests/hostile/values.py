"""Hostile values: JSON texts, and texts that are not quite JSON, to be put where a valid value was.

All of them are bytes: many of them no decoder takes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

DEPTHS: Final = (300, 900, 1100, 4900)
"""Levels of nesting: below and above what orjson (1,024), msgspec (1,000) and Python's own stack take."""

HUGE: Final = 1_000_000
"""Bytes of a huge string."""

DIGITS: Final = 5000
"""Of a huge number: more than Python turns into an int (4,300)."""

ESCAPES: Final = rb"\u001b[31m\u001b]0;owned\u0007\u0000\r\n\u202e"
"""Control characters that a terminal or a log would act upon, as a JSON string holds them."""

_NO_JSON: Final = (
    *(b"NaN", b"Infinity", b"-Infinity", b"01", b"+1", b"1.", b"nul", b"'a'", b"undefined", b"", b"// comment"),
    *(b'"\x1b[2J\x00\n"', b'"\xff\xfe\xc0\x80"', b'"\xed\xa0\x80"', b"[[}", b"[" * 200, b"[1 2]", b'{"a"}', b'"open'),
)
"""No decoder takes these; the second line has raw control characters, no UTF-8, and a surrogate in UTF-8."""

Member = Callable[[bytes, bytes], bytes]
"""Key and value of a valid member, both JSON, to what stands in its place."""


@dataclass(frozen=True, slots=True)
class Value:
    """A hostile value by name.

    Attributes:
        make: from the JSON of the valid value.
        is_json: by its grammar, whatever a decoder takes; no API server writes anything else.
    """

    name: str
    make: Callable[[bytes], bytes]
    is_json: bool = True

    def member(self, key: bytes, value: bytes) -> bytes:
        """A member of an object with the hostile value in place of the valid one."""
        return key + b":" + self.make(value)


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A hostile member of an object: a key that is odd, there twice, or not there; see `Value`."""

    name: str
    member: Member
    is_json: bool = True


def hostile_values() -> tuple[Value, ...]:
    """Values for any place, list elements included; always in the same order."""
    fixed = (*_scalars(), *_texts(), *_containers())
    return (
        *(Value(name, partial(_constant, text)) for name, text in fixed),
        *(Value(f"no JSON: {text!r}", partial(_constant, text), is_json=False) for text in _NO_JSON),
        *_derived(),
    )


def _constant(text: bytes, _: bytes) -> bytes:
    return text


def hostile_members() -> tuple[MemberValue, ...]:
    """Members for any object."""
    return (
        MemberValue("absent", lambda _k, _v: b'"absent":null'),
        MemberValue("key there twice, null last", lambda key, value: key + b":" + value + b"," + key + b":null"),
        MemberValue("key there twice, wrong type first", lambda key, value: key + b":[]," + key + b":" + value),
        MemberValue("key is empty", lambda _, value: b'"":' + value),
        MemberValue("key is huge", lambda _, value: b'"' + b"k" * HUGE + b'":' + value),
        MemberValue("key has control characters", lambda _, value: b'"' + ESCAPES + b'":' + value),
        MemberValue("key is a lone surrogate", lambda _, value: b'"\\ud800":' + value),
        MemberValue("no JSON: key is no string", lambda _, value: b"1:" + value, is_json=False),
        MemberValue("key in another case", lambda key, value: key.swapcase() + b":" + value),
        MemberValue("10,000 keys more", partial(_beside, _keys(10_000))),
        *(
            MemberValue(f"unknown field {depth} deep beside", partial(_beside, b'"unknown":' + deep_object(depth)))
            for depth in DEPTHS
        ),
    )


def _beside(more: bytes, key: bytes, value: bytes) -> bytes:
    return key + b":" + value + b"," + more


def deep_list(depth: int) -> bytes:
    """Lists within lists."""
    return b"[" * depth + b"]" * depth


def deep_object(depth: int) -> bytes:
    """Objects within objects."""
    return b'{"a":' * depth + b"null" + b"}" * depth


def _scalars() -> Iterator[tuple[str, bytes]]:
    for text in ("null", "true", "false", "0", "-0", "-1", "1", "0.5", "-1e-400", "1e999", "-1e999", "1E400"):
        yield text, text.encode()
    for power in (31, 32, 53, 63, 64, 128):
        yield f"2**{power}", str(2**power).encode()
        yield f"-2**{power}-1", str(-(2**power) - 1).encode()
    yield f"{DIGITS} digits", b"9" * DIGITS
    yield f"{DIGITS} digits after the point", b"0." + b"3" * DIGITS


def _texts() -> Iterator[tuple[str, bytes]]:
    for text in ("", " ", "x", "0", "-1", "1e999", "NaN", "null", "True", "../..", "a/b/c", "/", "٣", "²", "i" * 254):
        yield f'"{text}"' if len(text) < 10 else f"text of {len(text)}", f'"{text}"'.encode()
    yield "text that is a time", b'"2026-01-01T00:00:00Z"'
    yield "time out of range", b'"9999-99-99T99:99:99.999999999999999999999Z"'
    yield "huge text", b'"' + b"x" * HUGE + b'"'
    yield "huge text of characters that need four bytes", b'"' + "🚀".encode() * (HUGE // 4) + b'"'
    yield "huge text of escapes", b'"' + rb"\u0001" * (HUGE // 6) + b'"'
    yield f"text of {DIGITS} digits", b'"' + b"9" * DIGITS + b'"'
    yield f"text of {HUGE} digits", b'"' + b"9" * HUGE + b'"'
    yield "quantity with a huge exponent", b'"1e999999999"'
    yield "quantity with a huge negative exponent", b'"1e-999999999"'
    yield f"quantity of {DIGITS} digits", b'"' + b"9" * DIGITS + b'Ei"'
    yield f"version of {DIGITS} digits", b'"1.2.' + b"9" * DIGITS + b'"'
    yield "version with a huge prerelease", b'"1.2.3-' + b"a." * 50_000 + b'a"'
    yield "lone surrogate", rb'"\ud800"'
    yield "lone low surrogate within", rb'"a\udfffb"'
    yield "control characters", b'"' + ESCAPES + b'"'
    yield "byte order mark", b'"\xef\xbb\xbfx"'


def _containers() -> Iterator[tuple[str, bytes]]:
    for text in ("[]", "{}", "[null]", "[[]]", "[{}]", '[""]', '{"":null}', '{"a":1,"a":2}', "[1,[2,[3]]]"):
        yield text, text.encode()
    for depth in DEPTHS:
        yield f"list {depth} deep", deep_list(depth)
        yield f"object {depth} deep", deep_object(depth)
    yield "100,000 empty objects", b"[" + b",".join([b"{}"] * 100_000) + b"]"
    yield "10,000 keys", b"{" + _keys(10_000) + b"}"


def _derived() -> tuple[Value, ...]:
    return (
        Value("in a list", lambda value: b"[" + value + b"]"),
        Value("in an object", lambda value: b'{"value":' + value + b"}"),
        Value("there twice", lambda value: _widened(value, 2)),
        Value("there 1,000 times", lambda value: _widened(value, 1000)),
        Value("as text", lambda value: b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'),
        Value("no JSON: cut short", lambda value: value[: len(value) // 2], is_json=False),
        Value("with control characters", _with_control_characters),
        Value("negative", lambda value: b"-" + value if value[:1].isdigit() else b"-1"),
    )


def _widened(value: bytes, times: int) -> bytes:
    """The elements of a list again and again; anything else as often in a list."""
    inner = value[1:-1] if value.startswith(b"[") else value
    return b"[" + b",".join([inner or b"null"] * times) + b"]"


def _with_control_characters(value: bytes) -> bytes:
    return value[:-1] + ESCAPES + b'"' if value.endswith(b'"') else b'"' + ESCAPES + b'"'


def _keys(number: int) -> bytes:
    return b",".join(b'"key-%d":"x"' % index for index in range(number))
