"""The table of watched kinds: how well the cluster is known."""

from collections.abc import Iterable
from functools import partial

from extender.observe.overview import KindHealth
from extender.observe.tables.table import Item, Row, TableView


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
