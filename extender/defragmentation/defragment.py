"""Finds out which few moves make room for which pending pods of a cluster. Nothing is written."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from allocator import AllocatorError
from extender.cluster.consumers import after_departures
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.defragmentation.advice import Advice, MoveProposal, ShapeAdvice
from extender.defragmentation.mobility import Mobility, held_devices
from extender.defragmentation.search import MoveSearch
from extender.defragmentation.shortage import shortage
from extender.defragmentation.trial import MoveTrials
from extender.kube.api import ObjectKey
from extender.observe.tables.pods import asked_for
from extender.planning.planner import Planner
from extender.planning.queue import PendingShape, shapes_of, waiting_pods
from extender.pods.claims import Blocked, claims_of
from extender.pods.extended_resources.requests import request_nouns
from extender.pods.feasibility import Part
from extender.verbs.filter import FilterResult

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
    mobility = Mobility(settled.snapshot, running, names, planner, schedulers)
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
        unmodeled=tuple(sorted({what for pod in (*served, *movers) for what in pod.unmodeled})),
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
        if refusal.is_blocked or Part.QUOTA in refusal.by:
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
        if pod.may_preempt:
            found = search.proposal(self.shape, self.solver, evicts=True)
        yield found


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
