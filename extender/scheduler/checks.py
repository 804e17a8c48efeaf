"""kube-scheduler's own conditions on nodes: cordons, taints, node selection, and what device plugins have left.

Source: the plugins NodeUnschedulable, TaintToleration, NodeAffinity and NodeResourcesFit of Kubernetes 1.36; the first
plugin that rejects a node gives the reason.
"""

from collections.abc import Iterable, Mapping

from allocator import selector_matches, taint_text, tolerates
from extender.scheduler.plugins import PluginCapacity
from extender.state.node_requirements import CORDON, NodeRequirements
from extender.state.objects import NodeObject, Pod


def rejection(requirements: NodeRequirements, node: NodeObject) -> str:
    """Why a node does not meet a pod's requirements, however empty the node is; empty if it meets them."""
    for taint in node.taints:
        if not any(tolerates(each, taint) for each in requirements.tolerations):
            return "node is unschedulable" if taint == CORDON else f"untolerated taint {taint_text(taint)} of the node"
    for key, value in requirements.labels:
        if node.node.labels.get(key) != value:
            return f"node does not match spec.nodeSelector {key}={value}"
    if requirements.affinity is not None and not selector_matches(requirements.affinity, node.node):
        return "node does not match the required node affinity"
    return ""


class SchedulerChecks:
    """What kube-scheduler itself says of the nodes of a cluster, pod after pod.

    CPU, memory, volumes and conditions between pods are not modeled.

    Args:
        nodes: by name.
        pods: all pods of the cluster that request extended resources; others do not matter.
    """

    def __init__(self, nodes: Mapping[str, NodeObject], pods: Iterable[Pod]) -> None:
        self._nodes = nodes
        self._plugins = PluginCapacity(pods)
        self._known: dict[NodeRequirements, Mapping[str, str]] = {}

    def rejections(self, pod: Pod) -> Mapping[str, str]:
        """The nodes that kube-scheduler rejects for a pod, each with the reason."""
        found = self._of_requirements(pod.requirements)
        if not pod.containers:
            return found
        lacking = {name: self._plugins.lacking(pod, node) for name, node in self._nodes.items() if name not in found}
        return {**found, **{name: f"Insufficient {resource}" for name, resource in lacking.items() if resource}}

    def place(self, pod: Pod, node: str) -> None:
        """Count a pod that has got a node."""
        self._plugins.take(pod, node)

    def _of_requirements(self, requirements: NodeRequirements) -> Mapping[str, str]:
        if requirements not in self._known:
            reasons = ((name, rejection(requirements, node)) for name, node in self._nodes.items())
            self._known[requirements] = {name: reason for name, reason in reasons if reason}
        return self._known[requirements]
