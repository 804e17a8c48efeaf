"""A table that is read page by page, as text or as JSON; its text is the same on a terminal and in a pipe."""

import base64
import binascii
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Final, NamedTuple, Self, TextIO, TypeAlias

import orjson

from allocator.tools import JSON, printable

_WIDEST: Final = 300
"""Characters that a column is padded to; a longer cell sticks out, or thousands of rows would be as long as it."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns by heading, and rows of as many cells."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


def print_table(table: TextTable, file: TextIO) -> None:
    """Write the table, before what follows on another stream."""
    file.write("".join(f"{line}\n" for line in plain_lines(table)))
    file.flush()


def plain_lines(table: TextTable) -> list[str]:
    """Columns padded with spaces, as kubectl does: easy to cut, sort and compare. A row is one line."""
    lines: list[list[str]] = [[heading.upper() for heading in table.columns]]
    lines += [[printable(cell) for cell in row] for row in table.rows]
    widths = [min(_WIDEST, max(len(line[column]) for line in lines)) for column in range(len(table.columns))]
    padded = ["   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return [*([table.title] if table.title else []), *(line.rstrip() for line in padded)]


def as_html(table: TextTable) -> str:
    """The table for a notebook. What stands in it is escaped."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    title = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


Key: TypeAlias = tuple[str, ...]
"""What a row is named by; rows come in the order of their keys."""

Item: TypeAlias = Mapping[str, JSON]


class Row(NamedTuple):
    """A row that is worked out when it is on the page."""

    key: Key
    item: Callable[[], Item]


@dataclass(frozen=True, slots=True)
class TableView:
    """Rows, and which of their fields are columns of the text, in order.

    Attributes:
        cells: by column, how the text shows a value that is not None, where JSON has another form.
        note: asked when the rows of a page are read: why rows are missing, empty if none are.
    """

    columns: tuple[str, ...]
    rows: Iterator[Row]
    cells: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    note: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class TablePage:
    """Some rows of a view.

    Attributes:
        token: for the rows that follow; empty if there are none.
        note: why rows are missing; empty if none are.
    """

    view: TableView
    items: tuple[Item, ...]
    token: str = ""
    note: str = ""

    def noting(self, note: str) -> "TablePage":
        """The page with one more note."""
        return replace(self, note="; ".join(filter(None, (self.note, note))))

    def as_json(self) -> Item:
        """``{"items": [...], "note": TEXT, "continue": TOKEN}``, the latter two only where there are any."""
        rest = {"note": self.note, "continue": self.token}
        return {"items": [dict(item) for item in self.items], **{name: text for name, text in rest.items() if text}}

    def as_table(self) -> TextTable:
        """The columns of the view, with a text for each cell."""
        columns = self.view.columns
        rows = [[self._shown(column, item.get(column)) for column in columns] for item in self.items]
        return TextTable([_heading(column) for column in columns], rows)

    def as_text(self) -> str:
        """An aligned table, and lines that begin with ``#``: the note, and how to go on where there is more."""
        lines = plain_lines(self.as_table())
        note = [f"# {printable(self.note)}"] if self.note else []
        more = [f"# there is more: continue={self.token}"] if self.token else []
        return "".join(f"{line}\n" for line in [*lines, *note, *more])

    def as_csv(self) -> str:
        """A line of headings and a line for each row, with numbers as JSON has them, for a spreadsheet (RFC 4180)."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.view.columns)
        writer.writerows([_field(item.get(column)) for column in self.view.columns] for item in self.items)
        return text.getvalue()

    def _shown(self, column: str, value: JSON) -> str:
        return _cell(value if value is None else self.view.cells.get(column, _cell)(value))


class Rows(list[Item]):
    """Rows as a list of dicts, as ``pandas.DataFrame`` takes them. They print themselves as a table.

    Attributes:
        table: what the text and a notebook show.
    """

    def __init__(self, items: Iterable[Item], table: TextTable) -> None:
        super().__init__(items)
        self.table = table

    @classmethod
    def of(cls, view: TableView) -> Self:
        """All rows of a view."""
        found = TablePage(view, tuple(dict(row.item()) for row in view.rows))
        return cls(found.items, found.as_table())

    def __str__(self) -> str:
        """An aligned table."""
        return "\n".join(plain_lines(self.table))

    def __repr__(self) -> str:
        """One line."""
        return f"<{len(self)} row{'' if len(self) == 1 else 's'}: {', '.join(self.table.columns)}>"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return as_html(self.table)


class QueryError(ValueError):
    """A parameter that names nothing."""


class TokenError(QueryError):
    """A token that no page has given."""

    def __init__(self, token: str) -> None:
        super().__init__(f'continue: "{token}" is not a token of a page before this')


def _no_pause() -> None:
    pass


def page(view: TableView, *, limit: int, token: str = "", pause: Callable[[], None] = _no_pause) -> TablePage:
    """The rows after those of the page that gave the token, or the first ones; ``pause`` is called before each row.

    Raises:
        TokenError: the token is none.
    """
    after = _key_of(token) if token else None
    items: list[Item] = []
    last: Key = ()
    for row in view.rows:
        pause()
        if after is not None and row.key <= after:
            continue
        if len(items) == limit:
            return TablePage(view, tuple(items), _token_of(last), view.note())
        items.append(row.item())
        last = row.key
    return TablePage(view, tuple(items), note=view.note())


def matches(wanted: str, *values: str) -> bool:
    """Whether one of the values is the one wanted; nothing wanted is matched by all."""
    return not wanted or wanted in values


def counted(numbers: Mapping[str, object]) -> str:
    """``3x this, 1x that``."""
    return ", ".join(f"{number}x {name}" for name, number in numbers.items())


def duration(seconds: int) -> str:
    """A duration as kubectl shows an age: ``95s``, ``5m12s``, ``3h5m``, ``30h``, ``6d3h``, ``40d``."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return f"{seconds}s"
    if hours < 3:
        return f"{minutes}m{seconds % 60}s" if minutes < 10 and seconds % 60 else f"{minutes}m"
    if days < 2:
        return f"{hours}h{minutes % 60}m" if hours < 8 and minutes % 60 else f"{hours}h"
    return f"{days}d{hours % 24}h" if days < 8 and hours % 24 else f"{days}d"


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


_FORMULA: Final = ("=", "+", "-", "@")


def _field(value: JSON) -> str | int | float:
    """A field of CSV. A text that a spreadsheet would run as a formula gets an apostrophe before it."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = printable(_cell(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def _cell(value: JSON) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return counted(value) or "-"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)
