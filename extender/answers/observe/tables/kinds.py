"""The table of watched kinds, which tells how well each is known, and the table of objects that can't be read."""

from collections.abc import Iterable, Iterator
from functools import partial

from extender.answers.observe.overview import KindHealth
from extender.cluster.snapshot import Snapshot
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


def problems(snapshot: Snapshot, *, kind: str = "") -> TableView:
    """The objects that can't be read, and why."""
    columns = ("kind", "object", "problem")

    def rows() -> Iterator[Row]:
        for (its_kind, key), problem in sorted(snapshot.problems.items()):
            if matches(kind, its_kind):
                item = {"kind": its_kind, "object": str(key), "problem": str(problem)}
                yield Row((its_kind, *key), partial(dict, item))

    return TableView(columns, rows())
