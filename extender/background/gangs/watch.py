"""What a process knows of a gang beyond what the conditions of its pods say, and how long things take."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from operator import is_
from typing import Final

from extender.gangs.plan import Shortfall
from extender.kube.api import ObjectKey
from extender.pods.gangs import Gang, gang_at
from extender.state.objects.pod_groups import PodGroup
from extender.state.pod_fields.conditions import Keeping
from extender.state.pod_fields.gang_annotations import GangKey
from extender.state.snapshot import Snapshot

KEPT_SECONDS: Final = 60.0
"""Devices are kept for a gang for this time after the plan, and after each pod that is bound."""

ASKING_SECONDS: Final = 1.0
"""The longest time from the first rejection of a member to the plan: kube-scheduler asks about the others meanwhile."""

PLANNING_SECONDS: Final = 0.5
"""The longest time that a turn waits for plans: other tasks wait meanwhile. A plan that takes longer goes on between
the turns."""

LONG_PLANS: Final = 4
"""The most plans that go on between the turns. They compute one at a time, 10 ms each (`extender.offload.Searches`).
The limit is for memory: a plan for 1,024 pods on 1,024 nodes took 27 MB. While there are as many, a plan that takes
longer than a turn is stopped."""

LONGEST_PLAN_SECONDS: Final = 512.0
"""A plan is stopped after this time."""

IDLE_SECONDS: Final = 2 * KEPT_SECONDS
"""A process whose scheduler has asked about no member for this time leaves what is kept to another process."""

SEEN_SECONDS: Final = 10.0
"""If the watch does not show a plan within this time, another process has changed it. If it does not show a PodGroup
within this time, the PodGroup is gone."""

FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
"""After devices were given back, a gang waits this time, and twice as long each time: others may get the devices."""

AGAIN_SECONDS: Final = 2.0
"""A plan is made again after this time if its scheduler asks again. If a limit has stopped the plan, it is made again
after four times as long as it took, but not before this time."""


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


@dataclass(slots=True)
class Watch:
    """What this process knows of one gang.

    Attributes:
        members: the size, and the uids of the pods, at the last look.
        is_due: something has changed that may help.
        again: no plan is made before, by the solver's clock.
        pause: from devices that are given back to the next plan.
        is_planning: a plan is being made.
        overdue: the end of the first turn in which a plan was to be made, and time did not suffice; infinite: none.
        is_overtaken: others have got devices of the latest plan while it was made.
        writing: what was written for pods, until the watch shows it.
        written: when that was.
        begun: when devices were kept first; None while nothing is kept.
        bound: how many members had a node at the last look.
        until: when devices are given back.
        active: when this process was last asked about a member, or has last written a plan.
        shortfall: why there was no plan.
    """

    members: tuple[int, frozenset[str]] = (0, frozenset())
    is_due: bool = True
    again: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    is_planning: bool = False
    overdue: float = inf
    is_overtaken: bool = False
    writing: dict[str, Keeping] = field(default_factory=dict)
    written: float = 0.0
    begun: float | None = None
    bound: int = 0
    until: float = 0.0
    active: float = -inf
    shortfall: Shortfall | None = None

    def asked_again(self, now: float) -> None:
        """A scheduler tries a member again: something may have changed that is not known here, such as free CPU."""
        if not self.is_due:
            self.is_due, self.again = True, max(self.again, now + AGAIN_SECONDS)
