"""Indexes that a snapshot keeps beside the objects, so that questions need no search.

Maps of maps lead from a key to what belongs to it, by uid or name; an empty entry is left out.
"""

import sys
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple, TypeVar

from immutables import Map

from allocator import AllocationResult, ClaimSpec, DeviceId, Reason, Usage
from allocator.tools import Printable
from allocator.usage import FREE
from extender.cluster.objects.pods import GangKey, Membership, Pod
from extender.cluster.resources import NONE, Amounts, added, counted
from extender.kube.api import ObjectKey, revision

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def with_uid(index: Map[_Key, Map[str, None]], key: _Key, uid: str) -> Map[_Key, Map[str, None]]:
    """The index with a uid under a key."""
    return put(index, key, uid, None)


def put(index: Map[_Key, Map[str, _Value]], key: _Key, uid: str, value: _Value) -> Map[_Key, Map[str, _Value]]:
    """The index with a value under a key, by uid or name."""
    return index.set(key, index.get(key, Map()).set(uid, value))


def removed(index: Map[_Key, Map[str, _Value]], key: _Key, uid: str) -> Map[_Key, Map[str, _Value]]:
    """Without a uid or name under a key."""
    rest = index[key].delete(uid)
    return index.set(key, rest) if rest else index.delete(key)


def with_cpu(requested: Map[str, int] | None, node: str, cpu: int) -> Map[str, int] | None:
    """The CPU by node, with that of a pod added on its node; None: it is not counted."""
    if requested is None or not node or not cpu:
        return requested
    total = requested.get(node, 0) + cpu
    return requested.set(node, total) if total else requested.delete(node)


def counted_cpu(node: str, cpu: int, *, is_finished: bool) -> tuple[str, int] | None:
    """What counts of a pod without devices: its node and its CPU; None if it takes nothing of a node."""
    return None if is_finished or not node or not cpu else (sys.intern(node), cpu)


NO_SPEC: Final = ClaimSpec()
"""The spec of a claim that is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class AssumedAllocation:
    """A decided allocation whose write the watch has not shown yet.

    Attributes:
        spec: the spec of the claim. The claim may not exist yet.
        ends_at: revision of the claim from which on the watch shows the outcome of the write; None: not known yet.
    """

    claim_uid: str
    pod_uid: str
    allocation: AllocationResult
    ends_at: int | None = None
    spec: ClaimSpec = NO_SPEC


@dataclass(frozen=True, slots=True, eq=False)
class AssumedNomination:
    """A nomination that was written, before the watch shows it.

    It counts in DeviceQuotas. It is not held from other pods, and it makes no gang ready: the write may fail.

    Attributes:
        pod: as it is once the nomination is written.
        ends_after: revision of the pod that the write has replaced: any later revision shows what came of the write.
            None: the write goes on.
    """

    pod: Pod
    ends_after: int | None = None

    def counts(self, shown: Pod | None) -> bool:
        """Whether it counts, if the watch shows this pod."""
        if shown is None or not shown.is_pending or shown.kept.node:
            return False
        return self.ends_after is None or revision(shown.resource_version) <= self.ends_after


class Stage(Enum):
    """The stage that a member has reached."""

    FREE = auto()
    """It is pending, and nothing is kept for it."""

    KEPT = auto()
    """It is pending, and a node is kept for it."""

    BOUND = auto()
    """It has a node."""

    __hash__ = object.__hash__  # a member is equal to itself alone; that of Enum is written in Python


class GangPart(NamedTuple):
    """Members of a gang that say the same of their gang and have come as far."""

    said: Membership
    stage: Stage


class _Place(NamedTuple):
    """The place of a pod in the index. ``part`` is None for a pod that is not counted."""

    gang: GangKey
    uid: str
    part: GangPart | None


class GangIndex(NamedTuple):
    """The pods of each gang. A change makes a new value.

    Attributes:
        members: gang to the uids of its pods with devices.
        numbers: gang to the number of its members in each part. Pods that no scheduler can bind do not count.
        companions: PodGroup to its pods without devices that neither terminate nor are finished.
        places: each of these pods with its gang.
    """

    members: Map[GangKey, Map[str, None]] = Map()
    numbers: Map[GangKey, Map[GangPart, int]] = Map()
    companions: Map[GangKey, Map[str, None]] = Map()
    places: Map[ObjectKey, _Place] = Map()

    def with_pod(self, pod: Pod) -> "GangIndex":
        """The index with a new pod, if the pod is in a gang."""
        key = pod.gang_key
        if key is None:
            return self
        part = _part_of(pod) if pod.needs_devices else None
        places = self.places.set(pod.key, _Place(key, pod.uid, part))
        if pod.needs_devices:
            members = with_uid(self.members, key, pod.uid)
            return self._replace(members=members, places=places)._counted(key, part, 1)
        if not key.is_pod_group or pod.deleting or pod.is_finished:
            return self
        return self._replace(companions=with_uid(self.companions, key, pod.uid), places=places)

    def without_pod(self, key: ObjectKey) -> "GangIndex":
        """Without a pod that is there."""
        gang, uid, part = self.places[key]
        places = self.places.delete(key)
        if uid in self.members.get(gang, ()):
            return self._replace(members=removed(self.members, gang, uid), places=places)._counted(gang, part, -1)
        return self._replace(companions=removed(self.companions, gang, uid), places=places)

    def _counted(self, gang: GangKey, part: GangPart | None, sign: int) -> "GangIndex":
        if part is None:
            return self
        numbers = self.numbers.get(gang, Map())
        number = numbers.get(part, 0) + sign
        numbers = numbers.set(part, number) if number else numbers.delete(part)
        return self._replace(numbers=self.numbers.set(gang, numbers) if numbers else self.numbers.delete(gang))


def is_live(pod: Pod) -> bool:
    """Whether a member counts: it has a node, or a scheduler can bind it once it has its turn (`GATE`)."""
    return not (pod.deleting or pod.is_finished or (pod.foreign_gates and not pod.node_name))


def _part_of(pod: Pod) -> GangPart | None:
    if pod.gang is None or not is_live(pod):
        return None
    return GangPart(pod.gang, Stage.BOUND if pod.node_name else Stage.KEPT if pod.kept.node else Stage.FREE)


class KeptIndex(NamedTuple):
    """The nominated pods, and the devices that are kept for them. A change makes a new value.

    Attributes:
        unnamed: the uids of the nominated pods for which no device is kept by name.
        in_namespaces: namespace to the uids of its nominated pods.
        users: device to the uids of the pods for which it is kept.
        contested: those of the devices of which a claim holds something, or that are kept for several pods.
    """

    unnamed: Map[str, None] = Map()
    in_namespaces: Map[str, Map[str, None]] = Map()
    users: Map[DeviceId, Map[str, None]] = Map()
    contested: Map[DeviceId, None] = Map()

    def with_pod(self, pod: Pod, usage: Usage) -> "KeptIndex":
        """The index with a new nominated pod."""
        in_namespaces = with_uid(self.in_namespaces, pod.namespace, pod.uid)
        if not pod.kept.devices:
            return self._replace(unnamed=self.unnamed.set(pod.uid, None), in_namespaces=in_namespaces)
        users = self.users
        for device in pod.kept.devices:
            users = with_uid(users, device, pod.uid)
        return self._replace(users=users, in_namespaces=in_namespaces).seen(pod.kept.devices, usage)

    def without_pod(self, pod: Pod, usage: Usage) -> "KeptIndex":
        """Without a nominated pod that is there."""
        in_namespaces = removed(self.in_namespaces, pod.namespace, pod.uid)
        if not pod.kept.devices:
            return self._replace(unnamed=self.unnamed.delete(pod.uid), in_namespaces=in_namespaces)
        users, devices = self.users, set(pod.kept.devices)
        for device in devices:
            users = removed(users, device, pod.uid)
        return self._replace(users=users, in_namespaces=in_namespaces).seen(devices, usage)

    def seen(self, devices: Iterable[DeviceId], usage: Usage) -> "KeptIndex":
        """After the usage of some devices may have changed."""
        contested = self.contested
        for device in devices:
            users = self.users.get(device)
            if users is not None and (len(users) > 1 or usage.device(device) != FREE):
                contested = contested.set(device, None)
            elif device in contested:
                contested = contested.delete(device)
        return self if contested is self.contested else self._replace(contested=contested)

    def rivals(self) -> Collection[str]:
        """The uids of the pods for which a contested device is kept."""
        return {uid for device in self.contested for uid in self.users[device]}


class NodeRequest(NamedTuple):
    """The request of one pod on its node.

    Attributes:
        uid: of the pod.
        amounts: as `extender.cluster.resources.counted` returns them.
        is_promise: the pod is not bound yet, as far as is known.
    """

    uid: str
    node: str
    amounts: Amounts
    is_promise: bool = False


@dataclass(frozen=True, slots=True)
class NodeRequests:
    """The requests of all pods of the cluster, and their sum for each node. A change makes a new value.

    A pod that is about to be bound counts, too: its promise holds until the watch shows its node, or until it is given
    up.
    """

    pods: Map[ObjectKey, NodeRequest] = field(default_factory=Map)
    totals: Map[str, Amounts] = field(default_factory=Map)

    def on(self, node: str, without: ObjectKey) -> Amounts:
        """What pods request of a node, in kube-scheduler's units, without one pod."""
        total, own = self.totals.get(node, NONE), self.pods.get(without)
        if own is None or own.node != node:
            return total
        return {name: amount - own.amounts.get(name, 0) for name, amount in total.items()}

    def with_pod(self, pod: Pod) -> "NodeRequests":
        """The index with a pod as the watch shows it."""
        before = self.pods.get(pod.key)
        if pod.node_name and not pod.is_finished:
            return self._with(pod.key, NodeRequest(pod.uid, pod.node_name, counted(pod.resources.total)))
        if before is not None and before.is_promise and before.uid == pod.uid and not pod.is_finished:
            return self
        return self.without_pod(pod.key)

    def promising(self, pod: Pod, node: str, amounts: Amounts) -> "NodeRequests":
        """The index with a pod that is about to be bound; a pod that is bound changes nothing."""
        before = self.pods.get(pod.key)
        if before is not None and before.uid == pod.uid and not before.is_promise:
            return self
        return self._with(pod.key, NodeRequest(pod.uid, node, counted(amounts), is_promise=True))

    def without_promise(self, key: ObjectKey, uid: str) -> "NodeRequests":
        """Without a promise that was made for a pod, if there is one."""
        before = self.pods.get(key)
        return self.without_pod(key) if before is not None and before.is_promise and before.uid == uid else self

    def without_pod(self, key: ObjectKey) -> "NodeRequests":
        """Without a pod, if it is there."""
        before = self.pods.get(key)
        if before is None:
            return self
        return replace(self, pods=self.pods.delete(key), totals=_moved(self.totals, before, -1))

    def _with(self, key: ObjectKey, request: NodeRequest) -> "NodeRequests":
        if self.pods.get(key) == request:
            return self
        base = self.without_pod(key)
        return NodeRequests(base.pods.set(key, request), _moved(base.totals, request, 1))


def _moved(totals: Map[str, Amounts], request: NodeRequest, sign: int) -> Map[str, Amounts]:
    change = {name: sign * amount for name, amount in request.amounts.items()}
    total = {name: amount for name, amount in added(totals.get(request.node, NONE), change).items() if amount}
    return (
        totals.set(request.node, total) if total else totals.delete(request.node) if request.node in totals else totals
    )


class PlacedPods(NamedTuple):
    """All pods that have a node and are not finished, as whole pods. A change makes a new value.

    Attributes:
        on: node name to its pods.
        guards: the pods that keep other pods away (anti-affinity).
        namespaces: namespace to its labels, as far as they are known.
    """

    pods: Map[ObjectKey, Pod] = Map()
    on: Map[str, Map[ObjectKey, None]] = Map()
    guards: Map[ObjectKey, None] = Map()
    namespaces: Map[str, Mapping[str, str]] = Map()

    def with_pod(self, pod: Pod) -> "PlacedPods":
        """The index with a pod as the watch shows it."""
        base, key = self.without_pod(pod.key), pod.key
        if not pod.node_name or pod.is_finished:
            return base
        there = base.on.get(pod.node_name, Map())
        guards = base.guards.set(key, None) if pod.conditions.anti_affinity else base.guards
        return base._replace(
            pods=base.pods.set(key, pod), on=base.on.set(pod.node_name, there.set(key, None)), guards=guards
        )

    def without_pod(self, key: ObjectKey) -> "PlacedPods":
        """Without a pod, if it is there."""
        pod = self.pods.get(key)
        if pod is None:
            return self
        rest = self.on[pod.node_name].delete(key)
        on = self.on.set(pod.node_name, rest) if rest else self.on.delete(pod.node_name)
        guards = self.guards.delete(key) if key in self.guards else self.guards
        return self._replace(pods=self.pods.delete(key), on=on, guards=guards)

    def at(self, node: str) -> Iterator[Pod]:
        """The pods of a node."""
        return (self.pods[key] for key in self.on.get(node, ()))


@dataclass(frozen=True, slots=True)
class ControllerAnswer:
    """The latest answer of a controller about one claim.

    Attributes:
        problem: why there is no answer about the claim; None if there is one.
        unsuitable: the nodes that the controller refuses, each with the reason.
        asked: the nodes that it was asked about; None: all nodes.
    """

    problem: Reason | None = None
    unsuitable: Mapping[str, Printable] = field(default_factory=dict)
    asked: Collection[str] | None = frozenset()


UNASKED = ControllerAnswer()
"""The controller was not asked."""

ANY_NODE_SUITS = ControllerAnswer(asked=None)
"""For a bind, which does not ask again: the allocation itself is the answer."""
