"""Filter: which of the nodes have the devices that a pod needs.

A node without devices is "unresolvable". For a node in ``FailedNodes`` the scheduler would try to evict pods, although
its dry run does not know devices. The exception is the node that a pod is nominated for.

A reason is a value until it is shown. Its cause stands in the module of what refuses: each check in `allocator.checks`
(one device), `allocator.reason` (a request), `allocator.errors` (a claim that no node can serve),
`extender.framework.pods` (the pod's claims), `extender.framework.cycle` (its policy, what is kept for it),
`extender.plugins` (what a feature refuses), and `extender.framework.decisions.verdict` (an unknown node, no time).
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from allocator import STOPPED, InvalidClaimError, Reason, SelectorError
from allocator.policies import Merit
from allocator.tools import JSON
from extender.cluster.consumers import after_departures
from extender.cluster.objects.nodes import NodeObject, parse_node_object
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import CLAIMS, DEVICES, Admitted, Cycle, admitted, fits, kept_elsewhere
from extender.framework.decisions.evaluate import MOST_NEW_NODES, Decided, Decider, Lookup
from extender.framework.decisions.solver import No, Solver
from extender.framework.decisions.verdict import (
    NO_REASONS,
    NOT_KNOWN,
    NOTHING_NEEDED,
    TOO_LATE,
    UNKNOWN_NODE,
    PendingReason,
    Reasons,
    Verdict,
    Verdicts,
)
from extender.framework.held_devices import WAITING, awaits_kept, held_for_nominated
from extender.framework.passed_over_nodes import LATE_SECONDS, LateNodes
from extender.framework.plugin import NodeCheck, Refusal, Refused
from extender.framework.pods.extended_resources import Needs, reaches_anywhere
from extender.framework.ranking import Merits, Ranking


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a filter call.

    Attributes:
        until: when to begin no more nodes, by the solver's clock.
        most: the most nodes to name, the best ones; None: all that fit.
        late: knows which nodes pass only if no other does; None: no node is known to be one.
        patience: seconds for nodes that are hard to search (`Solver.patience`).
    """

    until: float = math.inf
    most: int | None = None
    late: LateNodes | None = None
    patience: float = math.inf


class Code(Enum):
    """A way in which a plugin has refused a pod."""

    NOWHERE = "nowhere"
    """Whatever the nodes have, the pod can run on none of them."""
    ON_NODES = "on nodes"
    """It was compared on each node."""
    UNKNOWN = "unknown"
    """On some node a limit has stopped the search."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The result for each node.

    Attributes:
        passed: nodes where the pod fits, or the best of them, in the order asked.
        failed: nodes where the pod fits once terminating pods are gone, with the reason.
        unresolvable: nodes where the pod does not fit, with the reason.
        merits: the merit of each node that passed; empty for pods that need no devices.
        steps: devices tried.
        by: if no node passed, the names of the plugins that have refused the pod, on one node at least.
        waits_for: what the pod waits for that these have refused, the first of them.
        in_vain: seconds at nodes that were hard to search, if no node passed.
        over: the unresolvable nodes that have the devices: a plugin refuses the pod there, or too little else is left.
    """

    passed: Sequence[str]
    failed: Reasons = field(default_factory=Reasons)
    unresolvable: Reasons = field(default_factory=Reasons)
    merits: Merits = field(default_factory=Merits)
    steps: int = 0
    by: Mapping[str, Code] = field(default_factory=dict)
    waits_for: PendingReason = PendingReason.DEVICES
    in_vain: float = 0.0
    over: frozenset[str] = frozenset()

    @property
    def pending_reason(self) -> PendingReason:
        """What the pod waits for until something changes."""
        if self.passed:
            return PendingReason.FITS
        if self.failed:
            return PendingReason.TERMINATING
        if self.waits_for is PendingReason.DEVICES and self.is_undecided:
            return PendingReason.SEARCH
        return self.waits_for

    @property
    def is_blocked(self) -> bool:
        """Whether the pod can run on no node, whatever the nodes have."""
        return Code.NOWHERE in self.by.values()

    @property
    def is_undecided(self) -> bool:
        """Whether no node passed, and the search of at least one was stopped."""
        return Code.UNKNOWN in self.by.values()


def filter_nodes(
    pod: Pod,
    names: Sequence[str],
    snapshot: Snapshot,
    solver: Solver,
    *,
    decider: Decider | None = None,
    sent: Mapping[str, Mapping[str, JSON]] | None = None,
    bounds: Bounds = Bounds(),
) -> FilterResult:
    """Decide a pod on each of the nodes.

    Args:
        pod: as it was sent.
        names: the nodes asked about.
        snapshot: the cluster.
        solver: the allocator, for as long as the call has time.
        decider: remembers decisions of this solver; None: nothing is remembered.
        sent: the Node objects, where whole nodes were sent: their labels count, and they need not exist.
        bounds: to the work and to the answer.

    Raises:
        TimeoutError: time was up before any node was found.
        InvalidObjectError: one of the nodes that were sent.
    """
    question = ask(pod, names, snapshot, solver, decider or Decider(solver, None), sent=sent, bounds=bounds)
    return question if isinstance(question, FilterResult) else question.result()


def ask(
    pod: Pod,
    names: Sequence[str],
    snapshot: Snapshot,
    solver: Solver,
    decider: Decider,
    *,
    sent: Mapping[str, Mapping[str, JSON]] | None = None,
    bounds: Bounds = Bounds(),
) -> "FilterQuestion | FilterResult":
    """What is to be decided for `filter_nodes`, or the result if that is nothing.

    Searches nothing unless pods are nominated.
    """
    if not pod.needs_devices:
        return FilterResult(names)
    found = admitted(pod, snapshot, solver)
    if isinstance(found, Refused):
        return _nowhere(names, found, solver)
    cycle = found.cycle
    if cycle.claims.is_empty:
        return FilterResult(names)
    if snapshot.nominated:
        only = pod.kept.node if solver.plugins.keeper(pod, snapshot) else ""
        beside = held_for_nominated(pod, snapshot, solver.within(bounds.until), on=only, now=True)
        cycle = replace(cycle, snapshot=beside)
    nodes = None if sent is None else {name: parse_node_object(sent[name]) for name in names}
    passed_over = {} if bounds.late is None else bounds.late.among(cycle, names)
    return FilterQuestion.of(cycle, names, decider, bounds, found.checks, sent=nodes, passed_over=passed_over)


def _nowhere(names: Sequence[str], refused: Refused, solver: Solver) -> FilterResult:
    unresolvable = Reasons.alike(names, refused.refusal.reason)
    waits_for = solver.plugins.waits_for.get(refused.by, PendingReason.CLAIMS)
    return FilterResult((), unresolvable=unresolvable, by={refused.by: Code.NOWHERE}, waits_for=waits_for)


@dataclass(frozen=True, slots=True)
class Known:
    """The part of an answer that is known.

    Attributes:
        names: the nodes asked about.
        verdicts: on nodes where nothing is to be allocated.
        lookups: of the other nodes: one for all nodes on which the pod needs the same.
    """

    names: Sequence[str]
    verdicts: Mapping[str, Verdict]
    lookups: Sequence[Lookup]

    @property
    def missing(self) -> frozenset[str]:
        """The nodes that take a search."""
        return frozenset(lookup.names[place] for lookup in self.lookups for place in lookup.missing)

    @property
    def is_complete(self) -> bool:
        """Whether no node is missing."""
        return not any(lookup.missing for lookup in self.lookups)


@dataclass(frozen=True, slots=True)
class FilterQuestion:
    """The question where a pod fits, whose claims are known.

    Attributes:
        sent: the nodes, where whole nodes were sent.
        checks: of plugins, each with the plugin's name: they compare what is found on each node.
        is_judged: what is found on a node may be too much there, by these checks or by what is left of its resources.
        passed_over: those of the nodes that pass only if no other does, each with the reason against it.
    """

    cycle: Cycle
    names: Sequence[str]
    decider: Decider
    sent: Mapping[str, NodeObject] | None
    bounds: Bounds
    checks: Sequence[tuple[str, NodeCheck]]
    is_judged: bool
    passed_over: Mapping[str, Reason]

    @classmethod
    def of(
        cls,
        cycle: Cycle,
        names: Sequence[str],
        decider: Decider,
        bounds: Bounds,
        checks: Sequence[tuple[str, NodeCheck]],
        *,
        sent: Mapping[str, NodeObject] | None = None,
        passed_over: Mapping[str, Reason] | None = None,
    ) -> "FilterQuestion":
        """A question about nodes."""
        is_judged = bool(checks) or cycle.counts_resources
        return cls(cycle, names, decider, sent, bounds, checks, is_judged, passed_over or {})

    def at_hand(self) -> "FilterResult | Known | None":
        """The result, if nothing has to be searched for it; else what is known of the nodes, for `result`.

        None if to look it up may take more than about a millisecond, or if all that is known is about other nodes than
        those that are passed over.
        """
        if self.is_judged:
            return None
        is_uniform = self.is_uniform
        if len(self.names) > MOST_NEW_NODES and not is_uniform:
            return None
        names = self._preferred
        known = self._known_alike(names) if is_uniform else self._known_by_node(names)
        found = self.at_once(known)
        return known if found is None and not self.passed_over else found

    def at_once(self, known: Known) -> FilterResult | None:
        """The result, from what is known of nodes that are not passed over; None: something has to be searched."""
        if not known.is_complete:
            return None
        if not self.passed_over:
            return self.result(known)
        found = self.evaluate(known)
        return self._beside_passed_over(found) if found.passed else None

    @property
    def _preferred(self) -> Sequence[str]:
        """The nodes that are not passed over."""
        return [name for name in self.names if name not in self.passed_over] if self.passed_over else self.names

    def _beside_passed_over(self, others: FilterResult) -> FilterResult:
        """The result of all nodes, from that of those that are not passed over: some of them have passed."""
        return replace(others, unresolvable=others.unresolvable.beside(Reasons.of(self.passed_over)))

    def result(self, known: Known | None = None) -> FilterResult:
        """The result for the nodes. If the claims can be allocated nowhere, that is the reason for all nodes.

        Args:
            known: what was looked up before; None: nothing was.

        Raises:
            TimeoutError: time was up before any node was found.
        """
        return self._or_nowhere(self._answer if known is None else lambda: self._patiently(known))

    @property
    def is_uniform(self) -> bool:
        """Whether the pod needs the same on every node. If not, each node has to be examined."""
        claims = self.cycle.claims
        if claims.special.is_needed or not all(map(reaches_anywhere, claims.allocated)):
            return False
        return all(each.may_be_anywhere for each in claims.negotiated) if claims.pending else not claims.negotiated

    def lookup(self, names: Sequence[str]) -> Known:
        """What is known of the nodes."""
        return self._known_alike(names) if self.is_uniform else self._known_by_node(names)

    def _known_alike(self, names: Sequence[str]) -> Known:
        """The known verdicts for a pod that needs the same on every node."""
        claims = self.cycle.claims
        verdicts: dict[str, Verdict] = {}
        if not claims.pending:
            nodes = self.cycle.snapshot.nodes if self.sent is None else self.sent
            return Known(names, {name: NOTHING_NEEDED if name in nodes else NOT_KNOWN for name in names}, ())
        for each in claims.negotiated:
            for reason, refused in each.refusals(names).items():
                verdicts |= dict.fromkeys(refused, Verdict(reason=reason))
        left = [name for name in names if name not in verdicts] if verdicts else names
        return Known(names, verdicts, (self._looked_up(Needs(claims.pending), left),))

    def _known_by_node(self, names: Sequence[str]) -> Known:
        """The known verdicts, node by node."""
        verdicts: dict[str, Verdict] = {}
        groups: dict[Hashable, tuple[Needs, list[str]]] = {}
        for name in names:
            node = self._node(name)
            needs = UNKNOWN_NODE if node is None else self.cycle.claims.on(node)
            if isinstance(needs, Reason):
                verdicts[name] = Verdict(reason=needs)
            elif not needs.pending:
                verdicts[name] = NOTHING_NEEDED
            else:
                key = (tuple(map(id, needs.pending)), tuple(map(id, needs.stale)))
                groups.setdefault(key, (needs, []))[1].append(name)
        return Known(names, verdicts, [self._looked_up(needs, members) for needs, members in groups.values()])

    def evaluate(self, known: Known) -> FilterResult:
        """The result for the nodes, after finding out what is missing.

        Raises:
            TimeoutError: time was up before any node was found.
            InvalidClaimError, SelectorError: the pod can go nowhere.
        """
        solver = self.cycle.solver
        if self.bounds.patience < solver.patience:
            solver = replace(solver, patience=self.bounds.patience)
        decided = [self.decider.evaluate(lookup, until=self.bounds.until, solver=solver) for lookup in known.lookups]
        hard = {name: seconds for each in decided for name, seconds in each.hard.items()}
        self._note_hard(hard)
        if len(decided) == 1 and not known.verdicts:
            return self._result(known.names, decided[0])
        verdicts = dict(known.verdicts)
        for lookup, each in zip(known.lookups, decided, strict=True):
            verdicts.update(zip(lookup.names, each.verdicts, strict=True))
        in_order = Verdicts.of([verdicts[name] for name in known.names])
        return self._result(known.names, Decided(in_order, sum(each.steps for each in decided), hard))

    def _looked_up(self, needs: Needs, names: Sequence[str]) -> Lookup:
        pending, solver = [each.claim for each in needs.pending], self.cycle.solver
        world, weighing = needs.world(self.cycle.snapshot), solver.weighing(self.cycle.pod, self.bounds.until)
        return self.decider.lookup(pending, names, world, sent=self.sent, policy=solver.policy, weighing=weighing)

    def _note_hard(self, hard: Mapping[str, float]) -> None:
        """Note that these nodes are passed over for a while, from their next change on (`LateNodes.note_hard`)."""
        if self.bounds.late is not None:
            for node in filter(None, map(self._node, hard)):
                self.bounds.late.note_hard(self.cycle, node, hard[node.name])

    def _answer(self) -> FilterResult:
        pod = self.cycle.pod
        keeper = self.cycle.solver.plugins.keeper(pod, self.cycle.snapshot) if pod.kept.node else ""
        if keeper:
            return self._only_there(pod.kept.node, keeper)
        if pod.kept.node in self.names and awaits_kept(pod, self.cycle.snapshot, self.cycle.solver):
            elsewhere = self._kept_elsewhere(pod.kept.node)
            return FilterResult((), failed=Reasons.alike((pod.kept.node,), WAITING), unresolvable=elsewhere)
        nominated = pod.nominated_node
        if nominated and nominated in self.names:
            # Room was made there, perhaps by evicting others; the scheduler would take no other node either.
            there = self.evaluate(self.lookup((nominated,)))
            if there.passed:
                return there
        if self.passed_over:
            others = self.evaluate(self.lookup(self._preferred))
            if others.passed:
                return self._beside_passed_over(others)
        return self._patiently(self.lookup(self.names))

    def _patiently(self, known: Known) -> FilterResult:
        """The result, without a search of hard nodes if the namespace has used its part of the time."""
        late = self.bounds.late
        if late is None or self.bounds.patience > LATE_SECONDS:
            return self.evaluate(known)
        given_up = known.missing & late.of_namespace(self.cycle)
        if not given_up:
            return self.evaluate(known)
        found = self.evaluate(self.lookup([name for name in known.names if name not in given_up]))
        unknown = Reasons.alike(tuple(given_up), Reason(STOPPED, detail="time"))
        by = {} if found.passed else {**found.by, DEVICES: Code.UNKNOWN}
        return replace(found, unresolvable=found.unresolvable.beside(unknown), by=by)

    def _only_there(self, kept: str, keeper: str) -> FilterResult:
        """The result for a pod whose node a plugin has chosen, such as that of a gang, with those of the other pods."""
        there = [name for name in self.names if name == kept]
        found = self.evaluate(self.lookup(there))
        unresolvable = self._kept_elsewhere(kept).beside(found.unresolvable)
        if found.passed or found.failed:
            return replace(found, unresolvable=unresolvable)
        by, waits_for = {**found.by, keeper: Code.ON_NODES}, self.cycle.solver.plugins.waits_for[keeper]
        return replace(found, unresolvable=unresolvable, by=by, waits_for=waits_for)

    def _kept_elsewhere(self, kept: str) -> Reasons:
        """The reason against the nodes other than the one where something is kept for the pod."""
        return Reasons.alike([name for name in self.names if name != kept], kept_elsewhere(kept))

    def _or_nowhere(self, answer: Callable[[], FilterResult]) -> FilterResult:
        try:
            return answer()
        except (InvalidClaimError, SelectorError) as error:
            return _nowhere(self.names, Refused(CLAIMS, Refusal(error.reason)), self.cycle.solver)

    def _result(self, names: Sequence[str], decided: Decided) -> FilterResult:
        ranking = Ranking.of(names, decided.verdicts, self.cycle.solver.policy)
        over: Mapping[str, Reason] = {}
        by: Mapping[str, Code] = {}
        if self.is_judged:
            merits, over, by = self._within(ranking.best())
        else:
            merits = ranking.best(self.bounds.most)
        passed = merits.names
        if not passed and TOO_LATE in decided.verdicts:
            raise TimeoutError
        unresolvable = ranking.refused().beside(Reasons.of(over)) if over else ranking.refused()
        failed, nominated = NO_REASONS, self.cycle.pod.nominated_node
        if nominated and nominated in unresolvable and self._fits_later(nominated):
            failed, unresolvable = Reasons.alike((nominated,), WAITING), unresolvable.without(nominated)
        if passed:
            return FilterResult(passed, failed, unresolvable, merits, decided.steps, over=frozenset(over))
        lasting = all(verdict.lasting for verdict in decided.verdicts.different)
        waits_for = next((self.cycle.solver.plugins.waits_for[name] for name in by), PendingReason.DEVICES)
        by = {**by, DEVICES: Code.ON_NODES if lasting else Code.UNKNOWN}
        in_vain = sum(decided.hard.values())
        return FilterResult((), failed, unresolvable, merits, decided.steps, by, waits_for, in_vain, frozenset(over))

    def _within(self, merits: Merits) -> tuple[Merits, Mapping[str, Reason], Mapping[str, Code]]:
        """The nodes whose devices pass the checks of plugins, and take no more of their node than is left.

        They are at most `Bounds.most`. Also returns the reasons against the other nodes, and the plugins that refused.

        A node that is not judged in time passes: bind judges it again.

        Raises:
            TimeoutError: selectors of a plugin's rules took too long.
        """
        passed: dict[str, Merit] = {}
        over: dict[str, Reason] = {}
        by: dict[str, Code] = {}
        scores = self.cycle.solver.policy.scores(merits)
        for name in sorted(merits, key=scores.__getitem__, reverse=True):
            if len(passed) == self.bounds.most:
                break
            refusal = self._over(name)
            if refusal is None:
                passed[name] = merits[name]
                continue
            over[name] = refusal if isinstance(refusal, Reason) else refusal.refusal.reason
            if isinstance(refusal, Refused):
                by[refusal.by] = Code.ON_NODES
        kept = [name for name in merits if name in passed]
        return Merits(kept, [passed[name] for name in kept], range(len(kept))), over, by

    def _over(self, name: str) -> Reason | Refused | None:
        """What refuses the pod on a node where its devices are found; None if nothing does."""
        node = self._node(name)
        if node is None:
            return None
        try:
            found = self.cycle.at(node)
        except TimeoutError:
            return None
        if isinstance(found, No):
            return None if found.stopped else found.reason
        return Admitted(self.cycle, self.checks).refused(node, found)

    def _fits_later(self, name: str) -> bool:
        node = self._node(name)
        return node is not None and fits_later(self.cycle, node)

    def _node(self, name: str) -> NodeObject | None:
        return self.cycle.snapshot.nodes.get(name) if self.sent is None else self.sent[name]


def fits_later(cycle: Cycle, node: NodeObject) -> bool:
    """Whether the pod needs only wait until terminating pods have given back their devices."""
    later = after_departures(cycle.snapshot, node, cycle.solver.features)
    return later is not cycle.snapshot and fits(cycle.pod, node, later, cycle.solver)
