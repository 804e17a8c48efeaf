"""The cluster as the watches show it, with assumed allocations. Only the event loop writes; others read snapshots."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Final, Protocol

from immutables import Map

from allocator import AllocationResult, ClaimSpec
from allocator.tools import Recent
from extender.cluster.indexes import (
    NO_SPEC,
    AssumedAllocation,
    AssumedNomination,
    ControllerAnswer,
    NodeRequests,
    PlacedPods,
)
from extender.cluster.kinds import Topic, WatchedKind, all_kinds
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import (
    NOTHING_KEPT,
    GangKey,
    Keeping,
    Pod,
    parse_counted_pod,
    parse_pod,
    parse_whole_pod,
)
from extender.cluster.resources import Amounts
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.snapshot_edit import Relist, SnapshotEdit, read
from extender.cluster.timeline import ChangeLog, Reach
from extender.kube.api import Event, EventType, ObjectKey, RawObject, Version, key_of, revision, version_of
from extender.kube.plain_pods import PlainPod
from extender.kube.resources import CLAIMS, POD_GROUPS, PODS, RESOURCES, Resource
from extender.tools.faults import RefusedError

NOT_SYNCED: Final = "not synced yet"

_MOST_WRITES: Final = 2000
"""Claims in the mutation cache, which the watch has not shown yet."""


class Sink(Protocol):
    """Takes in events and lists of a cluster."""

    def apply(self, event: Event) -> None:
        """Take in an event."""
        ...

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in all objects of a kind, as of a revision; False if the list is too old."""
        ...


class ClusterState:
    """Applies events, counts versions, logs changes, and holds assumed allocations.

    Objects that cannot be read count as absent, and are noted in the snapshot's ``problems``.

    Attributes:
        reads_all_pods: whether pods without devices are read in full, too: more than their CPU is counted.

    Args:
        log_size: changes to keep.
        counts_cpu: whether snapshots have the CPU that pods with devices request.
        cpu_of_all_pods: whether they have the CPU of pods without devices, too.
        counts_resources: whether snapshots have all that pods request of the resources that devices may take.
        has_group_claims: whether claims may be reserved for PodGroups.
        has_whole_pods: whether snapshots have all pods with all that kube-scheduler's default filters read, except
            volumes. They take much more memory.
    """

    def __init__(
        self,
        *,
        log_size: int = 20_000,
        counts_cpu: bool = False,
        cpu_of_all_pods: bool = False,
        counts_resources: bool = False,
        has_group_claims: bool = False,
        has_whole_pods: bool = False,
    ) -> None:
        self.reads_all_pods = counts_resources or has_whole_pods
        self._snapshot = EMPTY._replace(
            requested=Map() if counts_cpu else None,
            others=Map() if counts_cpu and cpu_of_all_pods else None,
            node_requests=NodeRequests() if counts_resources else None,
            has_group_claims=has_group_claims,
            placed=PlacedPods() if has_whole_pods else None,
        )
        read_pod = parse_whole_pod if has_whole_pods else parse_pod if counts_resources else parse_counted_pod
        self._kinds: Mapping[str, WatchedKind[Any]] = all_kinds(read_pod)
        self._log = ChangeLog(log_size)
        self._doubts = dict.fromkeys(RESOURCES, NOT_SYNCED)
        self._seen = dict.fromkeys(RESOURCES, 0)
        self._versions: dict[str, dict[ObjectKey, Version]] = {kind: {} for kind in RESOURCES}
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._mutation_cache: Recent[ClaimObject] = Recent(_MOST_WRITES)

    def copy(self) -> "ClusterState":
        """A state of its own that knows the same. It follows nothing until it is told."""
        made = copy(self)
        made._log, made._doubts, made._seen = self._log.copy(), dict(self._doubts), dict(self._seen)
        made._versions = {kind: dict(versions) for kind, versions in self._versions.items()}
        made._waiting, made._listeners, made._mutation_cache = {}, [], Recent(_MOST_WRITES)
        return made

    # --- reading --------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as it is known now."""
        return self._snapshot

    @property
    def not_ready(self) -> str:
        """Why pods with devices cannot be decided: a kind that they need is in doubt. Empty if they can be decided.

        The text names no kinds, so that it stays the same while one kind after the other is synced: a reason that
        changes makes a scheduler try again. `doubt_of` has the kinds.
        """
        doubts = {doubt for kind, doubt in self._doubts.items() if not RESOURCES[kind].is_aside} if self._doubts else ()
        return ", ".join(sorted(doubts))

    def known(self) -> Snapshot:
        """The cluster as it is known now, to decide about pods with devices.

        Raises:
            RefusedError: it is not known well enough.
        """
        if self.not_ready:
            raise RefusedError(f"not ready: {self.not_ready}")
        return self._snapshot

    def doubt_of(self, resource: Resource) -> str:
        """Why a kind is in doubt; empty if it is not."""
        return self._doubts.get(resource.kind, "")

    def count(self, resource: Resource) -> int:
        """The number of objects of a kind; pods without devices are not kept."""
        return self._kinds[resource.kind].count(self._snapshot)

    def since(self, version: int) -> Reach:
        """What has changed after a version."""
        return self._log.since(version)

    def seen(self, resource: Resource) -> int:
        """The revision up to which all changes of a kind are known."""
        return self._seen[resource.kind]

    def is_made_up(self, pod: Pod) -> bool:
        """Whether the cluster does not have a pod with devices.

        A pod that the watch has not shown yet is newer than everything that the watch has shown.
        """
        return self.snapshot.pod(pod.uid) is None and revision(pod.resource_version) <= self._seen[PODS.kind]

    def pending_pod(self, uid: str, version: str) -> Pod | None:
        """The pending pod with devices of that uid, if it is known in this version."""
        found = self._snapshot.pod(uid)
        return found if found is not None and found.resource_version == version and found.is_pending else None

    def still_waits(self, pod: Pod) -> bool:
        """Whether a pod with devices waits for a node, or the watch has not shown it yet."""
        known = self.snapshot.pod(pod.uid)
        return not self.is_made_up(pod) if known is None else known.is_pending

    def has_claim(self, uid: str) -> bool:
        """Whether there is a claim of a uid that is not being deleted. Threads may ask."""
        found = self.snapshot.claim(uid)
        return found is not None and not found.claim.deleting

    @contextmanager
    def telling(self, listener: Callable[[], None]) -> Iterator[None]:
        """Within the context, a listener is called after each new version, answer of a controller, and doubt."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    async def passed(self, resource: Resource, at: int) -> None:
        """Wait until all changes of a kind up to a revision are known. The caller sets a deadline."""
        if self._seen[resource.kind] >= at:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = (resource.kind, at)
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    # --- what the watches tell --------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Take in an event, unless a later state of its object is known."""
        kind, versions = self._kinds[event.resource.kind], self._versions[event.resource.kind]
        key, version = event.key, event.version
        if version is not None and version.is_before(versions.get(key)):
            return
        edit = SnapshotEdit(self._snapshot)
        versions.pop(key, None)
        if event.type is EventType.DELETED:
            edit.drop(kind, key)
        else:
            value = self._mutation_cache.forget(version) or event.value or read(kind, event.object)
            edit.put(kind, key, value, listed=False)
            if version is not None:
                versions[key] = version
        if event.resource == POD_GROUPS:
            edit.rank_members([GangKey(*key, is_pod_group=True)])
        self._commit(edit)
        if self._snapshot.keeping and event.resource == PODS:
            self._end_shown_nomination(event.object["metadata"].get("uid", ""))
        self.bookmark(event.resource, event.revision)

    def count_pod(self, pod: PlainPod) -> None:
        """Take in an event of a pod that uses no devices."""
        self._versions[PODS.kind].pop(pod.key, None)
        edit = SnapshotEdit(self._snapshot)
        edit.count_pod(self._kinds[PODS.kind], pod)
        self._commit(edit)
        self.bookmark(PODS, pod.revision)

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """Take in a list of all objects of a kind; the kind is synced then. False if the list is too old."""
        relist = self.relist(resource)
        for obj in objects:
            relist.add(key_of(obj), obj)
        return self.take(relist, at)

    def relist(self, resource: Resource) -> Relist:
        """Begin a list that is read step by step and then given to `take`."""
        return Relist(self._kinds[resource.kind], self._versions[resource.kind], self._snapshot)

    def take(self, relist: Relist, at: int) -> bool:
        """Take in a complete list; see `replace`."""
        resource = relist.kind.resource
        if at < self._seen[resource.kind]:
            return False
        edit = SnapshotEdit(self._snapshot)
        woken = self._snapshot.woken
        relist.apply_to(edit)
        self._versions[resource.kind] = dict(relist.versions)
        if resource == CLAIMS:
            self._mutation_cache.forget_all()
        if resource in {PODS, POD_GROUPS}:  # each of the two lists was read beside an earlier state of the other
            edit.rank_members(each for each in edit.snapshot.gangs.members if each.is_pod_group)
        self._commit(edit)
        for uid in {*woken, *self._snapshot.woken}:  # the list may have brought back those of its beginning
            self.keep_for(uid, woken[uid].kept if uid in woken else NOTHING_KEPT)
        for uid in self._snapshot.keeping:
            self._end_shown_nomination(uid)
        self.trust(resource)
        self.bookmark(resource, at)
        return True

    def bookmark(self, resource: Resource, at: int) -> None:
        """Note that all changes of a kind up to a revision are known."""
        self._seen[resource.kind] = max(at, self._seen[resource.kind])
        if resource.kind == CLAIMS.kind:
            self._end_assumptions_of_missing_claims()
        for future, (kind, wanted) in list(self._waiting.items()):
            if kind == resource.kind and wanted <= at and not future.done():
                future.set_result(None)

    def doubt(self, resource: Resource, reason: str) -> None:
        """Put a kind in doubt: its watch has been silent for too long."""
        self._doubts[resource.kind] = reason
        self._tell()

    def trust(self, resource: Resource) -> None:
        """End the doubt about a kind."""
        self._doubts.pop(resource.kind, None)
        self._tell()

    # --- what we have decided, and written --------------------------------------------------------------------

    def answered(self, obj: RawObject) -> ClaimObject:
        """The claim in an answer of the API server; it becomes part of the snapshot when the watch shows it.

        Raises:
            InvalidObjectError: all problems of the claim.
        """
        version = version_of(obj)
        known = self._snapshot.claims.get(key_of(obj))
        if known is not None and version is not None and self._versions[CLAIMS.kind].get(known.key) == version:
            return known
        claim: ClaimObject = self._kinds[CLAIMS.kind].parse(obj)
        if version is not None and claim.revision > self._seen[CLAIMS.kind]:
            self._mutation_cache.keep(version, claim)
        return claim

    def assume(self, claim_uid: str, allocation: AllocationResult, pod_uid: str, spec: ClaimSpec = NO_SPEC) -> None:
        """Assume an allocation that will be written for a claim of this spec; the next snapshot has it."""
        self._hold(AssumedAllocation(claim_uid, pod_uid, allocation, spec=spec))

    def settle(self, claim_uid: str, at: int) -> None:
        """Set the revision of the claim from which on the watch shows the outcome of the write.

        After a success, this is the revision of the write. If the outcome is unknown, it is any revision after the one
        that the write demands: once the watch shows such a revision, our write has happened or will be refused.
        """
        assumed_allocation = self._snapshot.assumed.get(claim_uid)
        if assumed_allocation is not None:
            self._hold(replace(assumed_allocation, ends_at=at))

    def forget(self, claim_uid: str) -> None:
        """Drop an assumed allocation that is not written and never will be."""
        before, after = self._snapshot, self._snapshot.without_assumed(claim_uid)
        self._commit_assumed(before, after, claim_uid)

    def assume_kept(self, pods: Iterable[Pod]) -> None:
        """Assume that pods will be nominated as they are here: what is kept for them counts in quotas at once."""
        keeping = self._snapshot.keeping
        for uid, each in keeping.items():
            if not each.counts(self._snapshot.pod(uid)):
                keeping = keeping.delete(uid)
        for pod in pods:
            keeping = keeping.set(pod.uid, AssumedNomination(pod))
        self._snapshot = self._snapshot._replace(keeping=keeping)

    def settle_kept(self, pod: Pod) -> None:
        """Note that the nomination is written; ``pod`` is in the version that the write has replaced."""
        known = self._snapshot.keeping.get(pod.uid)
        if known is not None:
            settled = replace(known, ends_after=revision(pod.resource_version))
            self._snapshot = self._snapshot._replace(keeping=self._snapshot.keeping.set(pod.uid, settled))

    def forget_kept(self, pod: Pod) -> None:
        """Drop an assumed nomination that is not written. If it is written nevertheless, it counts once it is shown."""
        if pod.uid in self._snapshot.keeping:
            edit = SnapshotEdit(self._snapshot._replace(keeping=self._snapshot.keeping.delete(pod.uid)))
            edit.touch([(Topic.POD, pod.key)])  # other pods of the namespace may be within quota now
            self._commit(edit)

    def _end_shown_nomination(self, uid: str) -> None:
        """Drop an assumed nomination that does not count any more. While there is one, quotas remember less."""
        known = self._snapshot.keeping.get(uid)
        if known is not None and not known.counts(self._snapshot.pod(uid)):
            self._snapshot = self._snapshot._replace(keeping=self._snapshot.keeping.delete(uid))

    def promise(self, pod: Pod, node: str, amounts: Amounts) -> None:
        """Count what a pod that is about to be bound requests of its node (`NodeRequests`)."""
        if (requests := self._snapshot.node_requests) is not None:
            self._snapshot = self._snapshot._replace(node_requests=requests.promising(pod, node, amounts))

    def give_up(self, pod: Pod) -> None:
        """End the promise for a pod that is not bound."""
        if (requests := self._snapshot.node_requests) is not None:
            self._snapshot = self._snapshot._replace(node_requests=requests.without_promise(pod.key, pod.uid))

    def keep_for(self, pod_uid: str, kept: Keeping) -> None:
        """Keep devices for a pod that is woken for them, and nothing else; `NOTHING_KEPT`: no more.

        No other process knows of it. It ends when the pod is bound, gone, or nominated.
        """
        before = self._snapshot
        after = before.with_woken(pod_uid, kept) if kept.node else before.without_woken(pod_uid)
        if after.woken is not before.woken:
            edit = SnapshotEdit(after)
            edit.touch([(Topic.POD, after.pod_keys[pod_uid])])
            self._commit(edit)

    def label_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Note the labels of some namespaces, if whole pods are read. No change of them counts as a version."""
        placed = self._snapshot.placed
        if placed is not None and labels:
            placed = placed._replace(namespaces=placed.namespaces.update(labels))
            self._snapshot = self._snapshot._replace(placed=placed)

    def hear(self, answers: Map[str, ControllerAnswer]) -> None:
        """Replace what controllers have said. Pods that it may help are woken by those who asked."""
        if answers is not self._snapshot.answers:
            self._snapshot = self._snapshot._replace(answers=answers)
            self._tell()

    def _hold(self, assumed_allocation: AssumedAllocation) -> None:
        before, after = self._snapshot, self._snapshot.assuming(assumed_allocation)
        if after.claim(assumed_allocation.claim_uid) is not None:
            after = after.without_ended(assumed_allocation.claim_uid)
        self._commit_assumed(before, after, assumed_allocation.claim_uid)
        self._end_assumptions_of_missing_claims()

    def _end_assumptions_of_missing_claims(self) -> None:
        """A claim that was written, and does not exist at a later revision, is gone."""
        snapshot, seen = self._snapshot, self._seen[CLAIMS.kind]
        for uid, assumed_allocation in snapshot.assumed.items():
            if (
                assumed_allocation.ends_at is not None
                and assumed_allocation.ends_at <= seen
                and snapshot.claim(uid) is None
            ):
                self.forget(uid)

    def _commit_assumed(self, before: Snapshot, after: Snapshot, uid: str) -> None:
        if after is before:
            return
        edit = SnapshotEdit(after)
        edit.touch((Topic.POOL, pool) for pool in after.moved_pools(uid, before))
        key = after.claim_keys.get(uid)
        edit.touch([] if key is None else [(Topic.CLAIM, key)])
        self._commit(edit)

    def _commit(self, edit: SnapshotEdit) -> None:
        if not edit.touched:
            self._snapshot = edit.snapshot
            return
        version = self._snapshot.version + 1
        self._log.add(version, edit.touched)
        self._snapshot = edit.snapshot._replace(version=version)
        self._tell()
