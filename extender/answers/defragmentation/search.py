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
from extender.answers.explain.explanation import Spared
from extender.cluster.consumers import claim_keys, holders_near, without_pods
from extender.cluster.objects.budgets import Budget
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, pools_of
from extender.framework.decisions.solver import Solver
from extender.framework.held_devices import held_for_nominated
from extender.framework.pods.claims import Blocked, claims_of
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import Attempts, SchedulerChecks
from extender.planning.node_room import free_devices, least_devices
from extender.planning.planner import TIED, Planner, Queued, unbound
from extender.planning.queue import PendingShape
from extender.plugins.preemption.evictions import Evictions, budgets_covering, is_evictable, violations
from extender.tools.smallest_set import MOST_SETS


@dataclass(frozen=True, slots=True)
class Mobility:
    """Whether the pods of a cluster can move.

    Attributes:
        snapshot: the cluster.
        running: the pods that are bound there and hold devices.
        names: all nodes.
        planner: asks where a pod can go.
        attempts: which pods a scheduler of ours tries.
    """

    snapshot: Snapshot
    running: Sequence[Pod]
    names: Sequence[str]
    planner: Planner
    attempts: Attempts
    _protections: dict[str, str] = field(default_factory=dict)
    _takers: dict[Hashable, frozenset[str]] = field(default_factory=dict)

    def protection(self, pod: Pod) -> str:
        """The reason why a pod does not move, whatever other nodes have; empty if there is none."""
        if pod.uid not in self._protections:
            self._protections[pod.uid] = next(self._protecting(pod), "")
        return self._protections[pod.uid]

    def can_leave(self, pod: Pod, node: str, solver: Solver) -> bool:
        """Whether nothing protects a pod, and a node other than this one takes it.

        Raises:
            TimeoutError: the solver's time is up.
        """
        if self.protection(pod):
            return False
        takers = self._taking(pod, solver)
        return len(takers) > (node in takers)

    def spared(self, solver: Solver) -> tuple[Spared, ...]:
        """The pods that hold devices and cannot move, and claims that no pod uses; the most frequent reason first."""
        groups: dict[str, list[str]] = {}
        for pod in self.running:
            if reason := self.protection(pod) or self._staying(pod, solver):
                groups.setdefault(reason, []).append(f"pod {pod}")
        for reason, claim in self._consumers():
            groups.setdefault(reason, []).append(claim)
        ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
        return tuple(Spared(reason, tuple(sorted(names))) for reason, names in ordered)

    def _staying(self, pod: Pod, solver: Solver) -> str:
        """Why a pod that nothing protects does not leave its node; empty if it can leave."""
        try:
            return "" if self.can_leave(pod, pod.node_name, solver) else "no other node takes it"
        except TimeoutError:
            return "there was not enough time to look for another node"

    def _protecting(self, pod: Pod) -> Iterator[str]:
        if pod.controller is None:
            yield "no controller makes it again"
        elif pod.controller.kind in TIED:
            yield TIED[pod.controller.kind].format(pod.controller)
        yield from self._sharing(pod)
        allowed = self.snapshot.objects(Budget)
        for key in budgets_covering(pod, self.snapshot):
            if allowed[key].allowed <= 0:
                yield f"PodDisruptionBudget {key} allows no eviction"
        if reason := self.attempts.hindrance(pod):
            yield reason

    def _sharing(self, pod: Pod) -> Iterator[str]:
        for key in claim_keys(pod):
            claim = self.snapshot.claims.get(key)
            for user in claim.claim.reserved_for if claim is not None else ():
                if user.resource != "pods":
                    yield f"it shares claim {key} with {user}"
                elif user.uid != pod.uid:
                    yield f"it shares claim {key} with pod {pod.namespace}/{user.name}"

    def _taking(self, pod: Pod, solver: Solver) -> frozenset[str]:
        """The nodes that would take another pod like this one. Pods of one kind share the answer."""
        key = self.kind(pod)
        if key not in self._takers:
            twin, fork = _with_twin(pod, self.snapshot)
            self._takers[key] = frozenset(self.planner.by(solver).takers(twin, self.names, fork).passed)
        return self._takers[key]

    def kind(self, pod: Pod) -> Hashable:
        """Equal for pods that the same nodes take."""
        claims = [self.snapshot.claims.get(key) for key in claim_keys(pod)]
        asked = tuple(each.claim.spec.asked for each in claims if each is not None)
        templates = tuple(ObjectKey(pod.namespace, each.template_name) for each in pod.claims if each.template_name)
        counts = self.planner.solver.plugins.count_holders(pod, self.snapshot)
        namespace = pod.namespace if counts else ""
        return (
            asked,
            templates,
            pod.containers,
            SchedulerChecks(self.snapshot).kind_of(pod),
            pod.policy,
            pod.priority,
            namespace,
        )

    def _consumers(self) -> Iterator[tuple[str, str]]:
        """The claims that only something that is no pod uses: the reason, and the claim."""
        for key in sorted(self.snapshot.claims):
            claim = self.snapshot.claims[key].claim
            users = claim.reserved_for
            if claim.allocation is not None and users and all(user.resource != "pods" for user in users):
                yield f"reserved for {users[0]}", f"claim {key}"


def _with_twin(pod: Pod, snapshot: Snapshot) -> tuple[Pod, Snapshot]:
    """A new pod that asks for the same, and the cluster with its claims. The pod itself stays and keeps its devices.

    DeviceQuotas do not count: the pod that moves gives back what it holds.
    """
    entries = []
    for entry in pod.claims:
        named = snapshot.claims.get(ObjectKey(pod.namespace, entry.claim_name or ""))
        if named is None:
            entries.append(entry)
            continue
        name, uid = f"{named.claim.name}/twin", f"{named.claim.uid}/twin"
        claim = replace(named.claim, name=name, uid=uid, allocation=None, reserved_for=())
        snapshot = snapshot.with_claim(replace(named, claim=claim))
        entries.append(replace(entry, claim_name=name))
    statuses = {name: claim_name for name, claim_name in pod.claim_statuses.items() if claim_name is None}
    twin = replace(unbound(pod), name=f"{pod.name}/twin", uid=f"{pod.uid}/twin", claim_statuses=statuses)
    return replace(twin, claims=tuple(entries)), snapshot._replace(device_quotas=Map(), quotas_in=Map())


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
