"""Devices in pieces: free, and as many as a waiting pod asks for, but not on one node, so that nobody gets them.

The devices are judged as a defragmentation judges them, without looking for moves.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from extender.answers.defragmentation.defragment import surveyed
from extender.answers.explain.explanation import RequestReport
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.asked import Asked
from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import PendingReason
from extender.framework.task import BackgroundTask
from extender.planning.kube_scheduler import no_attempt
from extender.planning.queue import shapes_of, waiting_pods
from extender.tools.offload import Offload

MOST_SHAPES: Final = 16
"""Shapes of waiting pods that are looked at, in the order of the queue."""

LOOK_SECONDS: Final = 0.5
"""The time for one look, which a verb interrupts. Other background work has every second turn meanwhile."""

_SECONDS: Final = 30.0
"""Between two looks, at least."""

ASKED_SECONDS: Final = 600.0
"""A scheduler whose pods wait asks sooner again: kube-scheduler tries each pod after five minutes at most."""

_SHARE: Final = 20
"""The pause after a look, in times of the look's length: a twentieth of a core."""


def in_pieces(
    snapshot: Snapshot, solver: Solver, lacks_devices: Callable[[Pod], bool], schedulers: Collection[str] = ()
) -> Mapping[str, int]:
    """The devices of each driver that are free, but in pieces.

    These are the devices that the pods of one shape could be given if they were on one node. Of several shapes, the one
    with the most counts, because they may want the same devices.

    Args:
        snapshot: the cluster.
        solver: evaluates selectors. When its time is up, the shapes that are left do not count.
        lacks_devices: whether filter has rejected a pod for want of devices.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """
    found: Counter[str] = Counter()
    try:
        planned, queue = waiting_pods(snapshot, solver, schedulers, lacks_devices)
        for shape in islice(shapes_of(queue), MOST_SHAPES):
            ways = surveyed(shape.pod, planned, solver)
            if not isinstance(ways, str):
                found |= _suitable(ways, len(shape.pods))
    except TimeoutError:
        pass
    return found


def _suitable(requests: Sequence[Sequence[RequestReport]], pods: int) -> Counter[str]:
    """The devices that so many pods could be given, by driver; none if there are not enough for one pod."""
    needs: Counter[tuple[str, str]] = Counter()
    free: dict[tuple[str, str], int] = {}
    for ways in requests:
        way = next((each for each in ways if each.need and each.free >= each.need), None)
        if way is None:
            return Counter()
        key = way.examples[0].driver, way.device_class
        needs[key] += way.need
        free[key] = max(free.get(key, 0), way.free)
    served = min((free[key] // need for key, need in needs.items()), default=0)
    found: Counter[str] = Counter()
    for (driver, _), need in needs.items():
        found[driver] += need * min(pods, served)
    return found


class PiecesKeeper(BackgroundTask):
    """Looks for devices in pieces now and then. Only the replica that a scheduler asks knows which pods lack devices.

    Args:
        state: the cluster.
        tell: hears how many there are of each driver; None: this replica does not know.
        solver: evaluates selectors.
        decision_log: has the latest answer about each pod.
        asked: what schedulers have asked of this process.
        clock: seconds, from any point.
        off_loop: where a look is taken.
    """

    def __init__(
        self,
        state: ClusterState,
        tell: Callable[[Mapping[str, int] | None], None],
        solver: Solver,
        decision_log: DecisionLog,
        asked: Asked,
        clock: Callable[[], float],
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._tell = tell
        self._solver = solver.still()
        self._log = decision_log
        self._asked = asked
        self._clock = clock
        self._off_loop = off_loop
        self._next = clock()

    async def tick(self) -> None:
        """Look again, if it is time."""
        began = self._clock()
        if self._state.not_ready or began < self._next:
            return
        found = await self._off_loop(partial(self._look, self._state.snapshot))
        self._tell(found)
        ended = self._clock()
        self._next = ended + max(_SECONDS, _SHARE * (ended - began))

    def _look(self, snapshot: Snapshot) -> Mapping[str, int] | None:
        if self._asked.seconds_since > ASKED_SECONDS and any(map(self._is_tried, snapshot.pods.values())):
            return None
        solver = self._solver.within(self._solver.clock() + LOOK_SECONDS)
        return in_pieces(snapshot, solver, self._lacks_devices, self._asked.named)

    def _is_tried(self, pod: Pod) -> bool:
        return pod.is_pending and pod.needs_devices and not pod.gates and not no_attempt(pod, self._asked.named)

    def _lacks_devices(self, pod: Pod) -> bool:
        latest = self._log.latest(pod.uid)
        return latest is not None and latest.waits_for is PendingReason.DEVICES
