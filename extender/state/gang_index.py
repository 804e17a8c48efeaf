"""The pods of gangs: which pods are in a gang, and which pods without devices count for a PodGroup."""

from typing import NamedTuple

from immutables import Map

from extender.kube.api import ObjectKey
from extender.state.gangs import GangKey
from extender.state.indexes import added, removed
from extender.state.objects import Pod


class GangIndex(NamedTuple):
    """The pods of each gang. A change makes a new value.

    Attributes:
        members: gang to the uids of its pods with devices.
        companions: PodGroup to its pods without devices that neither terminate nor are finished.
        places: each of these pods with its gang.
    """

    members: Map[GangKey, Map[str, None]] = Map()
    companions: Map[GangKey, Map[str, None]] = Map()
    places: Map[ObjectKey, tuple[GangKey, str]] = Map()

    def with_pod(self, pod: Pod) -> "GangIndex":
        """With a pod that is not there yet, if it is in a gang."""
        key = pod.gang_key
        if key is None:
            return self
        places = self.places.set(pod.key, (key, pod.uid))
        if pod.needs_devices:
            return self._replace(members=added(self.members, key, pod.uid), places=places)
        if not key.is_pod_group or pod.deleting or pod.is_finished:
            return self
        return self._replace(companions=added(self.companions, key, pod.uid), places=places)

    def without_pod(self, key: ObjectKey) -> "GangIndex":
        """Without a pod that is there."""
        gang, uid = self.places[key]
        places = self.places.delete(key)
        if uid in self.members.get(gang, ()):
            return self._replace(members=removed(self.members, gang, uid), places=places)
        return self._replace(companions=removed(self.companions, gang, uid), places=places)
