"""DaemonSets: one pod for each node that takes it.

Source: the daemon controller of kube-controller-manager, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any

from extender.cluster.objects.pods import parse_pod
from extender.kube_scheduler import rejection, tolerating
from extender.simulation.workloads.workload import JsonObject, Workload


def of_daemon_set(workload: Workload) -> Iterator[JsonObject]:
    """A pod for each node that its node selection and tolerations allow, and that has none."""
    made = workload.pod(workload.name)
    pod = {**made, "spec": tolerating(made["spec"])}
    parsed = parse_pod(pod)
    there = {child.get("spec", {}).get("nodeName") for child in workload.living()}
    for node in workload.nodes:
        is_meant = parsed.node_name in {"", node.name}
        if is_meant and node.name not in there and not rejection(parsed.requirements, node):
            name = workload.suffixed(f"{workload.name}-", node.name)
            yield {**pod, "metadata": {**pod["metadata"], "name": name}, "spec": _on(pod["spec"], node.name)}


def _on(spec: dict[str, Any], node: str) -> dict[str, Any]:
    """The spec for one node only: the scheduler puts the pod there, and the node's devices decide."""
    affinity = spec.get("affinity") or {}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    by_node = {**(affinity.get("nodeAffinity") or {}), **required}
    return {**spec, "affinity": {**affinity, "nodeAffinity": by_node}}
