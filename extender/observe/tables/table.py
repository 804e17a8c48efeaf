"""A table that is read page by page, as text or as JSON."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import orjson

from allocator import JSON
from extender.observe.tables.terminal import Table, plain_lines

Key: TypeAlias = tuple[str, ...]
"""What a row is named by; rows come in the order of their keys."""

Item: TypeAlias = Mapping[str, JSON]


class Row(NamedTuple):
    """A row that is worked out when it is on the page."""

    key: Key
    item: Callable[[], Item]


@dataclass(frozen=True, slots=True)
class View:
    """Rows, and which of their fields are columns of the text, in order."""

    columns: tuple[str, ...]
    rows: Iterator[Row]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, and a token for those that follow; empty if there are none."""

    columns: tuple[str, ...]
    items: tuple[Item, ...]
    token: str = ""

    def as_json(self) -> Item:
        """``{"items": [...], "continue": TOKEN}``, the latter only where there is more."""
        return {"items": [dict(item) for item in self.items], **({"continue": self.token} if self.token else {})}

    def as_text(self) -> str:
        """An aligned table; the last line says how to go on, where there is more."""
        rows = [[_cell(item.get(column)) for column in self.columns] for item in self.items]
        lines = plain_lines(Table([_heading(column) for column in self.columns], rows))
        more = [f"# there is more: continue={self.token}"] if self.token else []
        return "".join(f"{line}\n" for line in [*lines, *more])


class TokenError(ValueError):
    """A token that no page has given."""

    def __init__(self, token: str) -> None:
        super().__init__(f'continue: "{token}" is not a token of a page before this')


def page(view: View, *, limit: int, token: str = "") -> Page:
    """The rows after those of the page that gave the token, or the first ones.

    Raises:
        TokenError: the token is none.
    """
    after = _key_of(token) if token else None
    items: list[Item] = []
    last: Key = ()
    for row in view.rows:
        if after is not None and row.key <= after:
            continue
        if len(items) == limit:
            return Page(view.columns, tuple(items), _token_of(last))
        items.append(row.item())
        last = row.key
    return Page(view.columns, tuple(items))


def matches(wanted: str, *values: str) -> bool:
    """Whether one of the values is the one wanted; nothing wanted is matched by all."""
    return not wanted or wanted in values


def _token_of(key: Key) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([*key])).decode().rstrip("=")


def _key_of(token: str) -> Key:
    try:
        key = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, binascii.Error) as error:
        raise TokenError(token) from error
    if not isinstance(key, list) or not all(isinstance(part, str) for part in key):
        raise TokenError(token)
    return tuple(key)


def _heading(field: str) -> str:
    """``reservedFor`` as ``reserved for``."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in field)


def _cell(value: JSON) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{number}x {name}" for name, number in value.items()) or "-"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)
