"""The objects that decide what a pod gets of the devices that are kept for it by name."""

from typing import Final

from allocator import AllocationMode, Claim
from allocator.usage import FREE
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.pods.negotiated_claims import names_controller
from extender.framework.pods.node_resources import is_counted

_SHARED: Final = frozenset({"consumes_counters", "allow_multiple_allocations"})
"""Fields of devices that others may use a part of: what one pod gets depends on what the others have."""


def kept_reads(pod: Pod, snapshot: Snapshot, solver: Solver) -> tuple[object, ...] | None:
    """The objects on which alone it depends what a pod gets of the devices that are kept for it.

    They are the same objects in two snapshots in which nothing has changed for the pod. None if it depends on more:
    somebody has one of the devices, or devices are shared, or a claim of the pod is not simply to be allocated.

    Args:
        pod: nothing but its claims needs devices, and none of its victims is left.
        snapshot: the cluster.
        solver: its features and its policy count.
    """
    claims = [snapshot.claims.get(key) for key in claim_keys(pod)]
    if pod.containers or pod.extended_claim or not all(each and _is_simple(each.claim, snapshot) for each in claims):
        return None
    if is_counted(snapshot, solver.features):
        return None
    if any(snapshot.usage.device(each) != FREE for each in pod.kept.devices):
        return None
    node = snapshot.nodes[pod.kept.node]
    views = snapshot.inventory.for_node(node.node, solver.features)
    if not all(_SHARED.isdisjoint(view.fields) for view in views):
        return None
    return (pod, node, snapshot.classes, snapshot.taint_rules, solver.features, solver.policy, *claims, *views)


def _is_simple(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether a claim asks for a number of devices, and has none yet, and no controller decides about it."""
    ways = (way for request in claim.spec.requests for way in request.alternatives)
    is_free = claim.allocation is None and claim.uid not in snapshot.assumed and not claim.spec.optional
    is_ours = is_free and not claim.deleting and not names_controller(claim, snapshot)
    return is_ours and all(way.mode is not AllocationMode.ALL for way in ways)
