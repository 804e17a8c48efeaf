"""Finds out which few moves make room for which pending pods of a cluster. Nothing is written.

A pod whose devices would suffice if they were on one node is worth a search. For a pod that fits nowhere, an
explanation suggests the moves that the search has found. A running service is asked by `AskedMoves`.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio.to_thread

from allocator import AllocatorError
from allocator.checks import ways_to_serve
from allocator.obstacles import RemedyKind
from extender.answers.asking import ANSWER_SECONDS, Asking, patient
from extender.answers.defragmentation.advice import Advice, Move, MoveProposal, ShapeAdvice
from extender.answers.defragmentation.search import Mobility, MoveSearch, MoveTrials, held_devices
from extender.answers.explain.device_survey import Survey
from extender.answers.explain.explanation import RequestReport, unknown_pod
from extender.answers.explain.holders import Holders
from extender.answers.explain.pod_claims import targets_of
from extender.answers.explain.proposals import returned
from extender.answers.observe.overview import Overview
from extender.answers.observe.tables.pods import asked_for
from extender.cluster.consumers import after_departures, claim_keys, without_pods
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.whole_pods import ListedPods
from extender.framework.decisions.solver import Solver
from extender.framework.filter import FilterResult
from extender.framework.pods.claims import Blocked, PodClaims, claims_of
from extender.framework.pods.extended_resources import Needs, in_words, request_nouns, request_words
from extender.kube.api import ObjectKey
from extender.planning.changes import Fork, ProposedChange, Suggestion
from extender.planning.kube_scheduler import Attempts, not_modeled, rejection
from extender.planning.planner import Planner
from extender.planning.queue import PendingShape, shapes_of, waiting_pods
from extender.tools.table import QueryError


def shortage(pod: Pod, snapshot: Snapshot, solver: Solver) -> str:
    """Why no move helps: what is missing on all nodes of the pod together; empty if nothing is missing.

    Each request is judged alone: constraints between devices, and shared counters, may still be in the way.

    Raises:
        TimeoutError: the solver's time is up.
    """
    ways = surveyed(pod, snapshot, solver)
    return ways if isinstance(ways, str) else in_words("; ".join(_lacking(ways)), request_words(pod))


def surveyed(pod: Pod, snapshot: Snapshot, solver: Solver) -> Sequence[Sequence[RequestReport]] | str:
    """The ways to serve each request of a pod, with the suitable devices on all of its nodes together; or why none.

    Raises:
        TimeoutError: the solver's time is up.
    """
    claims = claims_of(pod, snapshot)
    nodes = [node for node in snapshot.nodes.values() if not rejection(pod.requirements, node)]
    if not nodes:
        return "kube-scheduler itself rejects all nodes"
    if isinstance(claims, Blocked):
        return claims.reason.in_words()
    targets = targets_of(pod, _most_pending(claims, nodes))
    requests = ways_to_serve(tuple(target.claim.claim for target in targets), snapshot.classes)
    survey = Survey(requests, snapshot, nodes, solver, solver.look)
    reports = iter(survey.reports(targets, Holders(snapshot, pod)))
    return [[next(reports) for _ in ways] for ways in requests]


def _most_pending(claims: PodClaims, nodes: Sequence[NodeObject]) -> Sequence[ClaimObject]:
    """The claims to allocate. A node with a device plugin needs no special claim."""
    needs = [found.pending for node in nodes if isinstance(found := claims.on(node), Needs)]
    return max(needs, key=len, default=())


def _lacking(requests: Sequence[Sequence[RequestReport]]) -> Iterator[str]:
    for ways in requests:
        if all(way.free < way.need for way in ways):
            way = ways[0]
            are = "device is" if way.free == 1 else "devices are"
            yield f"request {way.request} asks for {way.asks}, and {way.free} suitable {are} free on all nodes together"


MOVES: Final = 3
"""The most pods that a proposal moves, unless the caller says another number."""

SECONDS: Final = 30.0
"""The time for the search, unless the caller says another time."""

LATE: Final = "there was not enough time to try everything"


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """Bounds of the search.

    Attributes:
        moves: the most pods that a proposal moves.
        seconds: for all shapes together, by the solver's clock. A shape gets an equal share of the time that is left.
    """

    moves: int = MOVES
    seconds: float = SECONDS


def defragment(
    snapshot: Snapshot,
    solver: Solver,
    *,
    only: ObjectKey | None = None,
    bounds: SearchBounds = SearchBounds(),
    schedulers: Collection[str] = (),
    progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Advice:
    """The moves that make room for pending pods.

    The cluster counts as it will be soon: terminating pods have gone, and pending pods that fit have their nodes. Each
    proposal is for that cluster, without the other proposals.

    Args:
        snapshot: the cluster.
        solver: the allocator.
        only: a pending pod, to look for room for its shape; None: for all shapes.
        bounds: of the search.
        schedulers: names of the schedulers that call the extender; empty: not known.
        progress: called after each shape with the number of shapes that are done, and of all.

    Raises:
        TimeoutError: not even the pods that fit have their nodes in time.
    """
    solver = solver.within(solver.clock() + bounds.seconds)
    names = sorted(snapshot.nodes)
    snapshot = _after_all_departures(snapshot, solver)
    running = [pod for pod in map(snapshot.pods.__getitem__, sorted(snapshot.pods)) if _runs(pod, snapshot)]
    snapshot, queue = waiting_pods(snapshot, solver, schedulers)
    planner = Planner.remembering(solver)
    settled = planner.settled(queue, snapshot, names)
    left = tuple(each for each in queue if each.pod.uid not in settled.nodes)
    shapes = [shape for shape in shapes_of(left) if only is None or any(pod.key == only for pod in shape.pods)]
    mobility = Mobility(settled.snapshot, running, names, planner, Attempts(snapshot, schedulers))
    search = MoveSearch.of(mobility, MoveTrials(settled.snapshot, left, names, planner), bounds.moves)
    found: list[ShapeAdvice] = []
    for number, shape in enumerate(shapes):
        advisor = _Advisor(search, shape, solver.share(len(shapes) - number))
        found.append(advisor.advice(settled.refusals[shape.key]))
        progress(number + 1, len(shapes))
    served = [pod for shape, each in zip(shapes, found, strict=True) if each.proposal for pod in shape.pods]
    movers = [move.pod for each in found if each.proposal for move in each.proposal.moves]
    return Advice(
        shapes=tuple(sorted(found, key=_worth)),
        spared=mobility.spared(solver) if shapes else (),
        fitting=tuple((str(each.pod), node) for each in queue if (node := settled.nodes.get(each.pod.uid))),
        unmodeled=not_modeled((*served, *movers), snapshot),
    )


@dataclass(frozen=True, slots=True)
class _Advisor:
    """Advice for one shape.

    Attributes:
        solver: for as long as there is time for this shape.
    """

    search: MoveSearch
    shape: PendingShape
    solver: Solver

    def advice(self, refusal: FilterResult) -> ShapeAdvice:
        """The advice; a fault on the way becomes the reason why there is no proposal."""
        pods = tuple(map(str, self.shape.pods))
        asks = tuple(asked_for(self.shape.pod, self.search.trials.snapshot))
        found: list[MoveProposal | str] = []
        with self.solver.faults.of(f"pod {self.shape.pod}", found.append):
            found.append(next(self._outcomes(refusal)))
        outcome = found[0]
        if isinstance(outcome, str):
            return ShapeAdvice(pods, asks, reason=outcome)
        return ShapeAdvice(pods, asks, outcome)

    def _outcomes(self, refusal: FilterResult) -> Iterator[MoveProposal | str]:
        """The proposal, or why there is none, comes first."""
        try:
            yield from self._tried(refusal)
        except AllocatorError as error:
            yield str(error)
        except TimeoutError:
            yield LATE

    def _tried(self, refusal: FilterResult) -> Iterator[MoveProposal | str]:
        pod, search = self.shape.pod, self.search
        if refusal.is_blocked or not self.solver.plugins.counting.isdisjoint(refusal.by):
            claims = claims_of(pod, search.trials.snapshot)
            otherwise = claims.reason.in_words() if isinstance(claims, Blocked) else "no node suits the pod"
            yield next(iter(refusal.unresolvable.counts(request_nouns(pod))), otherwise)
        if pod.nominated_node:
            yield f"devices are freed for the pod on node {pod.nominated_node} already"
        found = search.proposal(self.shape, self.solver, evicts=False)
        if isinstance(found, MoveProposal):
            yield found
        if lacking := shortage(pod, search.trials.snapshot, self.solver):
            yield lacking
        if not search.trials.snapshot.never_preempts(pod):
            found = search.proposal(self.shape, self.solver, evicts=True)
        yield found


def why_not(key: ObjectKey, snapshot: Snapshot, schedulers: Collection[str]) -> str:
    """Why no room can be made for a pod, whatever moves; empty if some can be looked for.

    Args:
        key: of the pod.
        snapshot: the cluster.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """
    pod = snapshot.pods.get(key)
    if pod is None:
        return unknown_pod(key, snapshot.pods)
    if not pod.is_pending:
        return f"pod {key} is not pending: " + (f"its node is {pod.node_name}" if pod.node_name else "it has ended")
    reason = Attempts(snapshot, schedulers).hindrance(pod)
    return f"pod {key}: {reason}" if reason else ""


def _after_all_departures(snapshot: Snapshot, solver: Solver) -> Snapshot:
    """The cluster once pods that are gone or terminating have released their devices."""
    for node in snapshot.nodes.values():
        solver.look()
        snapshot = after_departures(snapshot, node, solver.features)
    return snapshot


def _runs(pod: Pod, snapshot: Snapshot) -> bool:
    """The pod is on a node, will stay there, and holds devices."""
    return bool(pod.node_name) and not (pod.deleting or pod.is_finished) and held_devices(pod, snapshot) > 0


def _worth(advice: ShapeAdvice) -> tuple[object, ...]:
    """Proposals first; among them, most pods that get devices for each pod that makes room."""
    proposal = advice.proposal
    if proposal is None:
        return True, advice.pods
    return False, proposal.evictions, -proposal.yields, len(proposal.moves), advice.pods


@dataclass(frozen=True, slots=True)
class SuggestedMoves:
    """Suggests moves of other pods; implements `extender.planning.changes.Suggest`.

    Attributes:
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    schedulers: Collection[str] = ()

    def __call__(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> Iterator[Suggestion]:
        """The moves of the best proposal for the pod, unless pods would be evicted that find no other place."""
        if pod.key not in snapshot.pods:
            return
        bounds = SearchBounds(seconds=max(0.0, (solver.until - solver.clock()) / 2))
        advice = defragment(snapshot, solver, only=pod.key, bounds=bounds, schedulers=self.schedulers)
        for proposal in advice.proposals:
            if not proposal.evictions and str(pod) in proposal.placed:
                moves = enumerate(proposal.moves)
                yield Suggestion(tuple(_change(n, each, proposal.node, solver) for n, each in moves), proposal.node)


def _change(number: int, move: Move, room: str, solver: Solver) -> ProposedChange:
    """A move as it is carried out: in its turn, and the node where room is made is cordoned meanwhile."""
    pod = move.pod
    steps = (
        f"kubectl cordon {room}",
        f"kubectl delete pod -n {pod.namespace} {pod.name}",
        f"once {pod.controller} has made it again and it has its node, kubectl uncordon {room}",
    )
    return ProposedChange(
        RemedyKind.MOVE,
        f"claim {next(iter(claim_keys(pod)), pod.key)}",
        f"move pod {pod} from node {pod.node_name} to node {move.to}",
        "; ".join(steps),
        _moved(pod, move.to, solver),
        position=-number,
    )


def _moved(pod: Pod, to: str, solver: Solver) -> Fork:
    """The cluster in which the successor of a pod has a place on a node; the same cluster if it finds none there."""

    def fork(before: Snapshot) -> Snapshot:
        after, successor = returned(pod, before, without_pods(before, [pod]), solver, only=to)
        return after if successor.node else before

    return fork


_TOO_LONG: Final = (
    f"{ANSWER_SECONDS:g} s are not enough to look at the pending pods: ask about one pod, or use "
    "dra-extender defragment"
)


@dataclass(frozen=True, slots=True)
class AskedMoves:
    """Finds out which few moves would make room for pending pods, one question after the other.

    Attributes:
        overview: of the cluster.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    overview: Overview
    schedulers: Sequence[str] = ()
    _asking: Asking = field(default_factory=lambda: Asking(_TOO_LONG))

    async def ask(self, only: ObjectKey | None, moves: int, caller: str = "") -> Advice:
        """The moves. A caller that is cancelled ends the search.

        Args:
            only: a pending pod, to look for room for its shape; None: for all.
            moves: the most pods that a proposal moves.
            caller: whose place the search takes.

        Raises:
            QueryError: there is no such pod, or it does not wait for a node.
            RefusedError: the cluster is not known well enough, or the search takes too long.
            CrowdedError: others wait.
        """
        return await self._asking.answer(caller, partial(self._worked, only, moves))

    async def _worked(self, only: ObjectKey | None, moves: int, gone: threading.Event) -> Advice:
        listed = await self.overview.listed_pods()
        snapshot = self.overview.state.known()
        return await anyio.to_thread.run_sync(partial(self._found, snapshot, listed, only, moves, gone))

    def _found(
        self, snapshot: Snapshot, listed: ListedPods, only: ObjectKey | None, moves: int, gone: threading.Event
    ) -> Advice:
        whole = listed.beside(snapshot)
        if only is not None and (problem := why_not(only, whole, self.schedulers)):
            raise QueryError(problem)
        solver = patient(self.overview.decider.solver, self.overview.verb_priority.turn(), gone)
        bounds = SearchBounds(moves, ANSWER_SECONDS)
        return defragment(whole, solver, only=only, bounds=bounds, schedulers=self.schedulers)
