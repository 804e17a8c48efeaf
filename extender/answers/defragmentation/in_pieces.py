"""Devices in pieces: free, and as many as a waiting pod asks for, but not on one node, so that nobody gets them.

The devices are judged as a defragmentation judges them, without looking for moves.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

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
from extender.planning.queue import PendingShape, shapes_of, waiting_pods
from extender.tools.fairness import one_of_each
from extender.tools.offload import Offload

MOST_SHAPES: Final = 16
"""Shapes of waiting pods that are looked at, one of each namespace after the other."""

MOST_PODS: Final = 1024
"""Waiting pods that are looked at, one of each namespace after the other: they take about a tenth of a second."""

LOOK_SECONDS: Final = 0.5
"""The time for one look, which a verb interrupts. Other background work has every second turn meanwhile."""

_SECONDS: Final = 30.0
"""Between two looks, at least."""

ASKED_SECONDS: Final = 600.0
"""A scheduler whose pods wait asks sooner again: kube-scheduler tries each pod after five minutes at most."""

_SHARE: Final = 20
"""The pause after a look, in times of the look's length: a twentieth of a core."""


class InPieces(NamedTuple):
    """The devices of each driver that are free, but in pieces; and the namespaces whose pods were looked at."""

    devices: Mapping[str, int]
    namespaces: frozenset[str]


def in_pieces(
    snapshot: Snapshot,
    solver: Solver,
    lacks_devices: Callable[[Pod], bool],
    schedulers: Collection[str] = (),
    later: Collection[str] = (),
) -> InPieces:
    """The devices of each driver that are free, but in pieces.

    These are the devices that the pods of one shape could be given if they were on one node. Of several shapes, the one
    with the most counts, because they may want the same devices.

    Args:
        snapshot: the cluster.
        solver: evaluates selectors. Its time is shared: a shape that has not enough of it does not count.
        lacks_devices: whether filter has rejected a pod for want of devices.
        schedulers: names of the schedulers that call the extender; empty: not known.
        later: namespaces that have their turn after the others.
    """
    found, looked_at = Counter[str](), set[str]()
    try:
        chosen = _chosen(snapshot, solver, lacks_devices)
        planned, queue = waiting_pods(snapshot, solver, schedulers, lambda pod: pod.uid in chosen)
    except TimeoutError:
        return InPieces({}, frozenset())
    shapes = shapes_of(queue)
    queues = _by_namespace(shapes, later)
    for number, index in enumerate(islice(one_of_each(queues), MOST_SHAPES)):
        shape, turns = shapes[index], min(len(queues), MOST_SHAPES) - number
        looked_at.update(pod.namespace for pod in shape.pods)
        with suppress(TimeoutError):
            ways = surveyed(shape.pod, planned, solver.share(max(1, turns)))
            if not isinstance(ways, str):
                found |= _suitable(ways, len(shape.pods))
    return InPieces(found, frozenset(looked_at))


def _chosen(snapshot: Snapshot, solver: Solver, lacks_devices: Callable[[Pod], bool]) -> Collection[str]:
    """The uids of the waiting pods that are looked at."""
    waiting: list[Pod] = []
    for pod in snapshot.pods.values():
        solver.look()
        if pod.is_pending and pod.needs_devices and lacks_devices(pod):
            waiting.append(pod)
    queues: dict[str, list[str]] = {}
    for pod in sorted(waiting, key=lambda each: each.order):
        queues.setdefault(pod.namespace, []).append(pod.uid)
    return frozenset(islice(one_of_each(queues), MOST_PODS))


def _by_namespace(shapes: Sequence[PendingShape], later: Collection[str]) -> Mapping[str, Sequence[int]]:
    """The indexes of the shapes that pods of each namespace have, in the order of the turns."""
    found: dict[str, list[int]] = {}
    for index, shape in enumerate(shapes):
        for namespace in {pod.namespace: None for pod in shape.pods}:
            found.setdefault(namespace, []).append(index)
    return {name: found[name] for name in sorted(found, key=lambda each: each in later)}


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
        self._looked_at: frozenset[str] = frozenset()
        """The namespaces whose pods the latest look was at: the others come first in the next one."""

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
        found = in_pieces(snapshot, solver, self._lacks_devices, self._asked.named, self._looked_at)
        self._looked_at = found.namespaces
        return found.devices

    def _is_tried(self, pod: Pod) -> bool:
        return pod.is_pending and pod.needs_devices and not pod.gates and not no_attempt(pod, self._asked.named)

    def _lacks_devices(self, pod: Pod) -> bool:
        latest = self._log.latest(pod.uid)
        return latest is not None and latest.waits_for is PendingReason.DEVICES
