"""What a decision about one node depends on, and whether that has changed."""

from collections.abc import Collection, Mapping

from allocator import PoolId
from extender.cluster.consumers import claim_keys
from extender.cluster.kinds import Topic
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot, pools_of
from extender.cluster.timeline import Reach
from extender.framework.cluster_with_kept import NominationReads, is_local
from extender.framework.cycle import Cycle
from extender.framework.held_devices import nominated_near
from extender.kube.api import ObjectKey


def still_holds(cycle: Cycle, node: NodeObject, now: Snapshot, reach: Reach) -> bool:
    """Whether a decision about a cycle on a node still holds; False may be wrong, True never is.

    Args:
        cycle: with the snapshot of the decision.
        node: as it was then.
        now: a later snapshot.
        reach: of all changes in between.
    """
    before = cycle.snapshot
    if now.version == before.version:
        return True
    if reach.changed is None:
        return False
    changed = {topic: keys for topic, keys in reach.changed.items() if topic.alters_decisions}
    claims, pools, pods = _claims(cycle), _pools(cycle, node, now), {cycle.pod.key}
    for snapshot in (before, now):
        nominated = _of_nominated(cycle, node, snapshot)
        if nominated is None:
            return not changed
        claims |= nominated.claims
        pods |= nominated.pods
    reads: Mapping[Topic, Collection[object]] = {
        Topic.NODE: {node.name},
        Topic.POOL: pools,
        Topic.CLAIM: claims,
        Topic.POD: pods,
    }
    return all(topic in reads and keys.isdisjoint(reads[topic]) for topic, keys in changed.items())


def _of_nominated(cycle: Cycle, node: NodeObject, snapshot: Snapshot) -> NominationReads | None:
    """What it depends on what nominated pods leave of a node; None: not only on the node and its pools."""
    if not snapshot.nominated:
        return NominationReads()
    if snapshot.device_quotas and any(uid != cycle.pod.uid for uid in snapshot.kept.unnamed):
        return None  # what they get elsewhere counts in quotas
    others = [pod for pod in nominated_near(node, snapshot, cycle.solver.features) if pod.uid != cycle.pod.uid]
    asking = [cycle.pod] if cycle.pod.kept.victims else []
    if not (others or asking):
        return NominationReads()
    is_near = all(pod.kept.devices and pod.nominated_node == node.name for pod in others)
    if not is_near or cycle.counts_resources or not is_local(others, snapshot):
        return None
    views = snapshot.inventory.for_node(node.node, cycle.solver.features)
    return NominationReads.of((*asking, *others), (view.id for view in views), snapshot)


def _claims(cycle: Cycle) -> set[ObjectKey]:
    found = cycle.claims
    return {*claim_keys(cycle.pod), *(each.key for each in (*found.allocated, *found.pending, *found.special.made))}


def _pools(cycle: Cycle, node: NodeObject, now: Snapshot) -> set[PoolId]:
    """The pools that the node sees or saw, and those of allocated claims."""
    views = (
        view.id for each in (cycle.snapshot, now) for view in each.inventory.for_node(node.node, cycle.solver.features)
    )
    held = (each.claim.allocation for each in cycle.claims.allocated)
    return {*views, *(pool for allocation in held if allocation is not None for pool in pools_of(allocation))}
