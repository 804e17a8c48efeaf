"""What `kubectl dra top` shows: nodes with their devices by state, waiting pods, and the latest decisions."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allocator import DeviceState
from extender.kubectl.listings import PENDING, PrintedList, read_rows, table_of
from extender.kubectl.sources.source import AnswerSource, Query
from extender.observe.tables.table import Item
from extender.observe.tables.terminal import TextTable

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
    """A row for each node: its devices in each state, by the table of pools."""
    numbers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    problems: defaultdict[str, list[str]] = defaultdict(list)
    for pool in pools:
        node = str(pool.get("node") or "no node")
        states: Any = pool.get("states") or {}
        numbers[node].update(states)
        if pool.get("problem"):
            problems[node].append(f"{pool['driver']}/{pool['pool']}: {pool['problem']}")
    shown = [
        each.value for each in DeviceState if each is DeviceState.FREE or any(n[each.value] for n in numbers.values())
    ]
    rows = [
        [node, str(counts.total()), *(str(counts[state] or "-") for state in shown), "; ".join(problems[node]) or "-"]
        for node, counts in sorted(numbers.items())
    ]
    return TextTable(["node", "devices", *shown, "problem"], rows)
