"""Tables about the service itself: what it knows of each kind, and what it has decided."""

from collections.abc import Iterable, Iterator
from functools import partial

from extender.answers.observe.overview import KindHealth
from extender.framework.decision_log import DecisionEntry
from extender.tools.table import Item, Row, TableView, matches


def kinds(found: Iterable[KindHealth]) -> TableView:
    """A row for each kind of object."""
    columns = ("kind", "objects", "unreadable", "revision", "age", "ready", "problem")
    return TableView(columns, (Row((health.kind,), partial(_kind, health)) for health in found))


def _kind(health: KindHealth) -> Item:
    return {
        "kind": health.kind,
        "objects": health.objects,
        "unreadable": health.unreadable,
        "revision": health.revision,
        "age": None if health.age is None else round(health.age, 1),
        "ready": not health.problem,
        "problem": health.problem,
    }


def decisions(entries: Iterable[DecisionEntry], *, namespace: str = "", pod: str = "", verb: str = "") -> TableView:
    """The latest decisions, the newest first."""
    columns = ("time", "id", "verb", "namespace", "pod", "node", "passed", "rejected", "milliseconds", "error")

    def rows() -> Iterator[Row]:
        for entry in entries:
            wanted = matches(namespace, entry.pod.namespace) and matches(pod, entry.pod.name)
            if wanted and matches(verb, entry.verb):
                yield Row((f"{2**63 - entry.number:020}",), partial(decision_item, entry))

    return TableView(columns, rows())


def decision_item(entry: DecisionEntry) -> Item:
    """The row of a decision."""
    return {
        "time": entry.at.isoformat(timespec="milliseconds"),
        "id": entry.id,
        "verb": entry.verb,
        "namespace": entry.pod.namespace,
        "pod": entry.pod.name,
        "node": entry.node,
        "passed": entry.passed,
        "rejected": dict(entry.rejected),
        "milliseconds": round(entry.seconds * 1000, 1),
        "error": entry.error,
    }
