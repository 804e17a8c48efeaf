"""Literals: the value of a token."""

import math
import re
from typing import Final

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
