"""Puts objects into a snapshot or drops them, one by one or as a whole list of a kind, and records what changed.

It also says since which revision a claim has its allocation. A list of all objects of a kind is read step by step, and
shown when it is complete.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from immutables import Map, MapMutation

from allocator import InvalidObjectError
from extender.cluster.indexes import counted_cpu
from extender.cluster.kinds import Topic, WatchedKind
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.resources import cpu_request
from extender.cluster.snapshot import Snapshot, Unreadable, same_devices
from extender.kube.api import ObjectKey, RawObject, Version, version_of
from extender.kube.plain_pods import PlainPod
from extender.kube.resources import PODS


def dated(new: ClaimObject, old: ClaimObject | None, *, listed: bool) -> ClaimObject:
    """The claim with the revision that brought its allocation; later updates keep that revision.

    Args:
        new: the claim as it is now.
        old: the claim of this name as it was known; it may have another uid.
        listed: the claim comes from a list, so its allocation may be old.
    """
    allocation = new.claim.allocation
    if allocation is None:
        return new
    before = old.claim.allocation if old is not None and old.claim.uid == new.claim.uid else None
    if old is not None and before is not None and same_devices(before, allocation):
        return replace(new, allocated_at=old.allocated_at, listed_at=old.listed_at)
    return replace(new, listed_at=new.revision) if listed else replace(new, allocated_at=new.revision)


_LONGEST_TEXT: Final = 1000
"""Most characters of an unexpected error's text."""


def read(kind: WatchedKind[Any], obj: RawObject) -> object:
    """The object as a value of its kind, or as `Unreadable`."""
    try:
        value: object = kind.parse(obj)
    except InvalidObjectError as error:
        return Unreadable(error.summary)
    except Exception as error:  # noqa: BLE001 - one object must not keep all others of its kind from being known
        return Unreadable(f"{type(error).__name__}: {error}"[:_LONGEST_TEXT])
    return value


@dataclass(slots=True)
class SnapshotEdit:
    """A snapshot that is being changed, and what was changed."""

    snapshot: Snapshot
    touched: dict[tuple[Topic, Hashable], None] = field(default_factory=dict)

    def touch(self, what: Iterable[tuple[Topic, Hashable]]) -> None:
        """Record changes."""
        self.touched.update(dict.fromkeys(what))

    def take_over(self, kind: WatchedKind[Any], other: "SnapshotEdit") -> None:
        """Take a kind's objects from another edit, which began with the same objects of that kind."""
        now = kind.taken(self.snapshot, other.snapshot)
        # Pods and claims are taken over one after the other, and which kept devices are contested depends on both.
        self.snapshot = now._replace(kept=now.kept.seen(now.kept.users, now.usage))
        for of, key in (*self.snapshot.problems, *other.snapshot.problems):
            if of == kind.resource.kind:
                problem = other.snapshot.problems.get((of, key))
                self.snapshot = self.snapshot.without_problem(of, key)
                self.snapshot = self.snapshot if problem is None else self.snapshot.with_problem(of, key, problem)
        self.touch(other.touched)

    def put(self, kind: WatchedKind[Any], key: ObjectKey, new: object, *, listed: bool) -> None:
        """Put an object, which `read` has returned; ``listed``: it comes from a list, so its state may be old."""
        old = kind.find(self.snapshot, key)
        if isinstance(new, Unreadable):
            self.drop(kind, key)
            self.snapshot = self.snapshot.with_problem(kind.resource.kind, key, new)
            self.touch(kind.touched(key, old, None))
            return
        if isinstance(new, ClaimObject):
            new = dated(new, old, listed=listed)
        elif isinstance(new, Pod):
            new = self.snapshot.with_rank(new)
        elsewhere = _key_of_uid(self.snapshot, new)
        if elsewhere is not None and elsewhere != key:
            self.drop(kind, elsewhere)
        before = self.snapshot
        self.snapshot = kind.put(before.without_problem(kind.resource.kind, key), key, new)
        if old != new:
            self.touch(kind.touched(key, old, new))
        self._follow(before, key, old, new)

    def drop(self, kind: WatchedKind[Any], key: ObjectKey) -> None:
        """Drop an object, if it exists."""
        before, old = self.snapshot, kind.find(self.snapshot, key)
        self.snapshot = kind.drop(before.without_problem(kind.resource.kind, key), key)
        if old is not None:
            self.touch(kind.touched(key, old, None))
        self._follow(before, key, old, None)

    def rank_members(self, groups: Iterable[GangKey]) -> None:
        """After changes of PodGroups: their pods with devices get their priorities."""
        for uid in (uid for group in groups for uid in self.snapshot.gangs.members.get(group, ())):
            pod = self.snapshot.pod(uid)
            if pod is not None and (ranked := self.snapshot.with_rank(pod)) is not pod:
                self.snapshot = self.snapshot.with_pod(ranked)
                self.touch([(Topic.POD, pod.key)])

    def count_pod(self, kind: WatchedKind[Any], pod: PlainPod) -> None:
        """Count a pod without devices; ``kind``: that of pods."""
        before, key = self.snapshot, pod.key
        if key in before.pods or key in before.gangs.places or (kind.resource.kind, key) in before.problems:
            self.drop(kind, key)
        self.snapshot = self.snapshot.with_counted(key, _counted(pod, before))
        self._follow_cpu(before, key)

    def _follow(self, before: Snapshot, key: ObjectKey, old: object, new: object) -> None:
        """After an event of an object: record what else has changed with it."""
        if isinstance(old, ClaimObject) or isinstance(new, ClaimObject):
            self._follow_claim(before, old, new)
        elif before.requested is not self.snapshot.requested:
            self._follow_cpu(before, key)

    def _follow_cpu(self, before: Snapshot, key: ObjectKey) -> None:
        """After an event of a pod: record the nodes whose pods request more or less CPU."""
        old, new = before.requested, self.snapshot.requested
        if old is not None and new is not None and old is not new:
            nodes = {each.node_of(key) for each in (before, self.snapshot)}
            self.touch((Topic.CPU, node) for node in nodes if old.get(node) != new.get(node))

    def touch_cpu(self, before: Map[str, int] | None) -> None:
        """After a list of pods: record the nodes whose pods request more or less CPU than before."""
        after = self.snapshot.requested
        if before is not None and after is not None:
            self.touch((Topic.CPU, node) for node in {*before, *after} if before.get(node) != after.get(node))

    def _follow_claim(self, before: Snapshot, old: object, new: object) -> None:
        """After an event of a claim: end its assumed allocation, and record the pools whose use has changed."""
        for uid in {each.claim.uid for each in (old, new) if isinstance(each, ClaimObject)}:
            self.snapshot = self.snapshot.without_ended(uid)
            if self.snapshot.usage is not before.usage:
                self.touch((Topic.POOL, pool) for pool in self.snapshot.moved_pools(uid, before))


def _counted(pod: PlainPod, snapshot: Snapshot) -> tuple[str, int] | None:
    """What a snapshot counts of a pod without devices."""
    if snapshot.others is None or pod.is_over or not pod.node_name:
        return None
    return counted_cpu(pod.node_name, cpu_request(pod.spec), is_finished=False)


def _key_of_uid(snapshot: Snapshot, new: object) -> ObjectKey | None:
    """The known key of the object's uid. Objects keep their names: if the key differs, the known object is gone."""
    if isinstance(new, ClaimObject):
        return snapshot.claim_keys.get(new.claim.uid)
    return snapshot.pod_keys.get(new.uid) if isinstance(new, Pod) else None


@dataclass(slots=True)
class Relist:
    """The objects of a list so far. Objects with a known version are not parsed again.

    New objects are put into a snapshot of the list's own, from which the kind is taken over in the end: that step is
    short, however many objects are new. If the kind has changed meanwhile, all new objects are put again.

    Attributes:
        known: the versions of the known objects.
        before: the snapshot at the start of the list.
    """

    kind: WatchedKind[Any]
    known: Mapping[ObjectKey, Version]
    before: Snapshot
    _same: set[ObjectKey] = field(default_factory=set)
    _new: dict[ObjectKey, tuple[Version | None, object]] = field(default_factory=dict)
    _others: "MapMutation[ObjectKey, tuple[str, int]]" = field(default_factory=Map[ObjectKey, tuple[str, int]]().mutate)
    _ahead: SnapshotEdit = field(init=False)

    def __post_init__(self) -> None:
        self._ahead = SnapshotEdit(self.before.with_all_counted(Map()) if self._counts_others else self.before)

    @property
    def _counts_others(self) -> bool:
        """Whether pods without devices are listed and counted."""
        return self.before.others is not None and self.kind.resource == PODS

    def add(self, key: ObjectKey, obj: RawObject) -> None:
        """Add an object of the list."""
        version = version_of(obj)
        is_same = version is not None and self.known.get(key) == version
        if is_same and self.kind.find(self.before, key) is not None:
            self._same.add(key)
        else:
            value = read(self.kind, obj)
            self._new[key] = version, value
            self._ahead.put(self.kind, key, value, listed=True)

    def count_pod(self, pod: PlainPod) -> None:
        """Add a pod without devices."""
        counted = _counted(pod, self.before)
        if counted is not None:
            self._others[pod.key] = counted

    def apply_to(self, edit: SnapshotEdit) -> None:
        """Make the listed objects the only ones of the kind."""
        requested = edit.snapshot.requested
        if self.kind.is_same(self.before, edit.snapshot):
            edit.take_over(self.kind, self._ahead)
        else:
            if self._counts_others:
                edit.snapshot = edit.snapshot.with_all_counted(Map())
            for key, (_, value) in self._new.items():
                edit.put(self.kind, key, value, listed=True)
        unreadable = [key for of, key in edit.snapshot.problems if of == self.kind.resource.kind]
        for key in {*self.kind.keys(edit.snapshot), *unreadable} - self._same - self._new.keys():
            edit.drop(self.kind, key)
        if self._counts_others:
            self._others.update(edit.snapshot.others or {})
            edit.snapshot = edit.snapshot.with_all_counted(self._others.finish())
            edit.touch_cpu(requested)

    @property
    def versions(self) -> Iterable[tuple[ObjectKey, Version]]:
        """The versions of the listed objects."""
        # With the keys that are known, not the equal ones of the list: otherwise each name would be in memory twice.
        yield from ((key, version) for key, version in self.known.items() if key in self._same)
        yield from ((key, version) for key, (version, _) in self._new.items() if version is not None)
