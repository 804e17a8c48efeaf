"""`kubectl dra top`: nodes with their devices by state, waiting pods and the latest decisions, live in the terminal."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Final

import typer

from allocator.checks import DeviceState
from extender.faces.commands.answer_source import AnswerSource, PlaceOptions, Query, run
from extender.faces.commands.lists import PENDING, PrintedList, read_rows, table_of
from extender.faces.commands.options import command
from extender.faces.commands.output import fail
from extender.tools.table import Item, TextTable
from extender.tools.user_error import installing

_POOLS: Final = PrintedList("/pools", ("driver", "pool"), ())
_DECISIONS: Final = "/decisions"
_DECISION_COLUMNS: Final = ("time", "verb", "namespace", "pod", "node", "passed", "rejected", "error")
_MOST_DECISIONS: Final = "50"


@dataclass(frozen=True, slots=True)
class TopView:
    """One look at a cluster.

    Attributes:
        source: who has answered.
        notes: why something may be missing.
    """

    source: str
    nodes: TextTable
    waiting: TextTable
    decisions: TextTable
    notes: tuple[str, ...] = ()


_HELP: Final = f"""Nodes with their devices by state, waiting pods and the latest decisions, live.

q ends it, r looks at once.

It needs the extra top: {installing("top")}. With -n, only pods of one namespace are shown.
"""


@command("kubectl dra top -A", help_text=_HELP)
def top(
    *,
    seconds: Annotated[
        float,
        typer.Option(metavar="N", min=2, max=3600, help="Seconds between two looks; at least 10 without a service."),
    ] = 2.0,
    place: PlaceOptions,
) -> None:
    """Show the screen until q is pressed."""
    if find_spec("textual") is None:
        fail(f"top needs textual: {installing('top')}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("top needs a terminal; for a pipe, there are pending --watch and devices --watch")
    screen = import_module("extender.faces.commands.top_screen")  # imported here, because textual is an extra

    async def show(source: AnswerSource) -> None:
        await screen.TopScreen(
            partial(_refreshed_view, source, place.namespace), max(seconds, source.seconds)
        ).run_async()

    run(place, show)


async def _refreshed_view(source: AnswerSource, namespace: str) -> TopView:
    await source.refresh()
    return await look(source, namespace)


async def look(source: AnswerSource, namespace: str) -> TopView:
    """Ask for everything that is shown; of a namespace, or of all if it is empty.

    Raises:
        RemoteError: there is no answer.
    """
    of_namespace: Query = {"namespace": namespace} if namespace else {}
    pools = await read_rows(source, _POOLS, {})
    waiting = await read_rows(source, PENDING, {"state": "pending", **of_namespace})
    decided: Sequence[Item] = ()
    notes = [*pools.notes, *waiting.notes]
    if source.has_decisions:
        found: Any = await source.get(_DECISIONS, {**of_namespace, "limit": _MOST_DECISIONS})
        decided = found.get("items") or ()
    else:
        notes.append("no service answers, so there are no decisions")
    return TopView(
        source.name,
        node_table(pools.items),
        table_of(waiting.items, PENDING.columns),
        table_of(decided, _DECISION_COLUMNS),
        tuple(dict.fromkeys(notes)),
    )


def node_table(pools: Iterable[Item]) -> TextTable:
    """A row for each node: its devices in each state, and its free partitions, by the table of pools."""
    numbers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    free_partitions: Counter[str] = Counter()
    problems: defaultdict[str, list[str]] = defaultdict(list)
    for pool in pools:
        node = str(pool.get("node") or "no node")
        states: Any = pool.get("states") or {}
        numbers[node].update(states)
        partitions: Any = pool.get("partitions") or {}
        free_partitions[node] += int(partitions.get(DeviceState.FREE.value, 0))
        if pool.get("problem"):
            problems[node].append(f"{pool['driver']}/{pool['pool']}: {pool['problem']}")
    shown = [
        each.value for each in DeviceState if each is DeviceState.FREE or any(n[each.value] for n in numbers.values())
    ]
    rows = [
        [
            *(node, str(counts.total())),
            *(str(counts[state] or "-") for state in shown),
            *(str(free_partitions[node] or "-"), "; ".join(problems[node]) or "-"),
        ]
        for node, counts in sorted(numbers.items())
    ]
    return TextTable(["node", "devices", *shown, "free partitions", "problem"], rows)
