"""Lists of the service on a terminal: the same words and rows as its tables, in columns that fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from extender.cli.messages import note, print_data, print_lines, stdout
from extender.kubectl.sources.source import AnswerSource, Query
from extender.observe.tables import devices, pods
from extender.observe.tables.table import Item, TablePage, TableView
from extender.observe.tables.terminal import TextTable, print_table

_MOST_ROWS: Final = "10000"
"""On one page; all pages are read."""

_CELLS: Final = {**devices.CELLS, **pods.CELLS}


class ListOutput(StrEnum):
    """How a list is printed; ``wide``: with all columns; ``name``: only the names, one a line."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class PrintedList:
    """A list that a command prints.

    Attributes:
        path: at the service.
        key: the fields by which a row is known.
        columns: of a table.
        more: further columns of a wide table.
    """

    path: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    more: tuple[str, ...] = ()

    def shown(self, output: ListOutput) -> tuple[str, ...]:
        """The columns that are printed."""
        return self.columns + (self.more if output is ListOutput.WIDE else ())


PENDING: Final = PrintedList(
    "/pods",
    ("namespace", "pod"),
    ("namespace", "pod", "age", "requests", "reason"),
    ("scheduler", "nominatedNode", "uid"),
)
DEVICES: Final = PrintedList(
    "/devices",
    ("driver", "pool", "device"),
    ("driver", "pool", "device", "node", "state", "claims", "why"),
    ("taints", "blockedBy", "attributes", "capacity"),
)
DEVICE_NUMBERS: Final = PrintedList("/devices", ("state",), ("state", "devices"))
CLAIMS: Final = PrintedList(
    "/claims", ("namespace", "claim"), ("namespace", "claim", "state", "devices", "reservedFor"), ("created", "uid")
)
QUOTAS: Final = PrintedList(
    "/quotas",
    ("namespace", "quota", "limit", "counts"),
    ("namespace", "quota", "limit", "counts", "used", "hard", "kept", "borrowed", "problem"),
    ("of", "cohort"),
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a list.

    Attributes:
        notes: why rows may be missing.
    """

    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()

    def by_key(self, listing: PrintedList) -> Mapping[tuple[str, ...], Item]:
        """Each row by what it is known by."""
        return {key_of(item, listing): item for item in self.items}


def key_of(item: Item, listing: PrintedList) -> tuple[str, ...]:
    """What a row is known by."""
    return tuple(str(item.get(name, "")) for name in listing.key)


async def read_rows(source: AnswerSource, listing: PrintedList, query: Query) -> Rows:
    """All rows. Raises RemoteError: there is no answer, or it is refused."""
    items: list[Item] = []
    notes: dict[str, None] = {}
    token = ""
    while True:
        more = {"continue": token} if token else {}
        page = await source.get(listing.path, {**query, **more, "limit": _MOST_ROWS})
        found: Any = page.get("items")
        items += [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        notes |= dict.fromkeys([str(page["note"])] if page.get("note") else [])
        token = str(page.get("continue") or "")
        if not token:
            return Rows(tuple(items), tuple(notes))


def print_rows(rows: Rows, listing: PrintedList, output: ListOutput) -> None:
    """Print a list; what is to be known beside it goes to standard error."""
    if output in {ListOutput.JSON, ListOutput.YAML}:
        print_data({"items": [dict(item) for item in rows.items]}, output)
    elif output is ListOutput.NAME:
        print_lines("/".join(key_of(item, listing)) for item in rows.items)
    elif rows.items:
        print_table(table_of(rows.items, listing.shown(output)), stdout())
    note(*rows.notes)


def table_of(items: Sequence[Item], columns: tuple[str, ...]) -> TextTable:
    """Rows as texts, in the words of the service's tables."""
    return TablePage(TableView(columns, iter(()), _CELLS), tuple(items)).as_table()
