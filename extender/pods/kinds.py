"""The kind of a pod: pods of one kind get the same answer from every node."""

from collections.abc import Hashable

from allocator import FIRST_FIT
from extender.decisions.signature import signature_of
from extender.pods.claims import Blocked, claims_of
from extender.quota.device_quota import quotas_of
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot


def kind_of(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods that get the same answer from every node."""
    claims = claims_of(pod, snapshot)
    if isinstance(claims, Blocked) or claims.allocated or claims.negotiated:
        return pod.uid
    if claims.special.is_needed or pod.nominated_node:
        return pod.uid
    namespace = pod.namespace if quotas_of(pod.namespace, snapshot) else ""
    signature = signature_of([each.claim for each in claims.pending], snapshot.classes, FIRST_FIT)  # all policies agree
    return pod.priority, pod.requirements, pod.policy, namespace, signature
