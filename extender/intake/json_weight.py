"""About how much memory a JSON text takes when it is decoded: counted in the text, before anything is built."""

from typing import Final

_COPY: Final = 4
"""For each byte: the text itself, what the parser keeps of it meanwhile, and the strings that are made of it. One emoji
makes each character of its text take four bytes."""

_VALUE: Final = 40
"""For each comma: a number or a string beside its characters, and its place in a list or an object."""

_LIST: Final = 64
_OBJECT: Final = 160
"""An object with one field takes 232 bytes, an empty one 64."""


def json_weight(text: bytes) -> int:
    """Bytes that the text and its decoded value take, about: 0.5 to 5 times as many as they do.

    Brackets and commas in strings count, too. Pods and nodes of a cluster weigh 7 to 11 times as much as they are
    long, empty lists and objects up to 70 times.
    """
    return _COPY * len(text) + _VALUE * text.count(b",") + _LIST * text.count(b"[") + _OBJECT * text.count(b"{")
