"""Whom to evict for a pod that fits nowhere: the node, and on it the fewest pods whose devices suffice.

kube-scheduler's own preemption can't choose: its trial runs know no devices, and it asks extenders only about nodes
that lack something else. The nodes that filter was asked about have passed the scheduler's other checks, so only
devices are missing there. Source of the order of nodes: ``pickOneNodeForPreemption`` of Kubernetes 1.36.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from immutables import Map

from allocator import Allocation, DeviceId, InvalidClaimError, SelectorError
from allocator.tools import Recent
from extender.cluster.consumers import holders_near, without_pods
from extender.cluster.kinds import Topic
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import NOTHING_KEPT, Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, roams
from extender.framework.cycle import feasible_on, is_feasible
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import held_for_nominated
from extender.planning.kube_scheduler import rejection
from extender.planning.queue import likeness_of
from extender.plugins.preemption.evictions import Evictions, is_evictable_unbound, violations
from extender.tools.smallest_set import Members

FEWEST_NODES: Final = 100
SHARE_OF_NODES: Final = 0.1
"""At most this share of the nodes that filter was asked about is searched, but at least `FEWEST_NODES` nodes.
kube-scheduler's preemption has the same limits."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Evictions that make room for a pod.

    Attributes:
        victims: the pods to evict, on any node; empty if the pod only has to wait until terminating pods are gone.
        devices: the devices that the pod gets then.
        violations: how many of these evictions break a PodDisruptionBudget.
    """

    pod: Pod
    node: NodeObject
    victims: tuple[Pod, ...]
    devices: tuple[DeviceId, ...] = ()
    violations: int = 0

    @property
    def nominated(self) -> Pod:
        """The pod as it is once the preemption is nominated."""
        return replace(self.pod, nominated_node=self.node.name, kept=self.keeping)

    @property
    def keeping(self) -> Keeping:
        """The devices to keep for the pod, with the node and the victims."""
        return Keeping(self.node.name, self.devices, tuple(victim.uid for victim in self.victims))


def choose(
    pod: Pod,
    names: Sequence[str],
    snapshot: Snapshot,
    solver: Solver,
    may_evict: Callable[[Sequence[Pod]], bool] = lambda _: True,
) -> Preemption | None:
    """The best preemption for a pod; None if no eviction helps.

    The preemption has no victims if the pod fits on a node once terminating pods are gone.

    Args:
        pod: fits on none of the nodes.
        names: the nodes that kube-scheduler's own checks have passed.
        snapshot: the cluster.
        solver: the allocator. When its time is up, the best preemption that was found so far is the result.
        may_evict: whether some pods may be evicted together.
    """
    if snapshot.never_preempts(pod) or not any(each.priority < pod.priority for each in snapshot.pods.values()):
        return None
    world = held_for_nominated(pod, snapshot, solver)
    options: list[tuple[Evictions, Members]] = []
    try:
        with suppress(TimeoutError):
            for every in _evictions(pod, names, world, solver):
                evictions, enough = every.preferred(solver)
                if enough == ():
                    return _preemption(evictions, (), solver)
                if enough is not None:
                    options.append((evictions, enough))
        smallest = list(_smallest(options, solver))
    except (InvalidClaimError, SelectorError):
        return None
    smallest.sort(key=lambda each: (each[0].rank(each[1]), each[0].node.name))
    best = next((each for each in smallest if may_evict(each[0].pods(each[1]))), None)
    return None if best is None else _preemption(*best, solver)


def begun(pod: Pod, snapshot: Snapshot) -> Preemption | None:
    """The preemption that this process or another one has begun: the nomination of the pod names it.

    None if the node is gone, or if kube-scheduler rejects it now.
    """
    node = snapshot.nodes.get(pod.kept.node)
    if node is None or rejection(pod.requirements, node):
        return None
    victims = tuple(each for uid in pod.kept.victims if (each := snapshot.pod(uid)) is not None)
    return Preemption(pod, node, victims, pod.kept.devices)


def still_needed(found: Preemption, snapshot: Snapshot, solver: Solver) -> tuple[Pod, ...] | None:
    """The victims that are still needed on a later snapshot, so that the pod gets the devices that are kept for it.

    Empty if the pod only has to wait until terminating pods are gone. None if the victims no longer suffice, or if
    kube-scheduler rejects the node now.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    node = snapshot.nodes.get(found.node.name)
    if node is None or rejection(found.pod.requirements, node):
        return None
    victims = [now for each in found.victims if (now := snapshot.pod(each.uid)) is not None]
    world = held_for_nominated(found.pod, snapshot, solver)
    evictions = Evictions.of(found.pod, node, (), victims, world, solver, is_evictable_unbound)
    if is_feasible(found.pod, node, evictions.snapshot, solver):
        return ()
    needed = evictions.irreducible(replace(solver, among=frozenset(found.devices)) if found.devices else solver)
    return None if needed is None else tuple(evictions.pods(needed))


def without_rivals(pod: Pod, snapshot: Snapshot) -> Snapshot:
    """The cluster without the nominations of other pods, of no higher priority, that name devices kept for this pod.

    Two replicas have written these nominations at the same moment. Such a nomination ends when its writer sees this.
    """
    wanted = frozenset(pod.kept.devices)
    for name in snapshot.nominated:
        for other in snapshot.nominated_to(name):
            is_rival = other.uid != pod.uid and other.priority <= pod.priority
            if is_rival and not wanted.isdisjoint(other.kept.devices):
                snapshot = snapshot.with_pod(replace(other, nominated_node="", kept=NOTHING_KEPT))
    return snapshot


def carried_out(found: Preemption, snapshot: Snapshot) -> Snapshot:
    """The cluster once the victims have gone, and the pod is nominated to the node."""
    return without_pods(snapshot, found.victims).with_pod(found.nominated)


def _smallest(options: Sequence[tuple[Evictions, Members]], solver: Solver) -> Iterator[tuple[Evictions, Members]]:
    """The fewest victims on each node. When time is up, a set of victims that suffices may be larger."""
    for place, (evictions, enough) in enumerate(options):
        fewest: Members | None = None
        with suppress(TimeoutError):
            fewest = evictions.smallest(len(enough), solver.share(len(options) - place))
        yield evictions, fewest or enough


def _preemption(evictions: Evictions, members: Members, solver: Solver) -> Preemption:
    chosen, victims = [evictions.candidates[each] for each in members], tuple(evictions.pods(members))
    devices = _devices(evictions, victims, solver)
    return Preemption(evictions.pod, evictions.node, victims, devices, violations(chosen, evictions.allowed))


def _devices(evictions: Evictions, victims: Sequence[Pod], solver: Solver) -> tuple[DeviceId, ...]:
    """The devices that the pod gets once the victims have gone; empty if a limit stops the search for them.

    The search runs even if the time to choose victims is up.
    """
    timeless, world = replace(solver, until=math.inf), without_pods(evictions.snapshot, victims)
    found = feasible_on(evictions.pod, evictions.node, world, timeless)
    results = found.results if isinstance(found, Allocation) else ()
    return tuple(sorted({each.device for result in results for each in result.results}))


def _evictions(pod: Pod, names: Sequence[str], snapshot: Snapshot, solver: Solver) -> Iterator[Evictions]:
    """The nodes with pods to evict or to wait for.

    Nodes where the pod may only have to wait come first, then nodes with pods of namespaces that borrow, then nodes
    with the least important pods.
    """
    order = solver.plugins.victim_order((), snapshot, solver)
    found: list[tuple[bool, bool, int, str, tuple[Pod, ...]]] = []
    for name in names:
        node = snapshot.nodes.get(name)
        if node is None:
            continue
        others = tuple(holders_near(node, snapshot, solver.features))
        able = [other for other in others if is_evictable_unbound(other, pod, snapshot)]
        is_waited_for = any(other.deleting or other.is_finished for other in others)
        if able or is_waited_for:
            has_borrowers = any(order.may_borrow(other.namespace) for other in able)
            lowest = min((other.priority for other in able), default=0)
            found.append((not is_waited_for, not has_borrowers, lowest, name, others))
    found.sort(key=lambda each: each[:4])
    for _, _, _, name, others in found[: max(FEWEST_NODES, int(len(names) * SHARE_OF_NODES))]:
        yield Evictions.of(pod, snapshot.nodes[name], (), others, snapshot, solver, is_evictable_unbound)


MOST_NAMES: Final = 200_000
"""Names of nodes that are remembered, for all kinds of pods together: about 10 MB."""

PAUSE: Final = 20.0
"""The pause after a choice, as a multiple of the time that the choice took."""

LONGEST_SECONDS: Final = 300.0
"""After this time, a choice is made again in any case."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A choice that found no victims.

    Attributes:
        names: the nodes that it was made among; None for all nodes.
        version: the version of the snapshot that it was made on.
        nominated: the nominated pods of that snapshot.
        ended: when it ended, in seconds of the clock.
        pause: the seconds after that until it may be made again.
        is_complete: everything was tried; otherwise time was up.
    """

    names: frozenset[str] | None
    version: int
    nominated: Map[str, Map[str, None]]
    ended: float
    pause: float
    is_complete: bool

    def is_among(self, names: Iterable[str]) -> bool:
        """Whether it was made among all of these nodes."""
        return self.names is None or self.names.issuperset(names)

    def concerns(self, names: Collection[str]) -> bool:
        """Whether it was made among one of these nodes."""
        return bool(names) and (self.names is None or not self.names.isdisjoint(names))


class Fruitless:
    """Remembers choices that found no victims, so that they are not made again for nothing.

    A pod that no eviction helps is rejected again and again, and each choice may take half a second. So a choice is
    made again when something has changed that matters, and choices for pods of one kind take a small share of the time.

    Args:
        timeline: of the cluster.
        clock: measures durations, in seconds.
    """

    def __init__(self, timeline: Timeline, clock: Callable[[], float]) -> None:
        self._timeline = timeline
        self._clock = clock
        self._known: Recent[_Choice] = Recent(MOST_NAMES, lambda _, choice: 1 + len(choice.names or ()))

    def note(self, pod: Pod, names: Sequence[str], snapshot: Snapshot, began: float, *, is_complete: bool) -> None:
        """A choice for a pod has found no victims on a snapshot. ``began``: when it began, in seconds of the clock."""
        now = self._clock()
        own = None if len(names) >= len(snapshot.nodes) else frozenset(names)
        choice = _Choice(own, snapshot.version, snapshot.nominated, now, PAUSE * (now - began), is_complete)
        self._known.keep(_key(pod, snapshot), choice)

    def wait(self, pod: Pod, names: Sequence[str], snapshot: Snapshot) -> float:
        """Seconds until a choice for a pod may find victims; infinite if nothing has changed that matters."""
        now = self._clock()
        last = self._known.find(_key(pod, snapshot))
        if last is None or now >= last.ended + LONGEST_SECONDS or not last.is_among(names):
            return 0.0
        if last.is_complete and not self._has_changed(last, snapshot):
            return math.inf
        return max(0.0, last.ended + last.pause - now)

    def _has_changed(self, last: _Choice, snapshot: Snapshot) -> bool:
        return snapshot.nominated != last.nominated or _matters(self._timeline.since(last.version), last, snapshot)


def _key(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods for which the same pods would be evicted. Nominated pods may share claims that have a name."""
    named = tuple(each.claim_name for each in pod.claims if each.claim_name)
    return likeness_of(pod, snapshot), (pod.namespace, *named) if named else ()


_KEYED: Final = frozenset({Topic.NODE, Topic.POOL, Topic.CLAIM, Topic.POD})
"""Of these, not every change matters."""


def _matters(reach: Reach, last: _Choice, now: Snapshot) -> bool:
    """Whether other pods may be evicted after some changes, or fewer devices may be missing."""
    topics, nodes = reach.changed, reach.nodes(now, now)
    if topics is None or nodes is None or last.concerns(nodes):
        return True
    claims = (now.claims.get(key) for key in topics.get(Topic.CLAIM, ()))
    pods = (now.pods.get(key) for key in topics.get(Topic.POD, ()))
    return (
        any(topic.alters_victims for topic in topics if topic not in _KEYED)
        or any(pool not in now.inventory.pools or roams(pool, now) for pool in topics.get(Topic.POOL, ()))
        or any(claim is not None and now.held_by(claim.claim.uid) for claim in claims)
        or any(pod is None or pod.node_name for pod in pods)
    )
