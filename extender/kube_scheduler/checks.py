"""kube-scheduler's own conditions on nodes: cordons, taints, node selection, and what device plugins have left.

Source: the plugins NodeUnschedulable, TaintToleration, NodeAffinity and NodeResourcesFit of Kubernetes 1.36; the first
plugin that rejects a node gives the reason.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from allocator import DeviceTaint, selector_matches, taint_text, tolerates
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_fields import CORDON, NodeRequirements
from extender.cluster.objects.pods import Pod
from extender.kube_scheduler.plugins import PluginCapacity


class Unmet(NamedTuple):
    """A requirement that a node does not meet: the reason against the node, and what a person can do about it."""

    reason: str
    remedy: str


def rejection(requirements: NodeRequirements, node: NodeObject) -> str:
    """Why a node does not meet a pod's requirements, however empty the node is; empty if it meets them."""
    return next((each.reason for each in unmet_requirements(requirements, node)), "")


def unmet_requirements(requirements: NodeRequirements, node: NodeObject) -> Iterator[Unmet]:
    """Everything about a node that does not meet a pod's requirements, in kube-scheduler's order."""
    for taint in node.taints:
        if not any(tolerates(each, taint) for each in requirements.tolerations):
            yield _untolerated(taint, node)
    for key, value in requirements.labels:
        if node.node.labels.get(key) != value:
            remedy = f"correct spec.nodeSelector of the pod, or kubectl label node {node.name} {key}={value}"
            yield Unmet(f"node does not match spec.nodeSelector {key}={value}", remedy)
    if requirements.affinity is not None and not selector_matches(requirements.affinity, node.node):
        remedy = f"correct the required node affinity of the pod, or the labels of node {node.name}"
        yield Unmet("node does not match the required node affinity", remedy)


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


def _untolerated(taint: DeviceTaint, node: NodeObject) -> Unmet:
    if taint == CORDON:
        return Unmet("node is unschedulable", f"kubectl uncordon {node.name}")
    value = f'operator: Equal, value: "{taint.value}"' if taint.value else "operator: Exists"
    toleration = f"{{key: {taint.key}, {value}, effect: {taint.effect}}}"
    return Unmet(
        f"untolerated taint {taint_text(taint)} of the node", f"add to spec.tolerations of the pod: {toleration}"
    )
