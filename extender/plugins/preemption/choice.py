"""Whom to evict for a pod that fits nowhere: the node, and on it the fewest pods whose devices suffice.

kube-scheduler's own preemption can't choose: its trial runs know no devices, and it asks extenders only about nodes
that lack something else. The nodes that filter was asked about have passed the scheduler's other checks, so only
devices are missing there. Source of the order of nodes: ``pickOneNodeForPreemption`` of Kubernetes 1.36.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from allocator import Allocation, DeviceId, InvalidClaimError, SelectorError
from extender.cluster.consumers import holders_near, without_pods
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import NOTHING_KEPT, Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import feasible_on, is_feasible
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import held_for_nominated
from extender.planning.kube_scheduler import rejection
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
