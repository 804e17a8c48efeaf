"""The planner: puts pods on forks of a cluster, by the code of the verbs. Nothing is written.

A fork is a value (`extender.cluster.snapshot.Snapshot`): whatever happens in a plan makes another fork.

A plan judges a pod as it is, or as `as_planned` makes it: alone, off its node, with all of its claims made. `turns`,
`settled` and `takers` do the latter. Controllers of negotiated claims are not asked, and nobody waits for binding
conditions.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

from allocator import AllocationResult, DeviceId, InvalidClaimError, PoolId, Reason, SelectorError, Usage
from extender.cluster.consumers import claim_keys, consumer_of, without_pods
from extender.cluster.kinds import Topic
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import NOTHING_KEPT, Pod
from extender.cluster.resources import ClaimResources
from extender.cluster.snapshot import Snapshot, pools_of
from extender.cluster.timeline import ChangeLog
from extender.framework.cycle import Cycle, policy_of, refreshed
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No, Solver
from extender.framework.decisions.verdict import Reasons
from extender.framework.filter import Bounds, FilterResult, filter_nodes
from extender.framework.held_devices import found_on
from extender.framework.pods.claims import Blocked, PodClaims, claim_from_template, claims_of, not_ready, unready
from extender.framework.pods.extended_resources import Needs
from extender.framework.ranking import score_nodes
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import FirstNode, NodeChoice, SchedulerChecks, rejection


@dataclass(frozen=True, slots=True)
class Grant:
    """The devices that a pod gets on a node; nothing is held yet.

    Attributes:
        claims: of the pod, before the grant.
        needs: what was to be allocated on the node.
        results: for each pending claim of the needs.
        resources: what the pod takes of the node by its claims.
    """

    claims: PodClaims
    needs: Needs
    results: tuple[AllocationResult, ...] = ()
    resources: tuple[ClaimResources, ...] = ()

    @property
    def pools(self) -> frozenset[PoolId]:
        """The pools that the devices are from."""
        return frozenset(each.device.pool_id for result in self.results for each in result.results)

    def used(self, usage: Usage) -> Usage:
        """What is in use once the pod holds its devices."""
        for each in self.results:
            usage = usage.with_allocation(each)
        return usage

    def held(self, pod: Pod, node_name: str, fork: Snapshot) -> Snapshot:
        """The cluster with the pod on the node: its claims are allocated, and reserved for it."""
        if self.claims.is_empty:
            return fork
        fork = self.needs.world(fork)
        results = map(_ready, self.results)
        before = ((each, each.claim.allocation) for each in self.claims.allocated)
        for each, allocation in chain(before, zip(self.needs.pending, results, strict=True)):
            consumer = consumer_of(pod, each.claim, fork)
            users = tuple(user for user in each.claim.reserved_for if user.uid != consumer.uid)
            claim = replace(each.claim, allocation=allocation, reserved_for=(*users, consumer))
            fork = fork.with_claim(replace(each, claim=claim))
        taken = replace(pod.resources, claims=self.resources)
        bound = replace(pod, node_name=node_name, nominated_node="", extended_claim=self.needs.status, resources=taken)
        return fork.with_pod(bound)


def allocations_of(pod: Pod, fork: Snapshot) -> Iterator[AllocationResult]:
    """What the claims of a pod hold."""
    for key in claim_keys(fork.pods.get(pod.key, pod)):
        claim = fork.claims.get(key)
        if claim is not None and claim.claim.allocation is not None:
            yield claim.claim.allocation


def _ready(allocation: AllocationResult) -> AllocationResult:
    """The allocation without binding conditions: a plan does not wait for them."""
    if not any(each.binding_conditions for each in allocation.results):
        return allocation
    results = (replace(each, binding_conditions=None, binding_failure_conditions=None) for each in allocation.results)
    return replace(allocation, results=tuple(results))


_SIGNATURES: Final = 1024
"""More shapes and kinds of pods than most clusters have."""

_CHANGES: Final = 100_000
"""More than all turns of a plan make."""

_CHUNK: Final = 512
"""Nodes that are judged before it is asked whether one of them takes the pod."""


class Queued(NamedTuple):
    """A pod that waits for a node, and its shape: after a pod finds no node, no later pod of its shape finds one."""

    pod: Pod
    shape: Hashable


@dataclass(frozen=True, slots=True)
class Turns:
    """The cluster after some pods had their turn.

    Attributes:
        snapshot: with the pods that got a node, and their devices.
        nodes: uid of a pod to its node; a pod that got no node is absent.
        refusals: shape to filter's answer for the first pod of the shape that got no node.
    """

    snapshot: Snapshot
    nodes: Mapping[str, str]
    refusals: Mapping[Hashable, FilterResult]


class LateError(TimeoutError):
    """The solver's time is up before all pods had their turn.

    Attributes:
        so_far: the cluster after the turns that there were.
    """

    def __init__(self, so_far: Turns) -> None:
        super().__init__()
        self.so_far = so_far


class UndecidedError(Exception):
    """A search was stopped, and no other node takes the pod."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Puts pods on forks.

    Attributes:
        solver: for as long as there is time.
        decider: remembers verdicts of this solver on the cluster that all forks come from.
    """

    solver: Solver
    decider: Decider

    @classmethod
    def remembering(cls, solver: Solver) -> "Planner":
        """A planner with a memory of its own, for many forks of one cluster."""
        return cls(solver, Decider(solver, None, signatures=_SIGNATURES))

    def by(self, solver: Solver) -> "Planner":
        """The planner with the same solver for another time."""
        return replace(self, solver=solver)

    def among(self, devices: Collection[DeviceId]) -> "Planner":
        """The planner that gives no other devices to a pod than these."""
        return self.by(replace(self.solver, among=devices))

    # --- one pod, as it is ----------------------------------------------------------------------------------

    def take(self, pod: Pod, node_name: str, fork: Snapshot) -> Grant | No:
        """What a pod, whose claims are there, gets on a node; or why it gets nothing.

        Raises:
            TimeoutError: the solver's time is up.
        """
        claims, node, solver = claims_of(pod, fork), fork.nodes[node_name], self.solver
        if isinstance(claims, Blocked):
            return No(claims.reason)
        if claims.is_empty:
            return Grant(claims, Needs())
        waiting, needs = unready(claims, solver.features), claims.on(node)
        if waiting is not None:
            return No(not_ready(waiting))
        if isinstance(needs, Reason):
            return No(needs)
        try:
            found = found_on(node, pod, fork, solver)
        except (InvalidClaimError, SelectorError) as error:
            return No(error.reason)
        if isinstance(found, No):
            return found
        cycle = Cycle(pod, claims, fork, solver)
        resources = cycle.resources(node, needs, found) if cycle.counts_resources else ()
        return Grant(claims, needs, found.results, resources)

    def place(self, pod: Pod, node_name: str, fork: Snapshot) -> Snapshot | No:
        """Put a pod on a node: its claims, which are there, are allocated and reserved for it; or why they can't be.

        Raises:
            TimeoutError: the solver's time is up.
        """
        found = self.take(pod, node_name, fork)
        return found if isinstance(found, No) else found.held(pod, node_name, fork)

    def filter(self, pod: Pod, names: Sequence[str], fork: Snapshot, *, most: int | None = None) -> FilterResult:
        """Filter's answer about some nodes: nodes for which there is no time are left out.

        Args:
            pod: its claims are there.
            names: the nodes.
            fork: the cluster.
            most: the most nodes to name, the best ones; None: all that fit.

        Raises:
            TimeoutError: time was up before any node was found.
        """
        bounds = Bounds(self.solver.until, most)
        return filter_nodes(pod, names, fork, self.solver, decider=self.decider, bounds=bounds)

    def first_taker(self, pod: Pod, names: Sequence[str], fork: Snapshot, until: float) -> NodeObject | None:
        """The first of the nodes that takes the pod and that kube-scheduler does not reject; None if there is none.

        Args:
            pod: the pod.
            names: the nodes, in the order in which they are judged.
            fork: the cluster.
            until: when to begin no more nodes, by the solver's clock.

        Raises:
            TimeoutError: not all nodes were judged in time.
            UndecidedError: the search on one of them was stopped.
        """
        bounds, undecided = Bounds(until), False
        kept = [pod.kept.node] if pod.kept.node in names else []
        for start in range(0, len(names), _CHUNK):
            chunk = [*kept, *names[start : start + _CHUNK]]
            result = filter_nodes(pod, chunk, fork, self.solver, decider=self.decider, bounds=bounds)
            taken = (fork.nodes[name] for name in result.passed)
            suiting = next((node for node in taken if not rejection(pod.requirements, node)), None)
            if suiting is not None:
                return suiting
            undecided = undecided or result.is_undecided
        if undecided:
            raise UndecidedError
        return None

    # --- pods as planned ------------------------------------------------------------------------------------

    def takers(self, pod: Pod, names: Sequence[str], fork: Snapshot) -> FilterResult:
        """Which of some nodes take a pod, also by kube-scheduler's checks. A pod that is on a node leaves it first.

        Raises:
            TimeoutError: the solver's time is up. Filter itself leaves out nodes for which there is no time.
        """
        pod, fork = as_planned(pod, fork)
        rejected = SchedulerChecks(fork, names).rejections(pod)
        return self._filtered(pod, fork, [name for name in names if name not in rejected])

    def turns(self, queue: Iterable[Queued], fork: Snapshot, names: Sequence[str]) -> Turns:
        """Give each pod the best of some nodes. Of equal nodes the first one is taken; kube-scheduler takes any.

        Args:
            queue: the first pod has the first turn.
            fork: the cluster.
            names: the nodes.

        Raises:
            LateError: the solver's time is up.
        """
        return self._turns(queue, fork, names, lambda _pod, _node, after: after)

    def long_turns(self, queue: Iterable[Queued], fork: Snapshot, names: Sequence[str]) -> Turns:
        """Like `turns`, for many pods: after each turn, only what the pod has taken is judged again.

        What the planner remembers does not help here, so the turns have a memory of their own. The versions of the
        forks count the turns.
        """
        log = ChangeLog(_CHANGES)
        decider = Decider(self.solver, log, signatures=_SIGNATURES)

        def followed(pod: Pod, node: str, after: Snapshot) -> Snapshot:
            after = after._replace(version=after.version + 1)
            log.add(after.version, _topics_of_placement(pod, node, after))
            decider.follow(after)
            return after

        fork = fork._replace(version=0)
        decider.follow(fork)
        return replace(self, decider=decider)._turns(queue, fork, names, followed)

    def settled(self, queue: Sequence[Queued], fork: Snapshot, names: Sequence[str]) -> Turns:
        """The cluster after each pod that fits has its node. Forks of that cluster are quick to ask about.

        The refusals are those of the cluster with all of these pods. Arguments and errors are those of `turns`.
        """
        self.decider.follow(fork)
        first = self.turns(queue, fork, names)
        self.decider.follow(first.snapshot)
        left = [each for each in queue if each.pod.uid not in first.nodes]
        then = self.turns(left, first.snapshot, names)
        return Turns(then.snapshot, {**first.nodes, **then.nodes}, then.refusals)

    def _turns(
        self,
        queue: Iterable[Queued],
        fork: Snapshot,
        names: Sequence[str],
        followed: Callable[[Pod, str, Snapshot], Snapshot],
    ) -> Turns:
        """Like `turns`. ``followed`` gets each pod, its node and the fork then, and returns the fork to go on with."""
        choice = FirstNode(fork, names)
        nodes: dict[str, str] = {}
        refusals: dict[Hashable, FilterResult] = {}
        for pod, shape in queue:
            if shape in refusals:
                continue
            try:
                self.solver.look()
                found = self._turn(pod, fork, names, choice)
            except TimeoutError:
                raise LateError(Turns(fork, nodes, refusals)) from None
            if isinstance(found, FilterResult):
                refusals[shape] = found
                continue
            fork, node = found
            fork = followed(pod, node, fork)
            nodes[pod.uid] = node
            choice.place(pod, node)
        return Turns(fork, nodes, refusals)

    def _turn(
        self, pod: Pod, fork: Snapshot, names: Sequence[str], choice: NodeChoice
    ) -> tuple[Snapshot, str] | FilterResult:
        """The cluster with the pod, and its node; or filter's answer."""
        rejected = choice.rejections(pod)
        pod, fork = as_planned(pod, fork)
        result = self._filtered(pod, fork, [name for name in names if name not in rejected])
        if not result.passed:
            return result
        scores = score_nodes(result.passed, result.merits, policy_of(pod, self.solver.policy) or self.solver.policy)
        most = max(scores)
        best = [name for name, score in zip(result.passed, scores, strict=True) if score == most]
        node = choice.choose(pod, best)
        found = self.place(pod, node, fork)
        if isinstance(found, No):
            return FilterResult((), unresolvable=Reasons.alike((node,), found.reason))
        return found, node

    def _filtered(self, pod: Pod, fork: Snapshot, names: Sequence[str]) -> FilterResult:
        result = self.filter(pod, names, fork)
        self.solver.look()
        return result


def _topics_of_placement(pod: Pod, node: str, fork: Snapshot) -> Iterator[tuple[Topic, str | PoolId]]:
    """What a pod has taken of a node. The node counts, too: its CPU is less, whatever pools the devices are from."""
    yield Topic.CPU, node
    yield Topic.NODE, node
    for allocation in allocations_of(pod, fork):
        for pool in pools_of(allocation):
            yield Topic.POOL, pool


TIED: Final = {"DaemonSet": "{} runs it on this node", "Node": "it is a static pod of its node"}
"""Kinds of controllers whose pods run again on the same node only, with the reason."""


def as_planned(pod: Pod, fork: Snapshot) -> tuple[Pod, Snapshot]:
    """The pod as plans judge it: as `with_claims`, and a pod of a gang alone."""
    pod, fork = with_claims(pod, fork)
    return replace(pod, gang=None), fork


def with_claims(pod: Pod, fork: Snapshot) -> tuple[Pod, Snapshot]:
    """The pod with the names of its claims, and the cluster with those that are not made from their templates yet.

    A pod that runs somewhere, and is asked about without a node, is to move: first its devices are free again.
    """
    pod, known = refreshed(pod, fork), fork.pod(pod.uid)
    if known is not None and known.node_name and not pod.node_name:
        fork = without_pods(fork, [known])
    for reference in pod.claims:
        name = pod.claim_statuses.get(reference.name, f"{pod.name}/{reference.name}")
        if name is None or ObjectKey(pod.namespace, name) in fork.claims:
            continue
        claim = claim_from_template(pod, reference, name, fork)
        if claim is not None:
            fork = fork.with_claim(claim)
            pod = replace(pod, claim_statuses={**pod.claim_statuses, reference.name: name})
    return pod, fork


def unbound(pod: Pod) -> Pod:
    """The pod that a controller makes in place of this one, once this one is deleted."""
    new = replace(pod, node_name="", nominated_node="", kept=NOTHING_KEPT, extended_claim=None)
    return replace(new, phase="Pending", has_started=False)
