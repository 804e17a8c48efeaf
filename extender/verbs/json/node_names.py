"""Names of thousands of nodes, kept as JSON. A pod without devices gets its names back unread."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import orjson


class Names(Sequence[str]):
    """A JSON list of strings that is decoded when it is first read.

    Attributes:
        json: the list.
    """

    def __init__(self, json: bytes, count: int) -> None:
        self.json = json
        self._count = count

    @classmethod
    def of(cls, json: bytes) -> "Names | None":
        """The names in a text that is JSON; None if counting does not show that it is a list of strings.

        A flat list of n elements has at least n - 1 commas, and at most 2n quotes. If every comma separates elements,
        and there are two quotes per element, then every element is a string.
        """
        count = json.count(b",") + 1 if b'"' in json else 0
        is_flat = json[:1] == b"[" and json.find(b"[", 1) < 0 and b"{" not in json
        is_plain = json.isascii() and b"\\" not in json
        is_list = is_flat and is_plain and json.count(b'"') == 2 * count and (count > 0 or json == b"[]")
        return cls(json, count) if is_list else None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._decoded[index]

    @cached_property
    def _decoded(self) -> list[str]:
        names: list[str] = orjson.loads(self.json)
        return names
