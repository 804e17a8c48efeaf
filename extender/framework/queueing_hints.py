"""Queueing hints: the nodes on which the changes between two snapshots may help rejected pods.

A sound answer, not a sharp one: a node that is not named has no more to offer than before; one that is named may have.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from allocator import DeviceId, PoolId
from allocator.usage import FREE, NOTHING_USED
from extender.cluster.consumers import claim_keys
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, nodes_of, roams
from extender.framework.plugin import Plugins
from extender.kube.api import ObjectKey


@dataclass(frozen=True, slots=True)
class QueueingHint:
    """The nodes where rejected pods may fit now.

    Attributes:
        everywhere: on any node.
        nodes: names of nodes.
        claims: claims that have changed; their pods may fit on any node.
        namespaces: namespaces whose pods a plugin may refuse no more. Their pods may fit on any node.
    """

    everywhere: bool = False
    nodes: frozenset[str] = frozenset()
    claims: frozenset[ObjectKey] = frozenset()
    namespaces: frozenset[str] = frozenset()


NO_HINT: Final = QueueingHint()
EVERYWHERE: Final = QueueingHint(everywhere=True)


def queueing_hint(reach: Reach, before: Snapshot, after: Snapshot, plugins: Plugins) -> QueueingHint:
    """The hint of some changes: where things can be better for pods.

    Args:
        reach: of all changes between the two snapshots.
        before: the cluster as it was when the pods were rejected.
        after: the cluster as it is now.
        plugins: those that may have rejected the pods.
    """
    nodes: set[str] = set()
    claims: set[ObjectKey] = set()
    namespaces: set[str] = set()
    if reach.changed is None:
        return EVERYWHERE
    for topic, key in (each for each in reach.pairs() if each[0].helps_rejected):
        namespaces |= plugins.queueing_hint(topic, key, before, after)
        match topic:
            case Topic.NODE:
                nodes |= {key} if key in after.nodes else set()
            case Topic.CLAIM if not _was_wanted(key, before, after):
                claims.add(key)
            case Topic.POOL if not _has_more(key, before, after):
                continue
            case Topic.POOL if not roams(key, before, after):
                nodes |= nodes_of(key, before, after)
            case Topic.TAINT_RULE if key not in before.rules:
                continue
            case Topic.POD if not _gave_up_nomination(key, before, after):
                continue
            case _ if not topic.alters_decisions:  # only plugins compare it, after devices are found
                continue
            case _:
                return EVERYWHERE
    return QueueingHint(nodes=frozenset(nodes), claims=frozenset(claims), namespaces=frozenset(namespaces))


def _has_more(pool: PoolId, before: Snapshot, after: Snapshot) -> bool:
    """Whether the pool may have more to give: its slices have changed, or the use of a device that was in use."""
    if before.inventory.pools.get(pool) is not after.inventory.pools.get(pool):
        return True
    old, new = (each.usage.pools.get(pool, NOTHING_USED) for each in (before, after))
    return any(new.get(device, FREE) != usage for device, usage in old.items())


def _gave_up_nomination(key: ObjectKey, before: Snapshot, after: Snapshot) -> bool:
    """A pod no longer keeps others from what it needs on the node that it was nominated for."""
    old, new = before.pods.get(key), after.pods.get(key)
    was_assumed = old is not None and old.uid in before.keeping and old.uid not in after.keeping
    if was_assumed and (new is None or not new.kept.node):
        return True
    if old is None or old.node_name or not old.nominated_node:
        return False
    if new is None or new.uid != old.uid or new.deleting or new.is_finished:
        return True
    if new.node_name:
        return new.node_name != old.nominated_node or not _has_its_devices(new, old.kept.devices, after)
    return new.nominated_node != old.nominated_node


def _has_its_devices(pod: Pod, kept: Iterable[DeviceId], snapshot: Snapshot) -> bool:
    """Whether a pod's claims are known to hold something, and all devices that were kept for it.

    The watch of pods may be ahead of that of claims.
    """
    claims = [snapshot.claims.get(key) for key in claim_keys(pod)]
    held = [() if claim is None else snapshot.held_by(claim.claim.uid) for claim in claims]
    devices = {each.device for allocations in held for allocation in allocations for each in allocation.results}
    return all(held) and devices.issuperset(kept)


def _was_wanted(key: ObjectKey, before: Snapshot, after: Snapshot) -> bool:
    """A claim is gone, or on its way, for which a nominated pod kept others from devices."""
    claim = after.claims.get(key)
    if claim is not None and not claim.claim.deleting:
        return False
    pods = (pod for node in before.nominated for pod in before.nominated_to(node))
    return any(key in claim_keys(pod) for pod in pods)
