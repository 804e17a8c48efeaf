"""What is held on each node of the devices that are kept by name, and what that depends on."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

from allocator import Allocation, PoolId
from extender.cluster.consumers import claim_keys
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.kube.api import ObjectKey
from extender.pods.nominated.held_devices import Room
from extender.pods.nominated.nomination_reads import NominationReads, is_local

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


class HeldNodes:
    """The nodes on which something is held, found by what that depends on."""

    def __init__(self) -> None:
        self._held: dict[str, HeldOnNode] = {}
        self._names: dict[Key, set[str]] = {}
        self._lowest: Counter[int] = Counter()
        self._unknown: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._held

    @property
    def names(self) -> Collection[str]:
        """Of the nodes."""
        return self._held.keys()

    def depending(self, keys: Iterable[Key]) -> set[str]:
        """The nodes where something else may be held after changes, and those where it is not known what is held."""
        return {*self._unknown, *(name for key in keys for name in self._names.get(key, ()))}

    def are_closed_to(self, pod: Pod) -> bool:
        """Whether a pod may take nothing of all that is held, and it is known what that is."""
        may_take = self._unknown or any(lowest < pod.priority for lowest in self._lowest)
        return not may_take and self._names.keys().isdisjoint(_of_claims(claim_keys(pod)))

    def put(self, name: str, held: HeldOnNode | None) -> HeldOnNode | None:
        """This is held on a node now; returns what was held there before."""
        before = self._held.pop(name, None)
        if before is not None:
            self._unknown.discard(name)
            self._lowest -= Counter([before.lowest])
            for key in before.keys:
                self._names[key].discard(name)
                if not self._names[key]:
                    del self._names[key]
        if held is not None:
            self._held[name] = held
            self._lowest[held.lowest] += 1
            if held.found is None:
                self._unknown.add(name)
            for key in held.keys:
                self._names.setdefault(key, set()).add(name)
        return before


def held_on(name: str, snapshot: Snapshot, solver: Solver) -> HeldOnNode | None:
    """What is held on a node; None if nothing is kept there."""
    pods = [pod for pod in snapshot.nominated_to(name) if pod.kept.devices and not pod.deleting and not pod.is_finished]
    if not pods or name not in snapshot.nodes:
        return None
    near = ((pool, snapshot.inventory.pools[pool].node_names) for pool in snapshot.inventory.local.get(name, ()))
    pools = frozenset(pool for pool, names in near if names == frozenset({name}))
    reads = NominationReads.of(pods, pools, snapshot)
    keys = {
        *_of_claims(reads.claims),
        *((Topic.POD, key) for key in reads.pods),
        *((Topic.POOL, each) for each in pools),
    }
    return HeldOnNode(
        frozenset(keys),
        pools,
        min(pod.priority for pod in pods),
        _found(pods, pools, snapshot, solver) if is_local(pods, snapshot) else None,
    )


def _of_claims(keys: Iterable[ObjectKey]) -> Iterator[Key]:
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
