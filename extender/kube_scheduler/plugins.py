"""What device plugins have left on each node: the part of kube-scheduler's NodeResourcesFit that is about devices.

Source: pkg/scheduler/framework/plugins/noderesources/fit.go, Kubernetes 1.36.
"""

from collections import Counter
from collections.abc import Iterable

from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_fields import asked
from extender.cluster.objects.pods import Pod


class PluginCapacity:
    """Extended resources that pods on nodes hold; ``pods`` are all pods of the cluster."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._held: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod.node_name and not pod.is_finished:
                self.take(pod, pod.node_name)

    def take(self, pod: Pod, node: str) -> None:
        """Count a pod on a node."""
        self._held.setdefault(node, Counter()).update(asked(pod.containers))

    def lacking(self, pod: Pod, node: NodeObject) -> str:
        """The first resource that the node's plugins have too little of for a pod; empty if there is none.

        Resources that no plugin of the node offers are left to device classes.
        """
        held = self._held.get(node.name, Counter())
        for resource, amount in asked(pod.containers).items():
            offered = node.allocatable.get(resource)
            if offered is not None and offered.nano and held[resource] + amount > offered.nano:
                return resource
        return ""
