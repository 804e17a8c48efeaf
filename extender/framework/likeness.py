"""The likeness of a pod: pods of one likeness get the same answer from every node."""

from collections.abc import Hashable

from allocator.policies import FIRST_FIT
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import signature_of
from extender.framework.pods.claims import Blocked, claims_of


def likeness_of(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods that get the same answer from every node."""
    claims = claims_of(pod, snapshot)
    if isinstance(claims, Blocked) or claims.allocated or claims.negotiated:
        return pod.uid
    special = claims.special
    if special.made or special.void or special.assumed or pod.extended_claim or pod.nominated_node:
        return pod.uid
    namespace = pod.namespace if snapshot.quotas_in.get(pod.namespace) else ""
    signature = signature_of([each.claim for each in claims.pending], snapshot.classes, FIRST_FIT)  # all policies agree
    resources = likeness_of_resources(pod) if snapshot.node_requests is not None and snapshot.inventory.taking else ()
    return pod.priority, pod.requirements, pod.policy, namespace, signature, pod.containers, resources


def likeness_of_resources(pod: Pod) -> Hashable:
    """What decides, beside the devices, how much of a node a pod takes with devices that take some of it."""
    own, places = pod.resources, {each.name: place for place, each in enumerate(pod.claims)}
    amounts = [tuple(sorted(each.items())) for each in (own.containers, own.overhead)]
    users = tuple(tuple(places.get(name) for name in names) for _, names in own.users)
    return *amounts, users, repr(own.envelope)
