"""Extended resources of a pod that has a node already: kubelet may start the pod without devices for them."""

from allocator import Features, Reason
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.pods.extended_resources.special_claim import special_of


def without_devices(pod: Pod, snapshot: Snapshot, features: Features) -> str:
    """Why a pod that has a node starts without devices for its extended resources; empty if it gets them.

    kubelet waits for claims that the pod names. It does not wait for a special claim (Kubernetes 1.36): without
    ``status.extendedResourceClaimStatus`` it starts the pod at once, and ignores resources that the node does not have.
    """
    node = snapshot.nodes.get(pod.node_name)
    if node is None or not (pod.containers and features.extended_resource) or pod.extended_claim is not None:
        return ""
    needs = special_of(pod, snapshot).on(node)
    if isinstance(needs, Reason):
        return f"the pod has node {node.name}, and kubelet starts it without devices: {needs.in_words()}"
    resources = sorted({each.resource for each in needs.status.mappings}) if needs.status is not None else []
    if not resources:
        return ""
    return (
        f"the pod has node {node.name}, and kubelet starts it without {', '.join(resources)}: kubelet does not wait "
        "for devices of a device class; remove spec.nodeName, so that a scheduler allocates them"
    )
