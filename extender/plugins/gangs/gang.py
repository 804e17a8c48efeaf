"""Gangs: pods that get devices all or none.

Devices are kept for the pods of a gang (`extender.cluster.objects.pods.Keeping`). No pod of the gang may be
bound before the pods that have a node or kept devices are as many as the gang's size. So the conditions of the pods are
the state of a gang: every replica, and a process that starts, reads it from there. `gangs` is the table for people.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from operator import attrgetter
from typing import Final

from immutables import Map

from allocator import DeviceId, Reason
from allocator.reason import Cause
from allocator.tools import Printable, printable
from allocator.usage import FREE
from extender.cluster.consumers import claim_keys
from extender.cluster.indexes import Stage, is_live
from extender.cluster.objects.pod_groups import PodGroup
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, GangKey, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.plugin import Refusal
from extender.kube.api import ObjectKey
from extender.kube.resources import POD_GROUPS
from extender.tools.table import Item, Row, TableView, matches

GANG: Final = "gang"
"""The name of the plugin that refuses pods because of their gangs."""

_WRONG: Final = Cause("group-wrong", "{detail}")
_NO_GROUP: Final = Cause("group-missing", "PodGroup {detail}")
_AWAITS_PODS: Final = Cause("group-awaits-pods", "waiting for the pods of group {detail}")
_AWAITS_DEVICES: Final = Cause("group-awaits-devices", "waiting for devices for {detail}")


@dataclass(frozen=True)
class Gang:
    """A gang in a snapshot.

    Attributes:
        members: its pods, the most important first, then the oldest. Pods that terminate, are finished, or have a
            scheduling gate of others are left out: no scheduler can bind them.
        size: the number of pods with devices that get them together. Pods of a PodGroup without devices count for its
            ``minCount``, and are taken off here.
        topology: the label or attribute whose value is the same for the gang, if possible; empty: none.
        problem: why the gang gets no devices, whatever is free; empty if there is no reason.
    """

    key: GangKey
    members: tuple[Pod, ...]
    size: int
    topology: str
    problem: str
    _snapshot: Snapshot

    @cached_property
    def bound(self) -> tuple[Pod, ...]:
        """The members that have a node."""
        return tuple(pod for pod in self.members if pod.node_name)

    @cached_property
    def kept(self) -> tuple[Pod, ...]:
        """The pending members for which a node is kept."""
        return tuple(pod for pod in self.members if pod.kept.node and not pod.node_name)

    @cached_property
    def free(self) -> tuple[Pod, ...]:
        """The pending members for which nothing is kept."""
        return tuple(pod for pod in self.members if not (pod.node_name or pod.kept.node))

    @property
    def is_placed(self) -> bool:
        """Whether as many members as the size have a node."""
        return len(self.bound) >= self.size

    @property
    def has_enough(self) -> bool:
        """Whether as many members as the size have a node, or a node is kept for them."""
        return len(self.bound) + len(self.kept) >= self.size

    @cached_property
    def succeeded(self) -> int:
        """The number of its pods that are there and have succeeded: nobody waits for them any more."""
        pods = map(self._snapshot.pod, self._snapshot.gangs.members.get(self.key, ()))
        return sum(pod is not None and pod.phase == "Succeeded" for pod in pods)

    @property
    def runs_in_part(self) -> bool:
        """Whether some members have a node, and too few: one of them has gone, or the others get no devices."""
        is_part = bool(self.bound) and not self.has_enough and not self.problem
        return is_part and len(self.bound) + self.succeeded < self.size

    @cached_property
    def lost(self) -> tuple[Pod, ...]:
        """The members that can't get what is kept for them any more."""
        return lost_members(self.key, self._snapshot)

    @property
    def is_ready(self) -> bool:
        """Whether the members for which a node is kept may be bound."""
        return not self.problem and self.has_enough and not self.lost

    @property
    def priority(self) -> int:
        """The priority of its PodGroup, or else of its most important member."""
        group = self._snapshot.objects(PodGroup).get(ObjectKey(self.key.namespace, self.key.name))
        of_group = group.priority if self.key.is_pod_group and group is not None else None
        return self.members[0].priority if of_group is None else of_group

    @property
    def order(self) -> tuple[int, bool, str, GangKey]:
        """Gangs are planned in this order: by priority, those with bound members first, then by age."""
        return -self.priority, not self.bound, min(pod.created for pod in self.members), self.key

    def __str__(self) -> str:
        return str(self.key)


def gang_at(key: GangKey, snapshot: Snapshot) -> Gang | None:
    """The gang of that name; None if it has no members, or if it is a PodGroup whose pods need not run together."""
    group = None
    if key.is_pod_group:
        group = snapshot.objects(PodGroup).get(ObjectKey(key.namespace, key.name))
        if group is None or not group.size:
            return None
    pods = (pod for uid in snapshot.gangs.members.get(key, ()) if (pod := snapshot.pod(uid)) is not None)
    members = tuple(sorted((pod for pod in pods if is_live(pod)), key=attrgetter("order")))
    if not members:
        return None
    if group is not None:
        return Gang(key, members, _size_of_group(group, key, snapshot), group.topology, "", snapshot)
    said = [pod.gang for pod in members if pod.gang is not None]
    return Gang(key, members, said[0].size, said[0].topology, _problem(members), snapshot)


def gangs_in_part(snapshot: Snapshot) -> Iterator[Gang]:
    """The gangs that run in part. Looks at the pods of no other gang."""
    for key, parts in snapshot.gangs.numbers.items():
        stages = _stages(key, snapshot)
        if not stages[Stage.BOUND]:
            continue
        size = next(iter(parts)).said.size
        if key.is_pod_group:
            group = snapshot.objects(PodGroup).get(ObjectKey(key.namespace, key.name))
            size = 0 if group is None else _size_of_group(group, key, snapshot)
        if stages[Stage.BOUND] + stages[Stage.KEPT] < size and (gang := gang_at(key, snapshot)) and gang.runs_in_part:
            yield gang


def in_part_words(gang: Gang) -> Printable:
    """What is to be said of a gang that runs in part."""
    waiting = len(gang.free) + len(gang.kept)
    more = {0: "no pod of the group waits for the rest", 1: "1 more pod waits"}.get(
        waiting, f"{waiting} more pods wait"
    )
    have = f"{len(gang.bound)} of {gang.size} pods have a node, and keep it with their devices"
    return printable(f"group {gang.key.name} runs in part: {have}; {more}")


def is_alone(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a pod gets devices by itself: it is in no gang, or the policy of its PodGroup is ``basic``."""
    if pod.gang is None or not pod.gang.is_pod_group:
        return pod.gang is None
    group = snapshot.objects(PodGroup).get(ObjectKey(pod.namespace, pod.gang.name))
    return group is not None and not group.size


def gang_refusal(pod: Pod, snapshot: Snapshot) -> Reason | None:
    """Why a pod may not be bound now because of its gang; None if it may."""
    key = pod.gang_key
    if pod.gang is None or key is None:
        return None
    if pod.gang.problem:
        return Reason(_WRONG, detail=pod.gang.problem)
    size = pod.gang.size
    if key.is_pod_group:
        found = snapshot.objects(PodGroup).get(ObjectKey(key.namespace, key.name))
        if found is None:
            problem = snapshot.problems.get((POD_GROUPS.kind, ObjectKey(key.namespace, key.name)))
            why = f"can't be read: {problem}" if problem else "does not exist"
            return Reason(_NO_GROUP, detail=f"{key.name} {why}")
        if not found.size:
            return None
        size = _size_of_group(found, key, snapshot)
    members = snapshot.gangs.numbers.get(key, Map())
    said = {part.said for part in members}
    if (len(said) > 1 or any(each.problem for each in said)) and (gang := gang_at(key, snapshot)) and gang.problem:
        return Reason(_WRONG, detail=gang.problem)
    if members and _may_run(key, pod, size if key.is_pod_group else next(iter(said)).size, snapshot):
        return None
    there = sum(members.values())
    if there < size:
        return Reason(_AWAITS_PODS, detail=f"{key.name}: {there} of {size} are there")
    bound = _stages(key, snapshot)[Stage.BOUND]
    whom = f"{size - bound} of the {size} pods of group {key.name}: {bound} have a node"
    return Reason(_AWAITS_DEVICES, detail=whom if bound else f"{size} pods of group {key.name} together")


def awaits_devices(reason: Reason) -> bool:
    """Whether a refusal by `gang_refusal` says that the pods are there, and devices for them are not."""
    return reason.cause is _AWAITS_DEVICES


def _size_of_group(group: PodGroup, key: GangKey, snapshot: Snapshot) -> int:
    """The number of pods of a PodGroup that get devices together: ``minCount`` counts those without devices, too."""
    return group.size - len(snapshot.gangs.companions.get(key, ()))


def _stages(key: GangKey, snapshot: Snapshot) -> dict[Stage, int]:
    """The number of members of a gang by stage. Looks at no member."""
    numbers = dict.fromkeys(Stage, 0)
    for part, number in snapshot.gangs.numbers.get(key, Map()).items():
        numbers[part.stage] += number
    return numbers


def _may_run(key: GangKey, pod: Pod, size: int, snapshot: Snapshot) -> bool:
    """Whether a gang without problems is placed, or ready with something kept for the pod. Looks at no other member."""
    numbers = _stages(key, snapshot)
    if numbers[Stage.BOUND] >= size:
        return True
    return (
        bool(pod.kept.node) and numbers[Stage.BOUND] + numbers[Stage.KEPT] >= size and not lost_members(key, snapshot)
    )


def _problem(members: Iterable[Pod]) -> str:
    """Why pods with annotations can't get devices together; empty if they can."""
    said = [(pod.name, pod.gang) for pod in members if pod.gang is not None]
    for name, membership in said:
        if membership.problem:
            return f"pod {name} of the group: {membership.problem}"
    sizes = sorted({membership.size for _, membership in said})
    if len(sizes) < 2:
        return ""
    text = f"annotation {GROUP_SIZE}: the pods with the same {GROUP} have different sizes: {', '.join(map(str, sizes))}"
    return printable(text)


def lost_members(key: GangKey, snapshot: Snapshot) -> tuple[Pod, ...]:
    """The members of a gang that can't get what is kept for them any more.

    The node is gone, another claim holds a kept device, or the device is kept for an earlier member as well. Looks only
    at members whose node is gone, and at those that others may be in the way of.
    """
    gone = (uid for name, uids in snapshot.nominated.items() if name not in snapshot.nodes for uid in uids)
    found = (pod for uid in {*gone, *snapshot.kept.rivals()} if (pod := snapshot.pod(uid)) is not None)
    members = (pod for pod in found if pod.gang_key == key and pod.kept.node and is_live(pod))
    pods = sorted(members, key=attrgetter("order"))
    twice = _kept_twice(pods, snapshot)
    return tuple(pod for pod in pods if pod.uid in twice or _has_lost(pod, snapshot))


def _has_lost(pod: Pod, snapshot: Snapshot) -> bool:
    is_there = pod.kept.node in snapshot.nodes
    return not is_there or any(_is_taken(device, pod, snapshot) for device in pod.kept.devices)


def _kept_twice(pods: Iterable[Pod], snapshot: Snapshot) -> frozenset[str]:
    """The uids of pods for which a whole device is kept that is kept for an earlier pod with other claims, too.

    Two processes that plan one gang at once write this, each a part of its plan.
    """
    users: dict[DeviceId, frozenset[ObjectKey]] = {}
    found = set()
    for pod in pods:
        own = frozenset(claim_keys(pod))
        for device in pod.kept.devices:
            before = users.get(device)
            if before is not None and before.isdisjoint(own) and not _may_share(pod, device, snapshot):
                found.add(pod.uid)
            users[device] = own if before is None else before | own
    return frozenset(found)


def _may_share(pod: Pod, device: DeviceId, snapshot: Snapshot) -> bool:
    """Whether several claims may have the device, or a claim of the pod has admin access."""
    claims = (snapshot.claims.get(key) for key in claim_keys(pod))
    ways = (way for each in claims if each for request in each.claim.spec.requests for way in request.alternatives)
    pool = snapshot.inventory.pools.get(device.pool_id)
    devices = (each for part in (pool.newest if pool else ()) for each in part.devices)
    return any(way.admin_access for way in ways) or any(
        each.id == device and each.allow_multiple_allocations for each in devices
    )


def _is_taken(device: DeviceId, pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a claim that is not the pod's holds the whole device."""
    if snapshot.usage.device(device) == FREE:
        return False
    own = claim_keys(pod)
    for uid in snapshot.holders.get(device.pool_id, ()):
        claim = snapshot.claim(uid)
        if claim is not None and (claim.key in own or claim.special_of == pod.uid):
            continue
        for held in snapshot.held_by(uid):
            if any(each.device == device and each.share_id is None and not each.admin_access for each in held.results):
                return True
    return False


class GangState(Enum):
    """How far a gang has come."""

    PLACED = "placed"
    """As many members as its size have a node."""
    READY = "ready"
    """A node and devices are kept for the members that have no node: they may be bound."""
    IN_PART = "runs in part"
    WAITS = "waits"
    WRONG = "wrong"
    """The pods contradict each other: they get no devices, whatever is free."""


def state_of_gang(gang: Gang) -> GangState:
    """How far a gang has come."""
    if gang.problem:
        return GangState.WRONG
    if gang.is_placed:
        return GangState.PLACED
    if gang.is_ready:
        return GangState.READY
    return GangState.IN_PART if gang.runs_in_part else GangState.WAITS


def gangs(snapshot: Snapshot, *, namespace: str = "", state: str = "") -> TableView:
    """The table of gangs with members, of one namespace or in one state, with what pods without a node wait for."""
    columns = ("namespace", "gang", "kind", "state", "size", "pods", "bound", "kept", "priority", "why")

    def rows() -> Iterator[Row]:
        for key in sorted(key for key in snapshot.gangs.members if matches(namespace, key.namespace)):
            gang = gang_at(key, snapshot)
            if gang is not None and matches(state, state_of_gang(gang).value):
                yield Row((key.namespace, key.name, str(key.is_pod_group)), partial(_item, gang, snapshot))

    return TableView(columns, rows())


def _item(gang: Gang, snapshot: Snapshot) -> Item:
    return {
        "namespace": gang.key.namespace,
        "gang": gang.key.name,
        "kind": "PodGroup" if gang.key.is_pod_group else "annotations",
        "state": state_of_gang(gang).value,
        "size": gang.size,
        "pods": len(gang.members),
        "bound": len(gang.bound),
        "kept": len(gang.kept),
        "priority": gang.priority,
        "created": min(pod.created for pod in gang.members),
        "waiting": [pod.name for pod in (*gang.kept, *gang.free)],
        "why": _why(gang, snapshot),
    }


def _why(gang: Gang, snapshot: Snapshot) -> str:
    if gang.problem:
        return gang.problem
    if gang.runs_in_part:
        return str(in_part_words(gang))
    refusal = gang_refusal(gang.free[0], snapshot) if gang.free and not gang.is_ready else None
    return "" if refusal is None else str(Refusal(refusal))
