"""What is held on each node of the devices that are kept by name, and what that depends on."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from immutables import Map

from allocator import Allocation, PoolId
from extender.cluster.consumers import claim_keys
from extender.cluster.indexes import removed, with_uid
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.nominated.held_devices import Room
from extender.framework.nominated.nomination_reads import NominationReads, is_local
from extender.kube.api import ObjectKey

Key: TypeAlias = tuple[Topic, Hashable]
"""Of an object or a pool."""


@dataclass(frozen=True, slots=True)
class HeldOnNode:
    """What is held on one node.

    Attributes:
        keys: of what it depends on, by topic: pods, claims and pools.
        pools: that only this node reaches.
        lowest: the lowest priority of a pod for which something is kept there.
        found: what each of these pods gets, one after the other; None: that is found out for each asking pod.
    """

    keys: frozenset[Key]
    pools: frozenset[PoolId]
    lowest: int
    found: tuple[Allocation, ...] | None


class HeldNodes(NamedTuple):
    """The nodes on which something is held, found by what that depends on. A change makes a new value.

    Attributes:
        nodes: what is held, by the name of the node.
        depending: what it depends on to the names of the nodes.
        lowest: each lowest priority to the names of the nodes.
        unknown: the nodes where it is not known what is held.
    """

    nodes: Map[str, HeldOnNode] = Map()
    depending: Map[Key, Map[str, None]] = Map()
    lowest: Map[int, Map[str, None]] = Map()
    unknown: Map[str, None] = Map()

    def concerned_by(self, keys: Iterable[Key]) -> set[str]:
        """The nodes where something else may be held after changes, and those where it is not known what is held."""
        return {*self.unknown, *(name for key in keys for name in self.depending.get(key, ()))}

    def are_closed_to(self, pod: Pod, but: str = "") -> bool:
        """Whether a pod may take nothing of all that is held, and it is known what that is.

        Args:
            pod: asks.
            but: a node where something may be held for claims of the pod.
        """
        if self.unknown or any(lowest < pod.priority for lowest in self.lowest):
            return False
        return all(name == but for key in keys_of_claims(claim_keys(pod)) for name in self.depending.get(key, ()))

    def put(self, name: str, held: HeldOnNode | None) -> "HeldNodes":
        """With what is held on a node now."""
        nodes, depending, lowest, unknown = self.nodes, self.depending, self.lowest, self.unknown
        if (before := nodes.get(name)) is not None:
            nodes, lowest = nodes.delete(name), removed(lowest, before.lowest, name)
            unknown = unknown.delete(name) if before.found is None else unknown
            for key in before.keys:
                depending = removed(depending, key, name)
        if held is not None:
            nodes, lowest = nodes.set(name, held), with_uid(lowest, held.lowest, name)
            unknown = unknown.set(name, None) if held.found is None else unknown
            for key in held.keys:
                depending = with_uid(depending, key, name)
        return HeldNodes(nodes, depending, lowest, unknown)


def held_on(name: str, snapshot: Snapshot, solver: Solver, but: str = "") -> HeldOnNode | None:
    """What is held on a node, but for one pod, by uid; None if nothing is kept there."""
    nominated = [pod for pod in snapshot.nominated_to(name) if pod.uid != but]
    pods = [pod for pod in nominated if pod.kept.devices and not pod.deleting and not pod.is_finished]
    if not pods or name not in snapshot.nodes:
        return None
    near = ((pool, snapshot.inventory.pools[pool].node_names) for pool in snapshot.inventory.local.get(name, ()))
    pools = frozenset(pool for pool, names in near if names == frozenset({name}))
    reads = NominationReads.of(pods, pools, snapshot)
    keys = {
        *keys_of_claims(reads.claims),
        *((Topic.POD, key) for key in reads.pods),
        *((Topic.POOL, each) for each in pools),
    }
    return HeldOnNode(
        frozenset(keys),
        pools,
        min(pod.priority for pod in pods),
        _found(pods, pools, snapshot, solver) if is_local(pods, snapshot) else None,
    )


def keys_of_claims(keys: Iterable[ObjectKey]) -> Iterator[Key]:
    """The keys of claims, in the form that `HeldOnNode.keys` has."""
    return ((Topic.CLAIM, key) for key in keys)


def _found(
    pods: Sequence[Pod], pools: Collection[PoolId], snapshot: Snapshot, solver: Solver
) -> tuple[Allocation, ...] | None:
    """What each pod gets of what is kept for it; None if that is not known, or does not depend on its node alone."""
    if any(pod.kept.victims or any(each.pool_id not in pools for each in pod.kept.devices) for pod in pods):
        return None
    room = Room(frozenset(), snapshot, solver)
    for pod in room.share(sorted(pods, key=attrgetter("order"))):
        room.hold_kept(pod)
    return None if room.is_undecided else tuple(room.found)
