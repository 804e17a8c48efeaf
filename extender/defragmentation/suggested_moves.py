"""Suggested moves: for a pod that fits nowhere, the moves by which `defragment` makes room for it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from allocator import RemedyKind
from extender.cluster.consumers import claim_keys, without_pods
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.defragmentation.advice import Move
from extender.defragmentation.defragment import SearchBounds, defragment
from extender.explain.change import Fork, ProposedChange, Suggestion
from extender.explain.proposals import returned


@dataclass(frozen=True, slots=True)
class SuggestedMoves:
    """Suggests moves of other pods; implements `extender.explain.change.Suggest`.

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
