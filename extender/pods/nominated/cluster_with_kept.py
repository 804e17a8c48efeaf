"""The cluster in which each pod has what is kept for it by name, kept up with the cluster change by change.

Most pods find this cluster: they may take nothing of what is kept. `held_for_nominated` makes the same of a snapshot,
at the cost of all kept devices for each pod. Here, a change costs what is kept on the nodes that it concerns.
"""

from collections.abc import Collection, Iterable
from threading import Lock
from typing import Final

from immutables import Map

from allocator import NOTHING_USED, PoolId, Usage
from extender.cluster.consumers import claim_keys
from extender.cluster.indexes import KeptIndex, with_uid
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.timeline import ChangeLog, Reach, Timeline
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.pods.negotiated_claims import names_controller
from extender.pods.node_resources import is_counted
from extender.pods.nominated.held_nodes import HeldNodes, HeldOnNode, held_on

_KEYED: Final = frozenset({Topic.NODE, Topic.POOL, Topic.CLAIM, Topic.POD})
"""Topics whose keys tell which nodes a change concerns."""

_CHANGES: Final = 10_000


class ClusterWithKept:
    """Follows one cluster. Calls may come from several threads; one that would have to wait gets no answer.

    Attributes:
        decider: remembers verdicts on this world, as the decider of the cluster does on the cluster.

    Args:
        decider: of the cluster.
        timeline: of the cluster.
    """

    def __init__(self, decider: Decider, timeline: Timeline) -> None:
        self._of_cluster = decider
        self._timeline = timeline
        self._lock = Lock()
        self._begin(EMPTY)

    def world_of(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> tuple[Snapshot, Decider]:
        """The cluster as filter is to see it for a pod, and who remembers verdicts on it. Arguments as for `beside`."""
        found = self.beside(pod, snapshot, solver)
        if found is not None:
            return found, self.decider
        self._of_cluster.follow(snapshot)
        return snapshot, self._of_cluster

    def beside(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> Snapshot | None:
        """The cluster in which what is kept by name is held, as a pod finds it; None if it finds another, or not known.

        No pod with something kept by name is nominated there: that is done.

        Args:
            pod: the pod that asks.
            snapshot: the cluster, no fork.
            solver: the allocator, for as long as there is time.
        """
        claims = (snapshot.claims.get(key) for key in claim_keys(pod))
        if (
            pod.kept.node
            or pod.uid in snapshot.woken
            or not snapshot.kept.users
            or is_counted(snapshot, solver.features)
            or any(each is not None and names_controller(each.claim, snapshot) for each in claims)
        ):
            return None
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if not self._follow(snapshot, solver):
                return None
            return self._world if self._held.are_closed_to(pod) else None
        finally:
            self._lock.release()

    def since(self, version: int) -> Reach:
        """What has changed of this world after a version."""
        return self._timeline.since(version) | self._log.since(version)

    def _begin(self, snapshot: Snapshot) -> None:
        """Begin with a cluster in which nothing is held."""
        self._seen = self._world = snapshot
        self._held = HeldNodes()
        self._log = ChangeLog(_CHANGES)
        self.decider = Decider(self._of_cluster.solver, self, origin=self._of_cluster)

    def _follow(self, snapshot: Snapshot, solver: Solver) -> bool:
        """Move on to a later snapshot; False if it is an earlier one."""
        if (
            snapshot.version == self._seen.version
        ):  # answers of controllers, which count for other pods only, may differ
            return True
        if snapshot.version < self._seen.version:
            return False
        reach = self._timeline.since(self._seen.version)
        pools = {*(reach.keys(Topic.POOL) or ())}
        if reach.changed is None:
            self._of_cluster.follow(snapshot)  # its node views are those of this world, but for a few
            self._begin(snapshot)
            self._seen = EMPTY  # until what is held is known, too
            names: Collection[str] = snapshot.nominated.keys()
        else:
            names = self._concerned(reach, snapshot)
        solver = solver.share(2)
        # Nothing else changes before this is known: an error leaves the world as it was.
        now = {name: held_on(name, snapshot, solver) for name in names}
        before = [self._held.put(name, held) for name, held in now.items()]
        changed = [held for held in (*before, *now.values()) if held is not None]
        own = {pool for held in changed for pool in held.pools}
        self._log.add(snapshot.version, ((Topic.POOL, pool) for pool in own))
        nominated: Map[str, Map[str, None]] = Map()
        for uid in snapshot.kept.unnamed:
            nominated = with_uid(nominated, snapshot.pods[snapshot.pod_keys[uid]].nominated_node, uid)
        usage = self._usage(snapshot, pools | own, now.values())
        kept = KeptIndex(snapshot.kept.unnamed, snapshot.kept.in_namespaces)  # it still counts in quotas
        self._world = snapshot._replace(usage=usage, nominated=nominated, kept=kept)
        self._seen = snapshot
        self.decider.follow(self._world)
        return True

    def _concerned(self, reach: Reach, snapshot: Snapshot) -> Collection[str]:
        """The nodes where something else may be held now."""
        if any(topic.alters_kept and topic not in _KEYED for topic in reach.changed or ()):
            return {*self._held.names, *snapshot.nominated}
        own = reach.keys(Topic.POD) or ()
        pods = [each.nominee(each.pods[key]) for key in own for each in (self._seen, snapshot) if key in each.pods]
        names = {name for pod in pods for name in (pod.node_name, pod.nominated_node)}
        names.update(reach.keys(Topic.NODE) or ())
        # What could not be found out in time is tried again.
        near = {name for name in names if name in self._held or name in snapshot.nominated}
        return self._held.depending(reach.among(_KEYED).pairs()) | near

    def _usage(self, snapshot: Snapshot, pools: Collection[PoolId], now: Iterable[HeldOnNode | None]) -> Usage:
        """What is in use in this world: as before, but in some pools, where only what has changed is held."""
        found, cluster = self._world.usage.pools, snapshot.usage.pools
        for pool in pools:
            used = cluster.get(pool, NOTHING_USED)
            found = found.set(pool, used) if used else found.delete(pool) if pool in found else found
        usage = Usage(found)
        for allocation in (each for held in now if held for got in held.found or () for each in got.results):
            usage = usage.with_allocation(allocation)
        return usage
