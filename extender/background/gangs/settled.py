"""Gangs that need no look: all members have a node, and nothing of them has changed."""

from collections.abc import Iterable
from operator import is_

from extender.cluster.objects.pod_groups import PodGroup
from extender.cluster.objects.pods import GangKey
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.pods.gangs import Gang, gang_at


class Settled:
    """Gangs of which all members have a node: nothing is to be done for them until something of them changes.

    A change of a pod or PodGroup makes new values in the snapshot, so a comparison by identity finds it.
    """

    def __init__(self) -> None:
        self._known: dict[GangKey, tuple[object, ...]] = {}

    def others(self, snapshot: Snapshot) -> list[Gang]:
        """The other gangs that have members."""
        keys = [key for key in snapshot.gangs.members if not self._is_same(key, snapshot)]
        return [gang for key in keys if (gang := gang_at(key, snapshot)) is not None]

    def note(self, gangs: Iterable[Gang], snapshot: Snapshot) -> None:
        """Remember which gangs are settled, and forget those that are gone. The gangs were served in this snapshot."""
        self._known = {key: basis for key, basis in self._known.items() if self._is_same(key, snapshot)}
        for gang in gangs:
            if gang.is_placed and not (gang.free or gang.kept):
                self._known[gang.key] = _basis(gang.key, snapshot)

    def _is_same(self, key: GangKey, snapshot: Snapshot) -> bool:
        return key in self._known and all(map(is_, self._known[key], _basis(key, snapshot)))


def _basis(key: GangKey, snapshot: Snapshot) -> tuple[object, ...]:
    """What a gang is made of."""
    group = snapshot.objects(PodGroup).get(ObjectKey(key.namespace, key.name)) if key.is_pod_group else None
    return snapshot.gangs.members.get(key), snapshot.gangs.companions.get(key), group
