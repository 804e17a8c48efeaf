"""The table of preemptions: pods for which others are evicted, and how far that has come."""

from collections.abc import Iterator
from enum import Enum
from functools import partial

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.tools.table import Item, Row, TableView, matches


class PreemptionState(Enum):
    """How far the evictions for a pod have come."""

    CHOSEN = "chosen"
    """A victim is not terminating yet."""
    TERMINATING = "terminating"
    """All victims that are still there terminate."""
    GONE = "gone"
    """No victim is there any more: devices are kept for the pod until it is bound."""
    BY_SCHEDULER = "by the scheduler"
    """The pod's scheduler has nominated it to a node, for want of something else than devices."""


def preemptions(snapshot: Snapshot, *, namespace: str = "") -> TableView:
    """The pending pods with devices that are nominated to a node: of one namespace, or of all.

    What is kept for the pods of a gang without evictions is no preemption.
    """
    columns = ("namespace", "pod", "priority", "node", "state", "victims", "devices")

    def rows() -> Iterator[Row]:
        for key in sorted(key for key in snapshot.pods if matches(namespace, key.namespace)):
            pod = snapshot.pods[key]
            if pod.is_pending and _is_preemption(pod):
                yield Row(key, partial(_item, pod, snapshot))

    return TableView(columns, rows())


def _is_preemption(pod: Pod) -> bool:
    if not pod.kept.node:
        return bool(pod.nominated_node)
    return bool(pod.kept.victims) or pod.gang is None


def _item(pod: Pod, snapshot: Snapshot) -> Item:
    victims = [found for uid in pod.kept.victims if (found := snapshot.pod(uid)) is not None]
    state = PreemptionState.GONE
    if not pod.kept.node:
        state = PreemptionState.BY_SCHEDULER
    elif victims:
        is_over = all(each.deleting for each in victims)
        state = PreemptionState.TERMINATING if is_over else PreemptionState.CHOSEN
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "priority": pod.priority,
        "created": pod.created,
        "node": pod.kept.node or pod.nominated_node,
        "state": state.value,
        "victims": [str(each.key) for each in victims],
        "devices": [str(each) for each in pod.kept.devices],
    }
