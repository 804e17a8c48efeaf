"""The lists of `kubectl dra`, and their changes: words and rows of the service's tables, in columns that fit.

The list of usage over time is a command of `dra-extender`, too.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

import typer

from extender.answers.observe.tables import devices as device_tables
from extender.answers.observe.tables import pods
from extender.answers.usage.usage import By
from extender.answers.usage.usage_table import CELLS, DAY, usage_columns, waits_columns
from extender.faces.commands.answer_source import AnswerSource, Place, PlaceOptions, Query, run
from extender.faces.commands.options import WideOutput, command
from extender.faces.commands.output import note, print_data, print_lines, print_result, show_table
from extender.tools.table import Item, TablePage, TableView, TextTable

_MOST_ROWS: Final = "10000"
"""On one page; all pages are read."""

_PASSING: Final = frozenset({"age", "decision"})
"""Fields that change without an event."""

_CELLS: Final = {**device_tables.CELLS, **pods.CELLS}


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

    def shown(self, output: WideOutput) -> tuple[str, ...]:
        """The columns that are printed."""
        return self.columns + (self.more if output is WideOutput.WIDE else ())


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
DEVICE_NUMBERS: Final = PrintedList("/devices", ("driver", "state"), ("driver", "state", "devices", "partitions"))
FREE: Final = PrintedList("/devices", ("driver",), ("driver", "free"))
CLAIMS: Final = PrintedList(
    "/claims", ("namespace", "claim"), ("namespace", "claim", "state", "devices", "reservedFor"), ("created", "uid")
)
PROBLEMS: Final = PrintedList(
    "/problems",
    ("cause", "kind", "object"),
    ("kind", "object", "age", "problem", "cost", "advice"),
    ("cause", "since"),
)
QUOTAS: Final = PrintedList(
    "/quotas",
    ("namespace", "quota", "limit", "counts"),
    ("namespace", "quota", "limit", "counts", "used", "hard", "kept", "borrowed", "problem"),
    ("of", "cohort"),
)
GANGS: Final = PrintedList(
    "/gangs",
    ("namespace", "gang", "kind"),
    ("namespace", "gang", "state", "size", "pods", "bound", "kept", "why"),
    ("kind", "priority", "waiting"),
)
PREEMPTIONS: Final = PrintedList(
    "/preemptions", ("namespace", "pod"), ("namespace", "pod", "priority", "node", "state", "victims"), ("devices",)
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


def print_rows(rows: Rows, listing: PrintedList, output: WideOutput) -> None:
    """Print a list; what is to be known beside it goes to standard error."""
    print_result(
        output,
        names=lambda: ("/".join(key_of(item, listing)) for item in rows.items),
        data=lambda: {"items": [dict(item) for item in rows.items]},
        table=lambda: table_of(rows.items, listing.shown(output)),
    )
    note(*rows.notes)


def table_of(items: Sequence[Item], columns: tuple[str, ...]) -> TextTable:
    """Rows as texts, in the words of the service's tables."""
    return TablePage(TableView(columns, iter(()), _CELLS), tuple(items)).as_table()


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
    output: WideOutput,
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


def _print(found: Sequence[RowChange], listing: PrintedList, output: WideOutput) -> None:
    for change in found:
        if output is WideOutput.JSON:
            print_lines([json.dumps({"event": change.event, "row": dict(change.item)})])
        elif output is WideOutput.YAML:
            print_lines(["---"])
            print_data({"event": change.event, "row": dict(change.item)}, output)
        elif output is WideOutput.NAME:
            print_lines([f"{change.event} {'/'.join(key_of(change.item, listing))}"])
    tables = [change for change in found if output in {WideOutput.TABLE, WideOutput.WIDE}]
    if tables:
        items = [{"event": change.event, **change.item} for change in tables]
        show_table(table_of(items, ("event", *listing.shown(output))))


OutputOption = Annotated[WideOutput, typer.Option("--output", "-o", help="How to print the list.")]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Print the list, then its changes until Ctrl-C.")]


@command("kubectl dra pending -A", "kubectl dra pending --watch")
def pending(*, output: OutputOption = WideOutput.TABLE, watched: WatchOption = False, place: PlaceOptions) -> None:
    """Pods that wait for devices: since when, what they ask for, and why they wait."""
    _list(place, PENDING, {"state": "pending", **_namespace(place)}, output, watched=watched)


@command("kubectl dra claims -n demo -o wide")
def claims(
    *,
    state: Annotated[str, typer.Option(metavar="STATE", help="Only claims in this state.")] = "",
    pod: Annotated[str, typer.Option(metavar="NAME", help="Only claims of pods of this name.")] = "",
    output: OutputOption = WideOutput.TABLE,
    watched: WatchOption = False,
    place: PlaceOptions,
) -> None:
    """Claims: their states, their devices, and who may use them."""
    _list(place, CLAIMS, {**_namespace(place), **_without_empty(state=state, pod=pod)}, output, watched=watched)


@command("kubectl dra quota -A")
def quota(*, output: OutputOption = WideOutput.TABLE, watched: WatchOption = False, place: PlaceOptions) -> None:
    """DeviceQuotas: what is used of each limit."""
    _list(place, QUOTAS, _namespace(place), output, watched=watched)


@command("kubectl dra gangs -A", "kubectl dra gangs --watch")
def gangs(
    *,
    state: Annotated[str, typer.Option(metavar="STATE", help='Only gangs in this state, for example "waits".')] = "",
    output: OutputOption = WideOutput.TABLE,
    watched: WatchOption = False,
    place: PlaceOptions,
) -> None:
    """Gangs: how many of their pods have a node, and what the others wait for."""
    _list(place, GANGS, {**_namespace(place), **_without_empty(state=state)}, output, watched=watched)


@command("kubectl dra preemptions -A")
def preemptions(*, output: OutputOption = WideOutput.TABLE, watched: WatchOption = False, place: PlaceOptions) -> None:
    """Pods for which others are evicted, and how far that has come."""
    _list(place, PREEMPTIONS, _namespace(place), output, watched=watched)


@command("kubectl dra problems -A", "kubectl dra problems --watch")
def problems(*, output: OutputOption = WideOutput.TABLE, watched: WatchOption = False, place: PlaceOptions) -> None:
    """What is wrong with objects of the namespace, and with those without one: since when, and what to do."""
    _list(place, PROBLEMS, _namespace(place), output, watched=watched)


@command("kubectl dra devices --class h100 --state free", "kubectl dra devices --count")
def devices(
    *,
    driver: Annotated[str, typer.Option(metavar="NAME", help="Only devices of this driver.")] = "",
    pool: Annotated[str, typer.Option(metavar="NAME", help="Only devices of pools of this name.")] = "",
    node: Annotated[str, typer.Option(metavar="NAME", help="Only devices for this node.")] = "",
    device_class: Annotated[
        str, typer.Option("--class", metavar="NAME", help="Only devices of this device class.")
    ] = "",
    state: Annotated[str, typer.Option(metavar="STATE", help="Only devices in this state, for example free.")] = "",
    count: Annotated[bool, typer.Option("--count", help="Print how many devices are in each state.")] = False,
    output: OutputOption = WideOutput.TABLE,
    watched: WatchOption = False,
    place: PlaceOptions,
) -> None:
    """Devices: their states, who holds them, and what is in the way."""
    query = _without_empty(**{"driver": driver, "pool": pool, "node": node, "class": device_class, "state": state})
    if count:
        _list(place, DEVICE_NUMBERS, {**query, "count": "true"}, output, watched=watched)
        return
    has_all = output in {WideOutput.WIDE, WideOutput.JSON, WideOutput.YAML}
    _list(place, DEVICES, {**query, **({"wide": "true"} if has_all else {})}, output, watched=watched)


@command("kubectl dra free", "kubectl dra free --class h100")
def free(
    *,
    node: Annotated[str, typer.Option(metavar="NAME", help="Only devices for this node.")] = "",
    device_class: Annotated[
        str, typer.Option("--class", metavar="NAME", help="Only devices of this device class.")
    ] = "",
    output: OutputOption = WideOutput.TABLE,
    place: PlaceOptions,
) -> None:
    """How many devices of each driver are free. Partitions exclude each other and the device that they are parts of."""
    query = _without_empty(**{"node": node, "class": device_class})

    async def show(source: AnswerSource) -> None:
        rows = await read_rows(source, DEVICE_NUMBERS, {**query, "count": "true"})
        print_rows(Rows(free_by_driver(rows.items), rows.notes), FREE, output)

    run(place, show)


def free_by_driver(numbers: Sequence[Item]) -> tuple[Item, ...]:
    """``{"driver", "free": "6 of 8, or up to 40 partitions"}`` of the numbers of devices by driver and state."""
    totals: dict[str, Counter[str]] = {}
    for each in numbers:
        own = totals.setdefault(str(each.get("driver")), Counter())
        for kind in ("devices", "partitions"):
            number: Any = each.get(kind) or 0
            own[kind] += number
            own[f"free {kind}"] += number if each.get("state") == "free" else 0
    return tuple({"driver": driver, "free": _free(own)} for driver, own in totals.items())


def _free(number: Counter[str]) -> str:
    if not number["devices"] and number["partitions"]:
        return f"{number['free partitions']} of {number['partitions']} partitions"
    parts = f", or up to {number['free partitions']} partitions" if number["free partitions"] else ""
    return f"{number['free devices']} of {number['devices']}{parts}"


def _without_empty(**parameters: str) -> Mapping[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _namespace(place: Place) -> Mapping[str, str]:
    return _without_empty(namespace=place.namespace)


def _list(place: Place, listing: PrintedList, query: Query, output: WideOutput, *, watched: bool) -> None:
    async def show(source: AnswerSource) -> None:
        if not watched:
            print_rows(await read_rows(source, listing, query), listing, output)
            return
        is_first = True

        async def read() -> Rows:
            nonlocal is_first
            if not is_first:
                await source.refresh()
            is_first = False
            return await read_rows(source, listing, query)

        await watch(read, listing, output, partial(asyncio.sleep, source.seconds))

    run(place, show)


@command(
    "kubectl dra usage --by model --window 6h",
    "kubectl dra usage -A --step 1h --csv",
    "dra-extender usage -A --server http://127.0.0.1:8888",
)
def usage(
    *,
    by: Annotated[By, typer.Option(help="What a row is about.")] = By.NAMESPACE,
    window: Annotated[str, typer.Option(metavar="TIME", help="The time up to now, from 1m to 24h.")] = DAY,
    step: Annotated[str, typer.Option(metavar="TIME", help="Print a row for each step of this length.")] = "",
    waits: Annotated[bool, typer.Option("--waits", help="How long pods waited, by namespace.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print a file for a spreadsheet.")] = False,
    output: OutputOption = WideOutput.TABLE,
    place: PlaceOptions,
) -> None:
    """Usage over time: devices that claims held, and device-hours, or how long pods waited."""
    columns = waits_columns(stepped=bool(step)) if waits else usage_columns(by, stepped=bool(step))
    keys = dict.fromkeys(each for each in ("time", by.value, "driver") if each in columns)
    listing = PrintedList("/usage", tuple(keys), columns)
    namespace = place.namespace if by is By.NAMESPACE else ""
    given = {"by": by.value, "window": window, "step": step, "namespace": namespace, "waits": "true" if waits else ""}

    async def ask(source: AnswerSource) -> Rows:
        return await read_rows(source, listing, {name: value for name, value in given.items() if value})

    found = run(place, ask)
    page = TablePage(TableView(columns, iter(()), CELLS), found.items)
    if csv:
        typer.echo(page.as_csv(), nl=False)
    else:
        print_result(
            output,
            names=lambda: ("/".join(key_of(item, listing)) for item in found.items),
            data=lambda: {"items": [dict(item) for item in found.items]},
            table=page.as_table,
        )
    note(*found.notes)
