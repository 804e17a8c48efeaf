"""Text of others, made safe to show: in a terminal, in a line of a log, in a row of a table.

Anybody who may make an object chooses the text in it. An escape character moves the cursor of the reader's terminal,
a newline forges a row of a table, and a mark of direction turns the text around.

`Printable` is the type of text that may be shown. A type checker refuses a raw string where it is required: in Events,
in conditions of pods, in what controllers have said, and in the reasons of blocked pods.
"""

import json
from typing import Final, NewType

Printable = NewType("Printable", str)
"""Text without characters that `str.isprintable` refuses. `printable` and `shown` make it."""

NO_TEXT: Final = Printable("")

_encoder: Final = json.JSONEncoder(default=str, ensure_ascii=False)


def printable(text: str) -> Printable:
    r"""The text with an escape such as ``\x1b`` or ``\u202e`` for every character that `str.isprintable` refuses.

    These are control characters, marks of direction and of format, surrogates, separators other than the space, and
    unassigned characters. Backslashes stay as they are: the text is for people, and is not read back.
    """
    if text.isprintable():
        return Printable(text)
    return Printable("".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text))


def printable_lines(text: str) -> str:
    """`printable` for each line; lines after the first are indented, so that they do not look like lines of ours."""
    return "\n  ".join(map(printable, text.split("\n")))


def shown(value: object, width: int = 64) -> Printable:
    """A JSON value as printable text, cut to a width; only as much of it is read as is shown."""
    text = ""
    for piece in _encoder.iterencode(value):
        text += piece[: width + 1]
        if len(text) > width:
            break
    found = printable(text)
    return found if len(found) <= width else Printable(f"{found[:width]}...")
