"""What the pods of each node request of its CPU, memory and huge pages, all pods of the cluster together.

A pod that is about to be bound counts, too: its promise holds until the watch shows its node, or until it is given up.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map

from extender.cluster.objects.pods import Pod
from extender.cluster.resources.node_resources import NONE, Amounts, added, counted
from extender.kube.api import ObjectKey


class NodeRequest(NamedTuple):
    """What one pod requests of its node.

    Attributes:
        uid: of the pod.
        amounts: as `extender.cluster.resources.node_resources.counted` returns them.
        is_promise: the pod is not bound yet, as far as is known.
    """

    uid: str
    node: str
    amounts: Amounts
    is_promise: bool = False


@dataclass(frozen=True, slots=True)
class NodeRequests:
    """The requests of pods, and their sum for each node. A change makes a new value."""

    pods: Map[ObjectKey, NodeRequest] = field(default_factory=Map)
    totals: Map[str, Amounts] = field(default_factory=Map)

    def on(self, node: str, without: ObjectKey) -> Amounts:
        """What pods request of a node, in kube-scheduler's units, without one pod."""
        total, own = self.totals.get(node, NONE), self.pods.get(without)
        if own is None or own.node != node:
            return total
        return {name: amount - own.amounts.get(name, 0) for name, amount in total.items()}

    def with_pod(self, pod: Pod) -> "NodeRequests":
        """With a pod as the watch shows it."""
        before = self.pods.get(pod.key)
        if pod.node_name and not pod.is_finished:
            return self._with(pod.key, NodeRequest(pod.uid, pod.node_name, counted(pod.resources.total)))
        if before is not None and before.is_promise and before.uid == pod.uid and not pod.is_finished:
            return self
        return self.without_pod(pod.key)

    def promising(self, pod: Pod, node: str, amounts: Amounts) -> "NodeRequests":
        """With a pod that is about to be bound; with a pod that is bound, as it is."""
        before = self.pods.get(pod.key)
        if before is not None and before.uid == pod.uid and not before.is_promise:
            return self
        return self._with(pod.key, NodeRequest(pod.uid, node, counted(amounts), is_promise=True))

    def without_promise(self, key: ObjectKey, uid: str) -> "NodeRequests":
        """Without a promise that was made for a pod, if there is one."""
        before = self.pods.get(key)
        return self.without_pod(key) if before is not None and before.is_promise and before.uid == uid else self

    def without_pod(self, key: ObjectKey) -> "NodeRequests":
        """Without a pod, if it is there."""
        before = self.pods.get(key)
        if before is None:
            return self
        return replace(self, pods=self.pods.delete(key), totals=_moved(self.totals, before, -1))

    def _with(self, key: ObjectKey, request: NodeRequest) -> "NodeRequests":
        if self.pods.get(key) == request:
            return self
        base = self.without_pod(key)
        return NodeRequests(base.pods.set(key, request), _moved(base.totals, request, 1))


def _moved(totals: Map[str, Amounts], request: NodeRequest, sign: int) -> Map[str, Amounts]:
    change = {name: sign * amount for name, amount in request.amounts.items()}
    total = {name: amount for name, amount in added(totals.get(request.node, NONE), change).items() if amount}
    return (
        totals.set(request.node, total) if total else totals.delete(request.node) if request.node in totals else totals
    )
