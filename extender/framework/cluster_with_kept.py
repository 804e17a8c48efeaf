"""The cluster in which each pod has what is kept for it by name, kept up with the cluster change by change.

Most pods find this cluster: they may take nothing of what is kept. `held_for_nominated` makes the same of a snapshot,
at the cost of all kept devices for each pod. Here, a change costs what is kept on the nodes that it concerns.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from allocator import Allocation, PoolId, Usage
from allocator.usage import NOTHING_USED
from extender.cluster.consumers import claim_keys
from extender.cluster.indexes import KeptIndex, removed, with_uid
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.timeline import ChangeLog, Reach, Timeline
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import Room
from extender.framework.pods.negotiated_claims import names_controller
from extender.framework.pods.node_resources import is_counted
from extender.kube.api import ObjectKey


@dataclass(frozen=True, slots=True)
class NominationReads:
    """The objects on which it depends what some nominated pods get, beside their node and its pools.

    Attributes:
        pods: the nominated pods, their victims, and those that use devices of the pools.
        claims: of the nominated pods and of their victims, and those that hold devices of the pools.
    """

    pods: frozenset[ObjectKey] = frozenset()
    claims: frozenset[ObjectKey] = frozenset()

    @classmethod
    def of(cls, nominated: Collection[Pod], pools: Iterable[PoolId], snapshot: Snapshot) -> "NominationReads":
        """What is read for some pods whose nodes reach these pools."""
        uids = {uid for pool in pools for uid in snapshot.holders.get(pool, ())}
        holders = [claim for uid in uids if (claim := snapshot.claim(uid)) is not None]
        users = {ObjectKey(each.key.namespace, user.name) for each in holders for user in each.claim.reserved_for}
        owners = {pod.key for each in holders if (pod := snapshot.pod(each.claim.owner_uid or "")) is not None}
        gone = (snapshot.pod(uid) for pod in nominated for uid in pod.kept.victims)
        own = (*nominated, *(pod for pod in gone if pod is not None))
        claims = {key for pod in own for key in claim_keys(pod)}
        claims |= {each.key for pod in own for each in snapshot.special_claims(pod.uid)}
        return cls(
            frozenset({*(pod.key for pod in own), *users, *owners}), frozenset({*claims, *(c.key for c in holders)})
        )


def is_local(nominated: Iterable[Pod], snapshot: Snapshot) -> bool:
    """Whether what pods get depends on their node alone.

    Quotas of a namespace may withhold optional requests. What a controller says may change at any time.
    """
    found = (snapshot.claims.get(key) for pod in nominated for key in claim_keys(pod))
    claims = [each.claim for each in found if each is not None]
    return not any(each.spec.optional or names_controller(each, snapshot) for each in claims)


Key: TypeAlias = tuple[Topic, Hashable]
"""Of an object or a pool."""


@dataclass(frozen=True, slots=True)
class HeldOnNode:
    """The devices that are held on one node.

    Attributes:
        keys: of what it depends on, by topic: pods, claims and pools.
        pools: that only this node reaches.
        lowest: the lowest priority of a pod for which something is kept there.
        found: what each of these pods gets, one after the other; None: that is found out for each asking pod.
        is_undecided: it was not found out in time.
    """

    keys: frozenset[Key]
    pools: frozenset[PoolId]
    lowest: int
    found: tuple[Allocation, ...] | None
    is_undecided: bool


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

    @property
    def are_undecided(self) -> bool:
        """Whether it was not found out in time what is held on some node."""
        return any(self.nodes[name].is_undecided for name in self.unknown)

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
        """The cluster with what is held on a node now."""
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
    room = Room(frozenset(), snapshot, solver)
    found = _found(pods, pools, room) if is_local(pods, snapshot) else None
    return HeldOnNode(frozenset(keys), pools, min(pod.priority for pod in pods), found, room.is_undecided)


def keys_of_claims(keys: Iterable[ObjectKey]) -> Iterator[Key]:
    """The keys of claims, in the form that `HeldOnNode.keys` has."""
    return ((Topic.CLAIM, key) for key in keys)


def _found(pods: Sequence[Pod], pools: Collection[PoolId], room: Room) -> tuple[Allocation, ...] | None:
    """What each pod gets of what is kept for it; None if that is not known, or does not depend on its node alone."""
    if any(pod.kept.victims or any(each.pool_id not in pools for each in pod.kept.devices) for pod in pods):
        return None
    for pod in room.share(sorted(pods, key=attrgetter("order"))):
        room.hold_kept(pod)
    return None if room.is_undecided else tuple(room.found)


_KEYED: Final = frozenset({Topic.NODE, Topic.POOL, Topic.CLAIM, Topic.POD})
"""Topics whose keys tell which nodes a change concerns."""

_CHANGES: Final = 10_000

_REST: Final = 9
"""What is hard to find out takes a tenth of the time while nothing changes: calls of other namespaces wait for it."""


@dataclass(frozen=True, slots=True)
class WithKept:
    """A cluster, and the same one in which each pod has what is kept for it by name.

    Attributes:
        cluster: as the watch shows it.
        world: the cluster in which that is held. No pod with something kept by name is nominated there: that is done.
        held: what is held.
        decider: remembers verdicts on this world, as the decider of the cluster does on the cluster.
    """

    cluster: Snapshot
    world: Snapshot
    held: HeldNodes
    decider: Decider

    def beside(self, pod: Pod, solver: Solver) -> Snapshot | None:
        """The world as a pod finds it: without what is held for this pod. None if it finds another, or not known."""
        if not finds_kept_held(pod, self.cluster, solver):
            return None
        own = self.cluster.woken.get(pod.uid)
        if own is None:
            return self.world if self.held.are_closed_to(pod) else None
        name = own.nominated_node
        held = self.held.nodes.get(name)
        if held is None or not self.held.are_closed_to(pod, but=name):
            return None
        rest = held_on(name, self.cluster, solver.share(2), but=pod.uid)
        if rest is not None and (rest.found is None or not rest.keys.isdisjoint(keys_of_claims(claim_keys(pod)))):
            return None
        return self.world._replace(usage=held_beside(self.world.usage, self.cluster, held.pools, (rest,)))


def finds_kept_held(pod: Pod, snapshot: Snapshot, solver: Solver) -> bool:
    """Whether `WithKept` may tell what a pod finds: nothing is kept for this pod by name, and no controller decides."""
    if pod.kept.node or not snapshot.kept.users or is_counted(snapshot, solver.features):
        return False
    claims = (snapshot.claims.get(key) for key in claim_keys(pod))
    return not any(each is not None and names_controller(each.claim, snapshot) for each in claims)


def counting_kept_of(snapshot: Snapshot, world: Snapshot) -> Snapshot:
    """A world in whose quotas counts what is kept for the pods of a snapshot. Their devices are held there already."""
    return world._replace(woken=snapshot.woken, kept=KeptIndex(snapshot.kept.unnamed, snapshot.kept.in_namespaces))


def held_beside(usage: Usage, cluster: Snapshot, pools: Collection[PoolId], held: Iterable[HeldOnNode | None]) -> Usage:
    """A usage in which some pools have what the cluster has in use there, and what is held on some nodes."""
    for pool in pools:
        usage = usage.with_pool(pool, cluster.usage.pools.get(pool, NOTHING_USED))
    for allocation in (each for there in held if there for got in there.found or () for each in got.results):
        usage = usage.with_allocation(allocation)
    return usage


class ClusterWithKept:
    """Follows one cluster. Calls may come from several threads; one that would have to wait gets no answer.

    Attributes:
        of_cluster: the decider of the cluster, in which nothing is held.

    Args:
        of_cluster: decides on the cluster.
        timeline: of the cluster.
    """

    def __init__(self, of_cluster: Decider, timeline: Timeline) -> None:
        self.of_cluster = of_cluster
        self._timeline = timeline
        self._lock = Lock()
        self._again = 0.0
        """When to try again what was not found out in time, if nothing changes."""
        self._now = self._begin(EMPTY)

    def world_of(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> tuple[Snapshot, Decider]:
        """The cluster as filter is to see it for a pod, and who remembers verdicts on it. Arguments as for `at`."""
        now = self.at(snapshot, solver) if finds_kept_held(pod, snapshot, solver) else None
        found = None if now is None else now.beside(pod, solver)
        if now is not None and found is not None:
            return found, now.decider
        self.of_cluster.follow(snapshot)
        return snapshot, self.of_cluster

    def at(self, snapshot: Snapshot, solver: Solver) -> WithKept | None:
        """A cluster and what is held in it; None if that is not known, or the cluster is not the newest one.

        Args:
            snapshot: the cluster, no fork.
            solver: the allocator, for as long as there is time.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._follow(snapshot, solver)
        finally:
            self._lock.release()

    def since(self, version: int) -> Reach:
        """What has changed of this world after a version."""
        return self._timeline.since(version) | self._log.since(version)

    def _begin(self, snapshot: Snapshot) -> WithKept:
        """A cluster in which nothing is held yet."""
        self._log = ChangeLog(_CHANGES)
        decider = Decider(self.of_cluster.solver, self, origin=self.of_cluster)
        return WithKept(snapshot, snapshot, HeldNodes(), decider)

    def _follow(self, snapshot: Snapshot, solver: Solver) -> WithKept | None:
        """Move on to a later snapshot; None if it is an earlier one."""
        before, began = self._now, solver.clock()
        if snapshot.version < before.cluster.version:
            return None
        if snapshot.version == before.cluster.version and not (before.held.are_undecided and began >= self._again):
            return before  # answers of controllers, which count for other pods only, may differ
        reach = self._timeline.since(before.cluster.version)
        pools = {*(reach.keys(Topic.POOL) or ())}
        if reach.changed is None:
            self.of_cluster.follow(snapshot)  # its node views are those of this world, but for a few
            before = self._begin(snapshot)
            self._now = replace(before, cluster=EMPTY)  # until what is held is known, too
            names: Collection[str] = snapshot.nominated.keys()
        else:
            names = _concerned(before, reach, snapshot)
        solver = solver.share(2)
        # Nothing else changes before this is known: an error leaves the world as it was.
        there = {name: held_on(name, snapshot, solver) for name in names}
        now, held = {name: each for name, each in there.items() if each is not None}, before.held
        changed = [*now.values(), *(held.nodes[name] for name in names if name in held.nodes)]
        for name in names:
            held = held.put(name, there[name])
        own = {pool for each in changed for pool in each.pools}
        if snapshot.version > before.cluster.version:
            self._log.add(snapshot.version, ((Topic.POOL, pool) for pool in own))
        nominated: Map[str, Map[str, None]] = Map()
        for uid in snapshot.kept.unnamed:
            nominated = with_uid(nominated, snapshot.pods[snapshot.pod_keys[uid]].nominated_node, uid)
        usage = held_beside(before.world.usage, snapshot, pools | own, now.values())
        world = counting_kept_of(snapshot, snapshot._replace(usage=usage, nominated=nominated))
        if not held.unknown:
            # A world with unknown nodes gives no verdicts. Once they are known, the world has the same version.
            before.decider.follow(world)
        self._now = WithKept(snapshot, world, held, before.decider)
        ended = solver.clock()
        self._again = ended + _REST * (ended - began)
        return self._now


def _concerned(before: WithKept, reach: Reach, snapshot: Snapshot) -> Collection[str]:
    """The nodes where something else may be held now."""
    held = before.held
    if any(topic.alters_kept and topic not in _KEYED for topic in reach.changed or ()):
        return {*held.nodes, *snapshot.nominated}
    own = reach.keys(Topic.POD) or ()
    pods = [each.nominee(each.pods[key]) for key in own for each in (before.cluster, snapshot) if key in each.pods]
    names = {name for pod in pods for name in (pod.node_name, pod.nominated_node)}
    names.update(reach.keys(Topic.NODE) or ())
    # What could not be found out in time is tried again.
    near = {name for name in names if name in held.nodes or name in snapshot.nominated}
    return held.concerned_by(reach.among(_KEYED).pairs()) | near
