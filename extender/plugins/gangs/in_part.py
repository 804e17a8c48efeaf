"""Gangs that run in part: their pods are told, because nobody ends them or gives their devices back.

Some pods of a gang have a node, and too few: one was evicted or has failed, or the others get no devices. Only who owns
the pods knows what such a gang is good for: some jobs go on with fewer pods, some wait for a successor, some have to
begin anew.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from allocator.tools import printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import Note
from extender.framework.asked import Asked
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.plugins.gangs.gang import Gang, gang_at, gangs_in_part, in_part_words

IN_PART: Final = "GroupRunsInPart"
WHOLE: Final = "GroupComplete"

LOOK_SECONDS: Final = 1.0
"""Between two looks."""

PATIENCE_SECONDS: Final = 5.0
"""A gang that is whole again within this time is not told of, nor one whose pods are all deleted within it."""

MOST_TOLD: Final = 8
"""The most pods of a gang that are told, the most important and oldest first: more say no more."""


def gauge_of_gangs_in_part(registry: CollectorRegistry) -> Gauge:
    """Make the metric of gangs that run in part."""
    text = "Groups of which some pods have a node, and too few, for at least five seconds."
    return Gauge("dra_extender_gangs_in_part", text, registry=registry)


@dataclass(slots=True)
class _Lack:
    """A gang that runs in part.

    Attributes:
        since: when it was found, by the clock.
        told: what its pods were told; empty: nothing yet.
        pods: the uids of those that were told.
    """

    since: float
    told: str = ""
    pods: frozenset[str] = frozenset()


class GangsInPart(BackgroundTask):
    """Tells pods of gangs that run in part by an Event, and again when their gang is whole.

    A process whose scheduler has asked about no pod tells nobody: another replica does.

    Args:
        state: the cluster.
        tell: writes an Event on a pod.
        note_number: is told the number of such gangs.
        asked: whether a scheduler asks this process.
        clock: measures durations, in seconds.
    """

    def __init__(
        self,
        state: ClusterState,
        tell: Callable[[Pod, Note], None],
        note_number: Callable[[int], None],
        asked: Asked,
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._tell = tell
        self._note_number = note_number
        self._clock = clock
        self._asked = asked
        self._again = 0.0
        self._looked_at: Snapshot | None = None
        self._lacks: dict[GangKey, _Lack] = {}

    @property
    def idle_seconds(self) -> float:
        """Until the next look, if a gang lacks something or there is news."""
        is_idle = not self._lacks and self._looked_at is self._state.snapshot
        return UNTIL_NEWS if is_idle else self._again - self._clock()

    async def tick(self) -> None:
        """Look at all gangs, from time to time."""
        now = self._clock()
        if now < self._again or self._state.not_ready:
            return
        self._again = now + LOOK_SECONDS
        snapshot = self._looked_at = self._state.snapshot
        found = {gang.key: gang for gang in gangs_in_part(snapshot)}
        self._end({key for key in self._lacks if key not in found}, snapshot)
        for key in found:
            self._lacks.setdefault(key, _Lack(now))
        late = {key for key in found if now >= self._lacks[key].since + PATIENCE_SECONDS}
        self._note_number(len(late))
        for key in late if self._asked.schedulers else ():
            self._tell_in_part(found[key], self._lacks[key])

    def _end(self, keys: Iterable[GangKey], snapshot: Snapshot) -> None:
        """Look at gangs that do not run in part any more: they are whole or gone, or devices are kept for the rest."""
        for key in keys:
            gang = gang_at(key, snapshot)
            if gang is not None and gang.has_enough and not gang.is_placed:
                continue
            lack = self._lacks.pop(key)
            if gang is not None and gang.is_placed:
                self._tell_whole(gang, lack)

    def _tell_in_part(self, gang: Gang, lack: _Lack) -> None:
        text = in_part_words(gang)
        if text == lack.told:
            return
        lack.told, pods = text, gang.bound[:MOST_TOLD]
        lack.pods |= {pod.uid for pod in pods}
        for pod in pods:
            self._tell(pod, Note(IN_PART, text, "Running"))

    def _tell_whole(self, gang: Gang, lack: _Lack) -> None:
        text = printable(f"{gang.size} pods of group {gang.key.name} have a node again")
        for pod in gang.bound:
            if pod.uid in lack.pods:
                self._tell(pod, Note(WHOLE, text, "Running", is_warning=False))
