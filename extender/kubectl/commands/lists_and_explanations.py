"""The commands of `kubectl dra` that print lists and explanations, and what changes in a list while one watches it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote

import typer

from extender.cli.answer import ExplanationJson, print_answer
from extender.cli.messages import fail, note, print_data, print_lines, stdout
from extender.cli.options import ExplainOutput, ExplainOutputOption, examples
from extender.cli.remote import RemoteError
from extender.kubectl.listings import (
    CLAIMS,
    DEVICE_NUMBERS,
    DEVICES,
    PENDING,
    QUOTAS,
    ListOutput,
    PrintedList,
    Rows,
    key_of,
    print_rows,
    read_rows,
    table_of,
)
from extender.kubectl.place import Place, at_place
from extender.kubectl.running import run
from extender.kubectl.sources.source import AnswerSource, Query
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


OutputOption = Annotated[ListOutput, typer.Option("--output", "-o", help="How to print the list.")]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Print the list, then its changes until Ctrl-C.")]

_CLAIM_WORDS: Final = frozenset({"claim", "claims", "resourceclaim", "resourceclaims"})
_POD_WORDS: Final = frozenset({"pod", "pods", "po"})


@at_place
def pending(*, output: OutputOption = ListOutput.TABLE, watched: WatchOption = False, place: Place) -> None:
    """Pods that wait for devices: since when, what they ask for, and why they wait."""
    _list(place, PENDING, {"state": "pending", **_namespace(place)}, output, watched=watched)


@at_place
def claims(
    *,
    state: Annotated[str, typer.Option(metavar="STATE", help="Only claims in this state.")] = "",
    pod: Annotated[str, typer.Option(metavar="NAME", help="Only claims of pods of this name.")] = "",
    output: OutputOption = ListOutput.TABLE,
    watched: WatchOption = False,
    place: Place,
) -> None:
    """Claims: their states, their devices, and who may use them."""
    _list(place, CLAIMS, {**_namespace(place), **_given(state=state, pod=pod)}, output, watched=watched)


@at_place
def quota(*, output: OutputOption = ListOutput.TABLE, watched: WatchOption = False, place: Place) -> None:
    """DeviceQuotas: what is used of each limit."""
    _list(place, QUOTAS, _namespace(place), output, watched=watched)


@at_place
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
    output: OutputOption = ListOutput.TABLE,
    watched: WatchOption = False,
    place: Place,
) -> None:
    """Devices: their states, who holds them, and what is in the way."""
    query = _given(**{"driver": driver, "pool": pool, "node": node, "class": device_class, "state": state})
    if count:
        _list(place, DEVICE_NUMBERS, {**query, "count": "true"}, output, watched=watched)
        return
    has_all = output in {ListOutput.WIDE, ListOutput.JSON, ListOutput.YAML}
    _list(place, DEVICES, {**query, **({"wide": "true"} if has_all else {})}, output, watched=watched)


@at_place
def explain(
    name: Annotated[str, typer.Argument(metavar="[TYPE/]NAME", help="A pod, or claim/NAME.")],
    *,
    node: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Explain this node only; can be repeated.")
    ] = None,
    output: ExplainOutputOption = ExplainOutput.TEXT,
    place: Place,
) -> None:
    """Where a pod or a claim fits and why; or why it fits nowhere, and what would help."""
    _explain(place, name, node or (), output)


@at_place
def why_not(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node.")],
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod.")],
    *,
    output: ExplainOutputOption = ExplainOutput.TEXT,
    place: Place,
) -> None:
    """Why a pod does not fit on one node, device for device, and what would help there."""
    _explain(place, pod, (node,), output)


def add_commands(app: typer.Typer) -> None:
    """All commands of this module, in the order of the help text."""
    add = app.command
    add(epilog=examples("kubectl dra pending -A", "kubectl dra pending --watch"))(pending)
    add(epilog=examples("kubectl dra explain training-3 -n demo", "kubectl dra explain claim/fpga -n demo"))(explain)
    add("why-not", epilog=examples("kubectl dra why-not gpu-east-1 training-3 -n demo"))(why_not)
    add(epilog=examples("kubectl dra devices --class h100 --state free", "kubectl dra devices --count"))(devices)
    add(epilog=examples("kubectl dra claims -n demo -o wide"))(claims)
    add(epilog=examples("kubectl dra quota -A"))(quota)


def _given(**parameters: str) -> Mapping[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _namespace(place: Place) -> Mapping[str, str]:
    return _given(namespace=place.namespace)


def _list(place: Place, listing: PrintedList, query: Query, output: ListOutput, *, watched: bool) -> None:
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


def _explain(place: Place, name: str, nodes: Sequence[str], output: ExplainOutput) -> None:
    kind, slash, own = name.rpartition("/")
    if (slash and kind.lower() not in _POD_WORDS | _CLAIM_WORDS) or not own:
        fail(f"{name}: expected POD, pod/POD or claim/CLAIM; the namespace is the option -n")
    what = "claims/" if kind.lower() in _CLAIM_WORDS else ""
    path = f"/explain/{quote(place.named(name), safe='')}/{what}{quote(own, safe='')}"

    async def ask(source: AnswerSource) -> Mapping[str, Any]:
        document = await source.get(path, {"node": nodes} if nodes else {})
        if not {"verdict", "text"} <= document.keys():
            raise RemoteError(f"{source.name}: {path}: no explanation: is this a dra-extender?")
        return document

    print_answer(ExplanationJson(run(place, ask)), output)
