"""What device plugins have left, node by node: the part of kube-scheduler's NodeResourcesFit that is about devices.

Source: pkg/scheduler/framework/plugins/noderesources/fit.go and k8s.io/component-helpers/resource, Kubernetes 1.36.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from extender.pods.extended_resources.requests import wanted
from extender.state.objects import Container, NodeObject, Pod


class PluginCapacity:
    """Extended resources that pods on nodes hold, counted on as pods are placed.

    Args:
        pods: all pods; those that run on a node hold what they ask for.
    """

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._held: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod.node_name and not pod.is_finished:
                self.take(pod, pod.node_name)

    def take(self, pod: Pod, node: str) -> None:
        """A pod goes to a node."""
        self._held.setdefault(node, Counter()).update(asked(pod))

    def lacking(self, pod: Pod, node: NodeObject) -> str:
        """The first resource of which a plugin of the node has too little for a pod; empty if there is none.

        What no plugin of the node offers is up to device classes.
        """
        held = self._held.get(node.name, Counter())
        for resource, amount in asked(pod).items():
            offered = node.allocatable.get(resource)
            if offered is not None and offered.nano and held[resource] + amount > offered.nano:
                return resource
        return ""


def asked(pod: Pod) -> Mapping[str, int]:
    """What a pod needs of each extended resource at its peak, in nano units, by name."""
    return {resource: _peak(pod.containers, resource) for resource in wanted(pod)}


def _peak(containers: Iterable[Container], resource: str) -> int:
    """Sidecars run beside everything that starts after them; other init containers run one by one, before all else."""
    sidecars = lasting = starting = 0
    for container in containers:
        amount = sum(each.amount.nano for each in container.requests if each.resource == resource)
        if not container.is_init:
            lasting += amount
        elif container.restarts:
            sidecars += amount
            starting = max(starting, sidecars)
        else:
            starting = max(starting, sidecars + amount)
    return max(lasting + sidecars, starting)
