"""What is known of the cluster, kind by kind, and what was decided."""

from collections.abc import Iterable, Iterator
from functools import partial

from extender.observe.decision_log import Entry
from extender.observe.overview import KindHealth
from extender.observe.tables.table import Item, Row, View, matches
from extender.state.snapshot import Snapshot


def kinds(found: Iterable[KindHealth]) -> View:
    """A row for each kind of object."""
    columns = ("kind", "objects", "unreadable", "revision", "age", "ready", "problem")
    return View(columns, (Row((health.kind,), partial(_kind, health)) for health in found))


def problems(snapshot: Snapshot, *, kind: str = "") -> View:
    """The objects that can't be read, and why."""
    columns = ("kind", "object", "problem")

    def rows() -> Iterator[Row]:
        for (its_kind, key), problem in sorted(snapshot.problems.items()):
            if matches(kind, its_kind):
                item = {"kind": its_kind, "object": str(key), "problem": problem}
                yield Row((its_kind, *key), partial(dict, item))

    return View(columns, rows())


def decisions(entries: Iterable[Entry], *, namespace: str = "", pod: str = "", verb: str = "") -> View:
    """What was decided, the latest first."""
    columns = ("time", "id", "verb", "namespace", "pod", "node", "passed", "rejected", "milliseconds", "error")

    def rows() -> Iterator[Row]:
        for entry in entries:
            wanted = matches(namespace, entry.pod.namespace) and matches(pod, entry.pod.name)
            if wanted and matches(verb, entry.verb):
                yield Row((f"{2**63 - entry.number:020}",), partial(_decision, entry))

    return View(columns, rows())


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


def _decision(entry: Entry) -> Item:
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
