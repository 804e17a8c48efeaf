"""Searches the fewest moves that make room for a shape: node by node, those first where the fewest pods have to move.

Each set of moves is tried out on a fork: the pods that move get other nodes, then the pending pods get the room. This
is the order in which people carry a proposal out: they cordon the node, delete the pods, wait until the new pods run
elsewhere, and uncordon the node.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import comb
from typing import Final

from immutables import Map

from extender.answers.defragmentation.advice import Move, MoveProposal
from extender.answers.defragmentation.mobility import Mobility
from extender.cluster.consumers import claim_keys, holders_near, without_pods
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, pools_of
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import held_for_nominated
from extender.framework.pods.claims import Blocked, claims_of
from extender.planning.device_counts import free_devices, least_devices
from extender.planning.planner import Planner, Queued, unbound
from extender.planning.queue import PendingShape
from extender.plugins.preemption.evictions import Evictions, is_evictable, violations
from extender.tools.smallest_set import MOST_SETS


def held_devices(pod: Pod, snapshot: Snapshot) -> int:
    """The number of devices, or of shares of devices, that the claims of a pod hold."""
    claims = (snapshot.claims.get(key) for key in claim_keys(pod))
    held = (each.claim.allocation for each in claims if each is not None)
    return sum(not result.admin_access for each in held if each is not None for result in each.results)


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of a trial.

    Attributes:
        proposal: the moves, and the pods of the shape that got their devices, perhaps none.
        others: how many pending pods of other shapes got a node.
    """

    proposal: MoveProposal
    others: int


@dataclass(frozen=True, slots=True)
class MoveTrials:
    """Tries out moves in one cluster.

    Attributes:
        snapshot: the cluster, where no pod of the queue fits.
        queue: the pending pods, in kube-scheduler's order.
        names: all nodes.
        planner: schedules pods on forks.
    """

    snapshot: Snapshot
    queue: Sequence[Queued]
    names: Sequence[str]
    planner: Planner

    def outcome(self, movers: Sequence[Pod], node: NodeObject, shape: Hashable, solver: Solver) -> TrialOutcome:
        """The outcome if some pods make room on a node.

        Pods of other shapes have their turn, too, and may take the room.

        Args:
            movers: the pods that make room.
            node: where they make room. Its pools need not be its own, nor need the pods run there.
            shape: whose pods count as placed.
            solver: for as long as there is time.

        Raises:
            TimeoutError: the solver's time is up.
        """
        others = [name for name in self.names if name != node.name]
        fork, is_local = without_pods(self.snapshot, movers), self._hold_only(movers, node)
        # A device that the network attaches is free for pending pods before the node is uncordoned.
        early = () if is_local else self.queue
        new = [Queued(unbound(pod), pod.uid) for pod in sorted(movers, key=lambda pod: -pod.priority)]
        planner = self.planner.by(solver)
        moved = planner.turns(sorted((*early, *new), key=_priority), fork, others)
        left = [each for each in self.queue if each.pod.uid not in moved.nodes]
        then = planner.turns(left, moved.snapshot, [node.name] if is_local else self.names)
        nodes = {**moved.nodes, **then.nodes}
        served = [each for each in self.queue if each.pod.uid in nodes]
        placed = tuple(str(pod) for pod, key in served if key == shape)
        moves = tuple(Move(pod, nodes.get(pod.uid, "")) for pod in movers)
        return TrialOutcome(MoveProposal(node.name, moves, placed), len(served) - len(placed))

    def _hold_only(self, movers: Sequence[Pod], node: NodeObject) -> bool:
        """Whether all devices of the pods are of pools that only this node reaches."""
        inventory = self.snapshot.inventory
        own = inventory.local.get(node.name, Map())
        claims = (self.snapshot.claims.get(key) for pod in movers for key in claim_keys(pod))
        pools = {pool for each in claims if each is not None for pool in pools_of(each.claim.allocation)}
        return all(pool in own and pool not in inventory.roaming for pool in pools)


def _priority(each: Queued) -> int:
    return -each.pod.priority


ENOUGH: Final = 4
"""Proposals with equally few moves that are compared by the number of pods that they serve."""

PATIENCE: Final = 5
"""How many nodes are tried for pods of the same kinds that did not all find a place; how many sets on one node; and on
how many nodes room is made that pods of other shapes take."""

_MOST_NEAR: Final = 256
"""The most pods near a node that are compared, even if few of them may move at once."""

TAKEN: Final = "pods of other shapes, which come first, take the room that moves make"


@dataclass(frozen=True, slots=True)
class MoveSearch:
    """Searches proposals for the shapes of one cluster.

    Attributes:
        mobility: which pods can move.
        trials: tries moves out.
        most_moves: the most pods of one proposal.
        unprotected: the uids of the pods that nothing protects.
        emptied: the cluster without these pods.
    """

    mobility: Mobility
    trials: MoveTrials
    most_moves: int
    unprotected: frozenset[str]
    emptied: Snapshot
    _offers: dict[str, tuple[float, Sequence[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, mobility: Mobility, trials: MoveTrials, most_moves: int) -> "MoveSearch":
        """The search in a cluster."""
        pods = [pod for pod in mobility.running if not mobility.protection(pod)]
        uids = frozenset(pod.uid for pod in pods)
        return cls(mobility, trials, most_moves, uids, without_pods(trials.snapshot, pods))

    def proposal(self, shape: PendingShape, solver: Solver, *, evicts: bool) -> MoveProposal | str:
        """The fewest moves that make room for a pod of a shape; of several such sets, the one that serves most pods.

        Args:
            shape: fits nowhere.
            solver: for as long as there is time. What is found by then is the answer.
            evicts: pods of lower priority may make room although no other node takes them.

        Returns:
            The proposal, or why there is none.

        Raises:
            InvalidClaimError, SelectorError: the pods can run on no node.
            TimeoutError: the solver's time is up, and nothing was found.
        """
        hunt = _Hunt(self, shape, solver, evicts)
        try:
            hunt.run()
        except TimeoutError:
            if not hunt.found:
                raise
        if hunt.found:
            return min(hunt.found, key=_worth)
        if hunt.taken:
            return TAKEN
        if not self.mobility.running:
            return "no pod holds devices, so no move helps"
        if not self.unprotected:
            return "no pod that holds devices can move"
        moves = "move" if self.most_moves == 1 else f"set of at most {self.most_moves} moves"
        return f"no {moves} makes room on any node"

    def nodes(self, shape: PendingShape, solver: Solver) -> Iterator[tuple[int, NodeObject]]:
        """The nodes where moves may make room, and how many are needed at least; those with the fewest come first."""
        nodes = self.trials.snapshot.nodes
        hopeful = self.trials.planner.by(solver).takers(shape.pod, self.trials.names, self.emptied).passed
        claims = claims_of(shape.pod, self.trials.snapshot)
        pending = () if isinstance(claims, Blocked) else claims.pending
        needed = sum(least_devices(each.claim.spec) for each in pending)
        for least, name in sorted((self._least_moves(nodes[name], needed, solver), name) for name in hopeful):
            yield least, nodes[name]

    def _least_moves(self, node: NodeObject, needed: int, solver: Solver) -> int:
        """Fewer pods do not hold as many devices as the node lacks."""
        if node.name not in self._offers:
            solver.look()
            free = free_devices(self.trials.snapshot, node.name, solver.features)
            near = holders_near(node, self.trials.snapshot, solver.features)
            held = sorted((held_devices(pod, self.trials.snapshot) for pod in near), reverse=True)
            self._offers[node.name] = free, tuple(accumulate(held))
        free, held_by_most = self._offers[node.name]
        return 1 + sum(free + held < needed for held in held_by_most)


@dataclass(slots=True)
class _Hunt:
    """The search for one shape.

    Attributes:
        found: proposals; each has as few moves as those before, or fewer.
        homeless: kinds of the pods of a set to how often such a set did not help, mostly for want of other places.
        taken: on how many nodes without a proposal pods of other shapes took the room.
    """

    search: MoveSearch
    shape: PendingShape
    solver: Solver
    evicts: bool
    found: list[MoveProposal] = field(default_factory=list)
    homeless: Counter[Hashable] = field(default_factory=Counter)
    taken: int = 0

    def run(self) -> None:
        """Find proposals on one node after the other. Errors as `MoveSearch.proposal`."""
        search, pod, solver = self.search, self.shape.pod, self.solver
        world = held_for_nominated(pod, search.trials.snapshot, solver)
        most = search.most_moves
        for least, node in search.nodes(self.shape, solver):
            if least > most or self.taken >= PATIENCE:
                return
            solver.look()
            near = tuple(holders_near(node, world, solver.features))
            evictions = Evictions.of(pod, node, (), near, world, solver, self._may_go(node))
            evictions = replace(evictions, candidates=evictions.candidates[: _most_candidates(most)])
            proposal = self._proposal_for_node(evictions, most)
            if proposal is not None:
                self.found.append(proposal)
                fewest = min(len(each.moves) for each in self.found)
                most = fewest - (sum(len(each.moves) == fewest for each in self.found) >= ENOUGH)

    def _proposal_for_node(self, evictions: Evictions, most: int) -> MoveProposal | None:
        """The proposal for one node.

        If pods find no places together, or pods of other shapes take their room, sets without one of them are tried.
        """
        is_taken = False
        for _ in range(PATIENCE):
            members = evictions.smallest(most, self.solver)
            if members is None:
                break
            chosen = [evictions.candidates[each] for each in members]
            unfit = frozenset({chosen[-1].pod.uid})
            if not violations(chosen, evictions.allowed):
                tried = self._tried([each.pod for each in chosen], evictions.node)
                if isinstance(tried, MoveProposal):
                    return tried
                is_taken |= tried is None
                unfit = tried or unfit
            left = tuple(each for each in evictions.candidates if each.pod.uid not in unfit)
            evictions = replace(evictions, candidates=left)
        self.taken += is_taken
        return None

    def _tried(self, movers: Sequence[Pod], node: NodeObject) -> MoveProposal | frozenset[str] | None:
        """The proposal if it holds; None if other pods take the room; else uids of pods that had better stay."""
        search = self.search
        kinds = frozenset(Counter(map(search.mobility.kind, movers)).items())
        if self.homeless[kinds] >= PATIENCE:
            return frozenset()
        outcome = search.trials.outcome(movers, node, self.shape.key, self.solver)
        gone = [move.pod for move in outcome.proposal.moves if not move.to]
        stranded = frozenset(pod.uid for pod in gone if not self._yields(pod))
        if outcome.proposal.placed and not stranded:
            return outcome.proposal
        if outcome.others and not stranded:
            return None
        self.homeless[kinds] += 1
        return stranded

    def _may_go(self, node: NodeObject) -> Callable[[Pod, Pod, Snapshot], bool]:
        """Whether a pod may make room on a node."""
        search = self.search

        def may_go(other: Pod, _pod: Pod, _snapshot: Snapshot) -> bool:
            if other.uid not in search.unprotected:
                return False
            return search.mobility.can_leave(other, node.name, self.solver) or self._yields(other)

        return may_go

    def _yields(self, other: Pod) -> bool:
        """Whether a pod may be evicted although no other node takes it, as preemption would evict it."""
        pod, snapshot = self.shape.pod, self.search.trials.snapshot
        return self.evicts and not snapshot.never_preempts(pod) and is_evictable(other, pod, snapshot)


def _most_candidates(moves: int) -> int:
    """The number of pods of which all sets of some moves can be compared."""
    fitting = (number for number in range(_MOST_NEAR, moves, -1) if _sets(number, moves) <= MOST_SETS)
    return next(fitting, moves)


def _sets(candidates: int, most: int) -> int:
    return sum(comb(candidates, size) for size in range(most + 1))


def _worth(proposal: MoveProposal) -> tuple[int, int, int, str]:
    return proposal.evictions, len(proposal.moves), -len(proposal.placed), proposal.node
