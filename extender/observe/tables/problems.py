"""The table of objects that can't be read, and why."""

from collections.abc import Iterator
from functools import partial

from extender.cluster.snapshot import Snapshot
from extender.observe.tables.table import Row, TableView, matches


def problems(snapshot: Snapshot, *, kind: str = "") -> TableView:
    """The objects that can't be read, and why."""
    columns = ("kind", "object", "problem")

    def rows() -> Iterator[Row]:
        for (its_kind, key), problem in sorted(snapshot.problems.items()):
            if matches(kind, its_kind):
                item = {"kind": its_kind, "object": str(key), "problem": problem}
                yield Row((its_kind, *key), partial(dict, item))

    return TableView(columns, rows())
