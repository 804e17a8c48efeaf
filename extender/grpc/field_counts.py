"""Counts the fields of a protocol buffer before it is decoded: two bytes can become a hundred in memory."""

import re
from collections.abc import Mapping
from typing import Final

from extender.tools.protobuf import Declarations

MOST_FIELDS: Final = 250_000
"""Of one message, with the messages in it. 2,000 pods in 100 node groups are 200,000; they are decoded one by one."""

SHORT_BYTES: Final = 64 * 1024
"""A shorter message is not counted: decoded, it takes a few megabytes at most."""

_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
_FIXED: Final = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_MORE: Final = 0x80

_FIELD: Final = re.compile(r"\w+ ([\[{]?)(\w+)[\]}]?")

_Inner = Mapping[int, str]
"""By the number of a field, the name of the message in it."""


class FieldCounts:
    """Counts the fields of declared messages.

    Args:
        declarations: of the messages.
        most: how many fields a message may have, with those of the messages in it.
    """

    def __init__(self, declarations: Declarations, most: int = MOST_FIELDS) -> None:
        self._most = most
        self._inner: dict[str, _Inner] = {}
        for name, fields in declarations.items():
            self._inner[name] = {}
            for number, text in fields.items():
                found = _FIELD.fullmatch(text)
                bracket, kind = found.groups() if found else ("", "")
                if bracket == "{":  # an entry of a map is a message of a key and a value
                    entry = f"{name}.{number}"
                    self._inner[entry] = {2: kind} if kind in declarations else {}
                    self._inner[name] = {**self._inner[name], number: entry}
                elif kind in declarations:
                    self._inner[name] = {**self._inner[name], number: kind}

    def is_over(self, name: str, data: bytes) -> bool:
        """Whether a message has more fields than it may have.

        Counting ends there, and where the bytes are no message. Short messages are not counted.
        """
        if len(data) <= SHORT_BYTES:
            return False
        parts = [(0, len(data), name)]
        count = 0
        while parts:
            at, end, message = parts.pop()
            inner = self._inner[message]
            while at < end:
                count += 1
                if count > self._most:
                    return True
                tag, at = _varint(data, at, end)
                kind = tag & 7
                if kind == _DELIMITED:
                    size, at = _varint(data, at, end)
                    found = inner.get(tag >> 3)
                    if found is not None and size:
                        parts.append((at, min(at + size, end), found))
                    at += size
                elif kind == _VARINT:
                    _, at = _varint(data, at, end)
                elif kind in _FIXED:
                    at += _FIXED[kind]
                else:  # a group: none of our messages has one, and fields may follow it
                    return True
        return False


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends; at most ten bytes long."""
    value = shift = 0
    for each in range(at, min(at + 10, end)):
        byte = data[each]
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, each + 1
        shift += 7
    return value, end
