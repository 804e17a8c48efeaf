"""The cluster in which each pod has what is kept for it by name, kept up with the cluster change by change.

Most pods find this cluster: they may take nothing of what is kept. `held_for_nominated` makes the same of a snapshot,
at the cost of all kept devices for each pod. Here, a change costs what is kept on the nodes that it concerns.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from immutables import Map

from allocator import PoolId, Usage
from allocator.usage import NOTHING_USED
from extender.cluster.consumers import claim_keys
from extender.cluster.indexes import KeptIndex, with_uid
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.timeline import ChangeLog, Reach, Timeline
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.nominated.held_nodes import HeldNodes, HeldOnNode, held_on, keys_of_claims
from extender.framework.pods.negotiated_claims import names_controller
from extender.framework.pods.node_resources import is_counted

_KEYED: Final = frozenset({Topic.NODE, Topic.POOL, Topic.CLAIM, Topic.POD})
"""Topics whose keys tell which nodes a change concerns."""

_CHANGES: Final = 10_000


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
        before = self._now
        if snapshot.version == before.cluster.version:
            return before  # answers of controllers, which count for other pods only, may differ
        if snapshot.version < before.cluster.version:
            return None
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
        self._log.add(snapshot.version, ((Topic.POOL, pool) for pool in own))
        nominated: Map[str, Map[str, None]] = Map()
        for uid in snapshot.kept.unnamed:
            nominated = with_uid(nominated, snapshot.pods[snapshot.pod_keys[uid]].nominated_node, uid)
        usage = held_beside(before.world.usage, snapshot, pools | own, now.values())
        kept = KeptIndex(snapshot.kept.unnamed, snapshot.kept.in_namespaces)  # it still counts in quotas
        world = snapshot._replace(usage=usage, nominated=nominated, kept=kept)
        before.decider.follow(world)
        self._now = WithKept(snapshot, world, held, before.decider)
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
