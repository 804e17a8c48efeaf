"""What changes in a list while a command watches it."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from extender.cli.messages import note, print_data, print_lines, stdout
from extender.kubectl.listings import ListOutput, PrintedList, Rows, key_of, print_rows, table_of
from extender.observe.tables.table import Item
from extender.observe.tables.terminal import print_table

_PASSING: Final = frozenset({"age", "decision"})
"""Fields that change without an event."""


class RowChange(NamedTuple):
    """A change of a row.

    Attributes:
        event: ``added``, ``changed`` or ``gone``.
        item: the row, as it is now or as it was last.
    """

    event: str
    item: Item


def changes(before: Mapping[Any, Item], after: Mapping[Any, Item]) -> tuple[RowChange, ...]:
    """The changes from one list to the next, by what rows are known by."""
    gone = [RowChange("gone", item) for key, item in before.items() if key not in after]
    others = []
    for key, item in after.items():
        if key not in before:
            others.append(RowChange("added", item))
        elif _lasting(item) != _lasting(before[key]):
            others.append(RowChange("changed", item))
    return (*gone, *others)


def _lasting(item: Item) -> Mapping[str, object]:
    return {name: value for name, value in item.items() if name not in _PASSING}


async def watch(
    read: Callable[[], Awaitable[Rows]],
    listing: PrintedList,
    output: ListOutput,
    pause: Callable[[], Awaitable[object]],
) -> None:
    """Print a list and then its changes, until cancelled or until there is no answer.

    In JSON and YAML each change is an object of its own: in JSON on one line.

    Args:
        read: the list as it is now.
        listing: what is listed.
        output: how it is printed.
        pause: waits until the next look.
    """
    rows = await read()
    print_rows(rows, listing, output)
    known, notes = rows.by_key(listing), rows.notes
    while True:
        await pause()
        rows = await read()
        latest = rows.by_key(listing)
        _print(changes(known, latest), listing, output)
        if rows.notes != notes:
            note(*rows.notes)
        known, notes = latest, rows.notes


def _print(found: Sequence[RowChange], listing: PrintedList, output: ListOutput) -> None:
    for change in found:
        if output is ListOutput.JSON:
            print_lines([json.dumps({"event": change.event, "row": dict(change.item)})])
        elif output is ListOutput.YAML:
            print_lines(["---"])
            print_data({"event": change.event, "row": dict(change.item)}, output)
        elif output is ListOutput.NAME:
            print_lines([f"{change.event} {'/'.join(key_of(change.item, listing))}"])
    tables = [change for change in found if output in {ListOutput.TABLE, ListOutput.WIDE}]
    if tables:
        items = [{"event": change.event, **change.item} for change in tables]
        print_table(table_of(items, ("event", *listing.shown(output))), stdout())
