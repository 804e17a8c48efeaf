"""Evictions on one node: which pods join the victims that kube-scheduler has chosen, so that devices suffice.

Holders of devices have kinds: for the room that evictions make, it does not matter which pods of a kind go. Pods are of
one kind if they hold as many devices of the same runs (`allocator.equivalence.KnownRuns`), and no devices together with
other pods. That the answer does not depend on which devices of a run are held is the rule of equivalent nodes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from allocator import Claim, DeviceId, DeviceResult, Node, Reason, Usage
from allocator.equivalence import AttributeReads, KnownRuns, device_circumstances
from allocator.pools import NodePool
from allocator.usage import NOTHING_USED
from extender.cluster.binding_conditions import unmet
from extender.cluster.consumers import after_departures, claim_keys, without_pods
from extender.cluster.objects.budgets import Budget
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import is_feasible, open_cycle
from extender.framework.decisions.solver import Solver
from extender.framework.pods.claims import Blocked
from extender.framework.victims import NO_BORROWERS, VictimOrder
from extender.kube.api import ObjectKey
from extender.tools.smallest_set import Members, irreducible_set, smallest_set

_LOWEST: Final = 2**31
"""Priorities are 32 bits: no priority plus this is negative."""


def is_evictable(other: Pod, pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a pod is of lower priority, bound, still running, and holds devices."""
    if other.priority >= pod.priority or not other.node_name or other.deleting or other.is_finished:
        return False
    held = (snapshot.claims.get(key) for key in claim_keys(other))
    return any(claim is not None and claim.claim.allocation is not None for claim in held)


def awaits_devices(other: Pod, snapshot: Snapshot) -> bool:
    """Whether a pod waits for its devices to be ready (binding conditions): it is not bound yet, and runs nothing."""
    if not other.is_pending:
        return False
    held = (snapshot.claims.get(key) for key in claim_keys(other))
    return any(claim is not None and unmet(claim) is not None for claim in held)


def is_evictable_unbound(other: Pod, pod: Pod, snapshot: Snapshot) -> bool:
    """Like `is_evictable`, or of lower priority and waiting for its devices: these are taken from it, and it lives."""
    is_waiting = other.priority < pod.priority and awaits_devices(other, snapshot)
    return is_waiting or is_evictable(other, pod, snapshot)


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A pod that may be evicted, and the PodDisruptionBudgets that cover it."""

    pod: Pod
    budgets: tuple[ObjectKey, ...]


@dataclass(frozen=True, slots=True)
class Evictions:
    """The evictions that are possible on a node for a pod.

    Attributes:
        snapshot: the cluster once the victims that are given have gone.
        candidates: pods that may join the victims: those that are not bound yet first, then those within their budgets,
            then those whose devices are borrowed, then by priority, then those in no gang, then the youngest.
        allowed: how many more pods of each budget may be evicted.
        order: tells which of the candidates borrow their devices.
    """

    pod: Pod
    node: NodeObject
    snapshot: Snapshot
    candidates: Sequence[EvictionCandidate]
    allowed: Mapping[ObjectKey, int]
    order: VictimOrder = NO_BORROWERS

    @classmethod
    def of(
        cls,
        pod: Pod,
        node: NodeObject,
        given: Iterable[Pod],
        others: Iterable[Pod],
        snapshot: Snapshot,
        solver: Solver,
        may_go: Callable[[Pod, Pod, Snapshot], bool] = is_evictable,
    ) -> "Evictions":
        """The evictions on a node.

        Args:
            pod: for whom room is made.
            node: where room is made.
            given: the victims that are known, and that may hold devices.
            others: pods that may join the victims.
            snapshot: the cluster.
            solver: its features count, and it measures what is borrowed.
            may_go: whether one of the others may be evicted for the pod.
        """
        evicted, near = tuple(given), tuple(others)
        # A terminating pod and a candidate may share a claim: the claim is free once both are gone.
        leaving = (other for other in near if other.deleting or other.is_finished)
        world = without_pods(after_departures(snapshot, node, solver.features), (*evicted, *leaving))
        used = Counter(key for each in evicted for key in budgets_covering(each, snapshot))
        allowed = {key: budget.allowed - used[key] for key, budget in snapshot.objects(Budget).items()}
        found = [
            EvictionCandidate(other, budgets_covering(other, snapshot) if other.node_name else ())
            for other in near
            if other.uid in world.pod_keys and may_go(other, pod, world)
        ]
        order = solver.plugins.victim_order([each.pod for each in found], world, solver)
        entitled = {each.uid for each in order.entitled(each.pod for each in found)}
        found.sort(key=lambda each: each.pod.created, reverse=True)
        found.sort(key=lambda each: _order_of(each, violations([each], allowed), is_entitled=each.pod.uid in entitled))
        return cls(pod, node, world, found, allowed, order)

    def preferred(self, solver: Solver) -> tuple["Evictions", Members | None]:
        """The evictions with only some of the candidates, if these suffice, else with all.

        First only pods that are not bound yet are tried, and then these and borrowers within their budgets.

        Returns:
            The evictions, and their `irreducible` members.

        Raises:
            InvalidClaimError, SelectorError: the pod can run on no node.
            TimeoutError: the solver's time is up.
        """
        entitled = {each.uid for each in self.order.entitled(each.pod for each in self.candidates)}
        unbound = [each for each in self.candidates if not each.pod.node_name]
        allowed = (each for each in self.candidates if not violations([each], self.allowed))
        harmless = [each for each in allowed if each.pod.uid not in entitled or not each.pod.node_name]
        for first in (unbound, harmless) if len(unbound) < len(harmless) else (harmless,):
            if 0 < len(first) < len(self.candidates):
                narrowed = replace(self, candidates=first)
                enough = narrowed.irreducible(solver)
                if enough is not None:
                    return narrowed, enough
        return self, self.irreducible(solver)

    def irreducible(self, solver: Solver) -> Members | None:
        """Candidates that suffice and are all needed. Empty if none has to go; None if no set suffices.

        Once all candidates are gone, the search may find devices that a plugin refuses, such as too many for a
        DeviceQuota, although it finds others once only one candidate is gone. So each candidate is also tried alone.

        Raises:
            InvalidClaimError, SelectorError: the pod can run on no node.
            TimeoutError: the solver's time is up.
        """
        is_enough, number = self._asking(solver), len(self.candidates)
        if is_enough(()):
            return ()
        found = irreducible_set(number, is_enough)
        if found is None and solver.plugins.count_holders(self.pod, self.snapshot):
            found = next(filter(is_enough, ((each,) for each in range(number))), None)
        return found

    def smallest(self, most: int, solver: Solver) -> Members | None:
        """The fewest candidates that suffice. If there are several such sets, the one that kube-scheduler would prefer.

        Args:
            most: a number of candidates that suffices.
            solver: the allocator.

        Returns:
            None if there are more sets than can be compared (`smallest_set`).

        Raises:
            InvalidClaimError, SelectorError: the pod can run on no node.
            TimeoutError: the solver's time is up.
        """
        kinds = self.kinds(solver)
        is_enough = self._remembering(kinds, solver)
        fewest = smallest_set(kinds, is_enough, lambda members: members, most, solver.look)
        if fewest is None:
            return None
        size, pairs = len(fewest), zip(self.candidates, kinds, strict=True)
        finer = [(each.budgets, kind, self.order.kind(each.pod), each.pod.gang is None) for each, kind in pairs]
        return smallest_set(finer, is_enough, self._order, size, solver.look, least_members=size) or fewest

    def pods(self, members: Members) -> Sequence[Pod]:
        """The pods of some candidates."""
        return [self.candidates[each].pod for each in members]

    def _asking(self, solver: Solver) -> Callable[[Members], bool]:
        """Whether the pod could be bound once some of the candidates are gone."""

        def is_enough(members: Members) -> bool:
            return is_feasible(self.pod, self.node, without_pods(self.snapshot, self.pods(members)), solver)

        return is_enough

    def _remembering(self, kinds: Sequence[Hashable], solver: Solver) -> Callable[[Members], bool]:
        """Like `_asking`, once for all sets with as many candidates of each kind."""
        is_enough, known = self._asking(solver), dict[Hashable, bool]()

        def remembered(members: Members) -> bool:
            key = frozenset(Counter(kinds[each] for each in members).items())
            if key not in known:
                known[key] = is_enough(members)
            return known[key]

        return remembered

    def kinds(self, solver: Solver) -> Sequence[Hashable]:
        """The kind of each candidate: those of one kind leave as much room.

        If it counts who holds devices, each candidate is of its own kind: some give back what a DeviceQuota counts.
        """
        if solver.plugins.count_holders(self.pod, self.snapshot):
            return range(len(self.candidates))
        cycle = open_cycle(self.pod, self.snapshot, solver)
        needs = cycle.reason if isinstance(cycle, Blocked) else cycle.claims.on(self.node)
        if isinstance(cycle, Blocked) or isinstance(needs, Reason):
            return range(len(self.candidates))
        claims = tuple(each.claim for each in (*cycle.claims.allocated, *needs.pending))
        reads = solver.reads(claims, self.snapshot.classes)
        views = self.snapshot.inventory.for_node(self.node.node, solver.features)
        return _holder_kinds([each.pod for each in self.candidates], self.node.node, self.snapshot, views, reads)

    def rank(self, members: Members) -> tuple[Any, ...]:
        """The rank of a node as kube-scheduler has it (``pickOneNodeForPreemption``): the lowest one is the best.

        Only pods with a node count. After the budgets, only those count that do not give back borrowed devices. All of
        them count where these are equal.
        """
        chosen, pods = (
            [self.candidates[each] for each in members],
            [each for each in self.pods(members) if each.node_name],
        )
        entitled, harm = self.order.entitled(pods), _harm(pods)
        return violations(chosen, self.allowed), harm if len(entitled) == len(pods) else _harm(entitled), harm

    def _order(self, members: Members) -> tuple[Any, ...]:
        """Like `rank`, but different sets never have the same rank."""
        return *self.rank(members), members


def _harm(pods: Sequence[Pod]) -> tuple[Any, ...]:
    """What counts of victims: less than anything else if there are none."""
    if not pods:
        return ()
    highest = max(each.priority for each in pods)
    oldest = min(each.started or each.created for each in pods if each.priority == highest)
    in_gangs = sum(each.gang is not None for each in pods)
    # Negative priorities must not make more victims better. What is left of a gang may be of no use.
    return highest, sum(each.priority + _LOWEST for each in pods), len(pods), in_gangs, _Latest(oldest)


def _order_of(candidate: EvictionCandidate, violated: int, *, is_entitled: bool) -> tuple[Any, ...]:
    """Candidates with a lower order go first."""
    pod = candidate.pod
    return bool(pod.node_name), violated, is_entitled, pod.priority, pod.gang is not None


@dataclass(frozen=True, slots=True)
class _Latest:
    """A time that sorts before earlier times."""

    time: str

    def __lt__(self, other: "_Latest") -> bool:
        return self.time > other.time


def violations(evicted: Iterable[EvictionCandidate], allowed: Mapping[ObjectKey, int]) -> int:
    """The number of pods that can't be evicted within their budgets, as kube-scheduler counts them one after the other.

    Args:
        evicted: the pods; their order makes no difference.
        allowed: how many pods of each budget may be evicted.
    """
    left = dict(allowed)
    found = 0
    for budgets in sorted(each.budgets for each in evicted):
        for key in budgets:
            left[key] -= 1
        found += any(left[key] < 0 for key in budgets)
    return found


def budgets_covering(pod: Pod, snapshot: Snapshot) -> tuple[ObjectKey, ...]:
    """The PodDisruptionBudgets that an eviction of the pod takes from."""
    return tuple(sorted(key for key, budget in snapshot.objects(Budget).items() if budget.covers(pod)))


def _holder_kinds(
    pods: Sequence[Pod], node: Node, snapshot: Snapshot, views: Sequence[NodePool], reads: AttributeReads
) -> list[Hashable]:
    """The kind of each pod.

    Args:
        pods: running pods that hold devices.
        node: where room is made.
        snapshot: the cluster.
        views: the pools that the node sees.
        reads: of the claims that need the room.
    """
    runs = {} if reads.in_order else dict(_runs(node, snapshot, views, reads))
    return [_kind(pod, snapshot, runs) for pod in pods]


def _kind(pod: Pod, snapshot: Snapshot, runs: Mapping[DeviceId, Hashable]) -> Hashable:
    claims = [found.claim for key in claim_keys(pod) if (found := snapshot.claims.get(key)) is not None]
    if not all(_is_only_for(pod, claim) for claim in claims):
        return pod.uid
    held = (result for claim in claims if claim.allocation is not None for result in claim.allocation.results)
    return frozenset(
        Counter(_freed(result, snapshot.usage, runs) for result in held if not result.admin_access).items()
    )


def _is_only_for(pod: Pod, claim: Claim) -> bool:
    return len(claim.reserved_for) == 1 and claim.reserved_for[0].uid == pod.uid


def _freed(result: DeviceResult, usage: Usage, runs: Mapping[DeviceId, Hashable]) -> Hashable:
    """What is free once the device, or the share of it, is released."""
    used = usage.device(result.device)
    if result.share_id is not None:
        return result.device, frozenset((result.consumed_capacity or {}).items())
    is_whole = used.holders == 1 and not used.shares and not used.consumed
    return runs.get(result.device, result.device) if is_whole else (result.device, used.holders)


def _runs(
    node: Node, snapshot: Snapshot, views: Sequence[NodePool], reads: AttributeReads
) -> Iterator[tuple[DeviceId, Hashable]]:
    """The run of each device; none for pools with devices that a rule taints, or that have a placement of their own."""
    for view, lengths in zip(views, KnownRuns(reads).of(views), strict=True):
        if not device_circumstances(view, node, NOTHING_USED, snapshot.taint_rules):
            numbers = [number for number, length in enumerate(lengths) for _ in range(length)]
            for candidate, number in zip(view.candidates, numbers, strict=True):
                yield candidate.device.id, (view.id, number)
