"""The pods of gangs: which pods are in a gang, and which pods without devices count for a PodGroup."""

from enum import Enum, auto
from typing import NamedTuple

from immutables import Map

from extender.cluster.indexes.nested_maps import added, removed
from extender.cluster.objects.pods import Pod
from extender.cluster.pod_fields.gang_annotations import GangKey, Membership
from extender.kube.api import ObjectKey


class Stage(Enum):
    """How far a member has come."""

    FREE = auto()
    """It is pending, and nothing is kept for it."""

    KEPT = auto()
    """It is pending, and a node is kept for it."""

    BOUND = auto()
    """It has a node."""


class GangPart(NamedTuple):
    """Members of a gang that say the same of their gang and have come as far."""

    said: Membership
    stage: Stage


class _Place(NamedTuple):
    """Where the index has a pod. ``part`` is None for a pod that is not counted."""

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
        """With a pod that is not there yet, if it is in a gang."""
        key = pod.gang_key
        if key is None:
            return self
        part = _part_of(pod) if pod.needs_devices else None
        places = self.places.set(pod.key, _Place(key, pod.uid, part))
        if pod.needs_devices:
            members = added(self.members, key, pod.uid)
            return self._replace(members=members, places=places)._counted(key, part, 1)
        if not key.is_pod_group or pod.deleting or pod.is_finished:
            return self
        return self._replace(companions=added(self.companions, key, pod.uid), places=places)

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
    """Whether a member counts: it has a node, or a scheduler can bind it."""
    return not (pod.deleting or pod.is_finished or (pod.gates and not pod.node_name))


def _part_of(pod: Pod) -> GangPart | None:
    if pod.gang is None or not is_live(pod):
        return None
    return GangPart(pod.gang, Stage.BOUND if pod.node_name else Stage.KEPT if pod.kept.node else Stage.FREE)
