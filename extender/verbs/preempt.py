"""Preempt: which pods to evict, so that the pod fits after the evictions.

The scheduler has chosen victims by what it knows, which is not devices. Nodes where the pod's claims would not fit even
without any pod of lower priority are dropped; where they would fit, pods whose devices are needed join the victims.
The reply never holds a node without victims: that would fail the whole preemption in the scheduler.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from allocator import InvalidClaimError, SelectorError
from extender.decisions.solver import Solver
from extender.pods.case import after_departures, fits, held_for_nominated, open_case
from extender.pods.claims import Blocked, claim_keys, without_pods
from extender.state.objects import NodeObject, Pod
from extender.state.snapshot import Snapshot

MAX_TRIALS = 128
"""Sets of additional victims tried on one node, smallest first, before settling for any that can't be made smaller."""


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to evict from one node, by uid, and how many of them break a PodDisruptionBudget."""

    uids: tuple[str, ...]
    pdb_violations: int = 0


def choose_victims(
    pod: Pod,
    victims: Mapping[str, Victims],
    snapshot: Snapshot,
    solver: Solver,
) -> Mapping[str, Victims]:
    """The victims per node that make room for the pod's devices, too; nodes that can't be made to fit are left out.

    Empty while the pod only has to wait for devices on the node that it is nominated for: that keeps the nomination.

    Args:
        pod: for whom there is no room.
        victims: whom the scheduler would evict.
        snapshot: the cluster.
        solver: the allocator, for as long as the call has time; nodes not looked at by then are left out.

    Raises:
        TimeoutError: time was up before it was known whether the pod only has to wait.
    """
    if not pod.needs_devices:
        return victims
    case = open_case(pod, snapshot, solver)
    if not isinstance(case, Blocked) and case.claims.is_empty:
        return victims
    world = held_for_nominated(pod, snapshot, solver)
    try:
        if _only_waits(pod, world, solver):
            return {}
        return dict(_chosen(pod, victims, world, solver))
    except (InvalidClaimError, SelectorError):
        return {}


def _only_waits(pod: Pod, snapshot: Snapshot, solver: Solver) -> bool:
    node = snapshot.nodes.get(pod.nominated_node)
    if node is None or fits(pod, node, snapshot, solver):
        return False
    return fits(pod, node, after_departures(snapshot, node, solver.features), solver)


def _chosen(
    pod: Pod, victims: Mapping[str, Victims], snapshot: Snapshot, solver: Solver
) -> Iterator[tuple[str, Victims]]:
    for name, given in victims.items():
        node = snapshot.nodes.get(name)
        if node is None or not given.uids:
            continue
        try:
            added = _added(pod, node, given, snapshot, solver)
        except TimeoutError:
            return
        if added is not None:
            violations = given.pdb_violations + _violations(added, _known(given, snapshot), snapshot)
            yield name, Victims((*given.uids, *(other.uid for other in added)), violations)


def _added(pod: Pod, node: NodeObject, given: Victims, snapshot: Snapshot, solver: Solver) -> Sequence[Pod] | None:
    """The fewest more victims with which the pod's claims fit; None if they never do."""
    world = after_departures(snapshot, node, solver.features)
    evicted = _known(given, world)
    world = without_pods(world, evicted)
    candidates = [other for other in world.pods_on(node.name) if _is_evictable(other, pod, world)]

    def enough(more: Iterable[Pod]) -> bool:
        return fits(pod, node, without_pods(world, more), solver)

    if enough(()):
        return ()
    if not candidates or not enough(candidates):
        return None
    # Within their budgets first, then the least important, then the youngest.
    candidates.sort(key=lambda other: other.created, reverse=True)
    candidates.sort(key=lambda other: (_violations((other,), evicted, snapshot), other.priority))
    for more in islice(_by_size(candidates), MAX_TRIALS):
        if enough(more):
            return more
    return _spared(candidates, enough)


def _is_evictable(other: Pod, pod: Pod, snapshot: Snapshot) -> bool:
    """Of lower priority, still running, and holding devices."""
    if other.priority >= pod.priority or other.deleting or other.is_finished:
        return False
    held = (snapshot.claims.get(key) for key in claim_keys(other))
    return any(claim is not None and claim.claim.allocation is not None for claim in held)


def _known(victims: Victims, snapshot: Snapshot) -> list[Pod]:
    """Those of the victims that may have devices; others are not kept."""
    return [known for uid in victims.uids if (known := snapshot.pod(uid)) is not None]


def _violations(pods: Iterable[Pod], before: Iterable[Pod], snapshot: Snapshot) -> int:
    """How many of the pods can't be evicted within their budgets, after others have been (upstream's count)."""
    left = {key: budget.allowed for key, budget in snapshot.budgets.items()}

    def breaks(pod: Pod) -> bool:
        covering = [key for key, budget in snapshot.budgets.items() if budget.covers(pod)]
        for key in covering:
            left[key] -= 1
        return any(left[key] < 0 for key in covering)

    for pod in before:
        breaks(pod)
    return sum(breaks(pod) for pod in pods)


def _by_size(candidates: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    """Sets of candidates, small ones first; among equals those first whose members are listed first."""
    for size in range(1, len(candidates) + 1):
        yield from combinations(candidates, size)


def _spared(candidates: Sequence[Pod], enough: Callable[[Iterable[Pod]], bool]) -> Sequence[Pod]:
    """All candidates except those that need not be evicted; the last ones are spared first."""
    evicted = list(candidates)
    for other in reversed(candidates):
        rest = [each for each in evicted if each is not other]
        if enough(rest):
            evicted = rest
    return evicted
