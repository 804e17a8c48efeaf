"""The table of gangs: how far each has come, and what the pods of each that have no node wait for."""

from collections.abc import Iterator
from enum import Enum
from functools import partial

from extender.cluster.snapshot import Snapshot
from extender.framework.plugin import Refusal
from extender.plugins.gangs.gang import Gang, gang_at, gang_refusal, in_part_words
from extender.tools.table import Item, Row, TableView, matches


class GangState(Enum):
    """How far a gang has come."""

    PLACED = "placed"
    """As many members as its size have a node."""
    READY = "ready"
    """A node and devices are kept for the members that have no node: they may be bound."""
    IN_PART = "runs in part"
    WAITS = "waits"
    WRONG = "wrong"
    """The pods contradict each other: they get no devices, whatever is free."""


def state_of_gang(gang: Gang) -> GangState:
    """How far a gang has come."""
    if gang.problem:
        return GangState.WRONG
    if gang.is_placed:
        return GangState.PLACED
    if gang.is_ready:
        return GangState.READY
    return GangState.IN_PART if gang.runs_in_part else GangState.WAITS


def gangs(snapshot: Snapshot, *, namespace: str = "", state: str = "") -> TableView:
    """The gangs that have members: of one namespace, or in one state."""
    columns = ("namespace", "gang", "kind", "state", "size", "pods", "bound", "kept", "priority", "why")

    def rows() -> Iterator[Row]:
        for key in sorted(key for key in snapshot.gangs.members if matches(namespace, key.namespace)):
            gang = gang_at(key, snapshot)
            if gang is not None and matches(state, state_of_gang(gang).value):
                yield Row((key.namespace, key.name, str(key.is_pod_group)), partial(_item, gang, snapshot))

    return TableView(columns, rows())


def _item(gang: Gang, snapshot: Snapshot) -> Item:
    return {
        "namespace": gang.key.namespace,
        "gang": gang.key.name,
        "kind": "PodGroup" if gang.key.is_pod_group else "annotations",
        "state": state_of_gang(gang).value,
        "size": gang.size,
        "pods": len(gang.members),
        "bound": len(gang.bound),
        "kept": len(gang.kept),
        "priority": gang.priority,
        "created": min(pod.created for pod in gang.members),
        "waiting": [pod.name for pod in (*gang.kept, *gang.free)],
        "why": _why(gang, snapshot),
    }


def _why(gang: Gang, snapshot: Snapshot) -> str:
    if gang.problem:
        return gang.problem
    if gang.runs_in_part:
        return str(in_part_words(gang))
    refusal = gang_refusal(gang.free[0], snapshot) if gang.free and not gang.is_ready else None
    return "" if refusal is None else str(Refusal(refusal))
