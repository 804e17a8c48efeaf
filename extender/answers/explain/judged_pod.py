"""One pod on all nodes: each node judged as filter judges it, and the causes of the answers.

It says in words why one node suits better than another, and tells nodes that kube-scheduler itself rejects from nodes
whose devices do not serve the pod.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from allocator import (
    STOPPED,
    Allocation,
    AllocationMode,
    Clock,
    ConstraintSpec,
    InvalidClaimError,
    LeftOut,
    Reason,
    SelectorError,
)
from allocator.checks import Wanted, ways_to_serve
from allocator.obstacles import ABSENT, value_in_words
from allocator.policies import Merit, Policy
from allocator.reason import CONSTRAINT, Cause
from allocator.search import constraint_covers
from extender.answers.explain.device_survey import Survey
from extender.answers.explain.explanation import (
    Clash,
    Conclusion,
    Explanation,
    FittingNode,
    NodesByReason,
    OfferedDevice,
    PreemptionReport,
    Proposal,
    Rejections,
)
from extender.answers.explain.headline import headline
from extender.answers.explain.holders import Holders, held_by
from extender.answers.explain.node_changes import Bundles, constraint_text
from extender.answers.explain.pod_claims import targets_of
from extender.answers.explain.preemption import preemption_of
from extender.answers.explain.proposals import ProposalTrials, best, one_of_each, promising, proposals_on, suggested
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import Admitted, Cycle
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import OUT_OF_TIME, Reasons
from extender.framework.filter import Bounds, FilterQuestion
from extender.framework.plugin import NodeCheck, Refusal
from extender.framework.pods.extended_resources import Needs
from extender.planning.changes import Suggest, Target
from extender.planning.kube_scheduler import SchedulerChecks


def with_rejections(
    explanation: Explanation, rejected: Mapping[str, str], with_devices: Collection[str], cycle: Cycle
) -> Explanation:
    """The explanation with nodes that kube-scheduler rejects.

    Args:
        explanation: of the other nodes.
        rejected: nodes, each with kube-scheduler's reason.
        with_devices: those of the rejected nodes that have the devices that the pod needs.
        cycle: of the pod.
    """
    if not rejected:
        return explanation
    checks = SchedulerChecks(cycle.snapshot)
    short = frozenset(f"Insufficient {each.resource}" for of in cycle.pod.containers for each in of.requests)
    near = {name: why for name, why in rejected.items() if name in with_devices}
    # The devices of a device plugin are what such a node lacks.
    near = {name: why for name, why in near.items() if not explanation.nodes or short.isdisjoint(why.split(", "))}
    ways = {name: _remedies(name, cycle, checks) for name in near}
    found = Rejections(node_groups(rejected), tuple(name for name, way in ways.items() if way))
    if explanation.verdict is not Conclusion.FITS_NOWHERE:
        return replace(explanation, rejections=found)
    near, told = {name: rejected[name] for name in found.with_devices}, explanation.headline
    if near or not explanation.nodes:
        told = _of_rejections(near, found.groups, of_one=len(rejected) == 1 and not explanation.nodes)
    return replace(explanation, rejections=found, advice=_advice(ways) or explanation.advice, headline=told)


def _of_rejections(near: Mapping[str, str], groups: Sequence[NodesByReason], *, of_one: bool) -> str:
    """The headline if kube-scheduler rejects the nodes that have devices for the pod, or all nodes."""
    if of_one and not near:
        return f"kube-scheduler rejects it: {groups[0].reason}"
    reasons = [group.reason for group in node_groups(near)] or [group.reason for group in groups]
    why = reasons[0] if len(reasons) == 1 else f"{reasons[0]}, and {len(reasons) - 1} other reasons"
    if not near:
        return f"kube-scheduler rejects all nodes: {why}"
    if of_one:
        return f"it has devices for the pod, but kube-scheduler rejects it: {why}"
    who, them = (f"node {next(iter(near))} has", "it") if len(near) == 1 else (f"{len(near)} nodes have", "them")
    return f"{who} devices for the pod, but kube-scheduler rejects {them}: {why}"


def node_groups(reasons: Mapping[str, str]) -> tuple[NodesByReason, ...]:
    """The nodes by reason, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        groups.setdefault(reason, []).append(node)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(NodesByReason(reason, tuple(nodes)) for reason, nodes in ordered)


def _remedies(node: str, cycle: Cycle, checks: SchedulerChecks) -> tuple[str, ...]:
    """What to do so that kube-scheduler takes a node for the pod; empty if nothing is known."""
    return tuple(each.remedy for each in checks.unmet(cycle.pod, cycle.snapshot.nodes[node]))


def _advice(ways: Mapping[str, Sequence[str]]) -> str:
    """Say what would make kube-scheduler take a node that has the devices: the node for which least is to be done."""
    name, remedies = min(((name, way) for name, way in ways.items() if way), key=_length, default=("", ()))
    return f"{'; '.join(remedies)}; then the pod fits on {name}" if remedies else ""


def _length(way: tuple[str, Sequence[str]]) -> int:
    return len(way[1])


def why_here(merit: Merit, others: Iterable[Merit], policy: Policy) -> str:
    """A comparison of an allocation with the allocations on other nodes."""
    every = list(others)
    if len(every) == 1:
        return ""
    parts = []
    if len({each.optional for each in every}) > 1:
        best = merit.optional == max(each.optional for each in every)
        parts.append("the most optional requests" if best else "fewer optional requests")
    if len({each.preference for each in every}) > 1:
        best = merit.preference == max(each.preference for each in every)
        parts.append("the most preferred alternatives" if best else "less preferred alternatives")
    if policy.why is None:
        return "; ".join(parts) or f"the policy {policy.name} ranks nodes by nothing else"
    return "; ".join([*parts, *policy.why(merit, every)]) or "no node is better than another"


def ranking(scores: Mapping[str, int]) -> list[str]:
    """Nodes, the best first."""
    return sorted(scores, key=lambda node: (-scores[node], node))


_AT_ONCE: Final = 100
"""Nodes that are decided between two pauses."""

MAX_PLACES: Final = 5
"""Nodes where the pod fits that are told with their devices."""

MAX_CLASHES: Final = 3
MAX_CONFIRMED: Final = 200
"""Nodes, one of each kind, on which a proposal must not make a selector fail."""

_LATE: Final = 1e9
"""Seconds, more than any limit."""

_NO_TIME: Final = "there was not enough time to check every device and to try out changes"


@dataclass(slots=True)
class _Verdicts:
    """The answers of filter.

    Attributes:
        reasons: node to the reason against it; few are distinct.
        merits: node to its merit.
        cause: why the pod cannot be placed on any node.
        over: the nodes that have the devices, and where something else refuses the pod.
    """

    reasons: dict[str, Reason] = field(default_factory=dict)
    merits: dict[str, Merit] = field(default_factory=dict)
    cause: str = ""
    over: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class JudgedPod:
    """Explains one pod.

    Attributes:
        cycle: the pod, in a snapshot where nominated pods that go first hold their devices.
        checks: of plugins, each with the plugin's name: they compare what is found on each node.
        snapshot: the cluster as it is; changes are tried out on forks of it.
        nodes: where kube-scheduler lets the pod run, as far as is known.
        rejected: the other nodes, each with kube-scheduler's reason.
        decider: remembers earlier verdicts.
        seconds: the longest work of the search for proposals, and of the choice of victims, by the clock ``worked``.
        worked: counts the work. Other programs of the machine do not change what is found.
        pause: called between pieces of work; raises `TimeoutError` when there is no more time.
        preempts: device preemption is on.
        suggest: finds further changes.
    """

    cycle: Cycle
    checks: Sequence[tuple[str, NodeCheck]]
    snapshot: Snapshot
    nodes: Sequence[NodeObject]
    rejected: Mapping[str, str]
    decider: Decider
    seconds: float
    worked: Clock
    pause: Callable[[], None]
    preempts: bool
    suggest: Sequence[Suggest] = ()

    def explanation(self) -> Explanation:
        """The explanation."""
        found = self._judged()
        if found.verdict is Conclusion.FITS_NOWHERE and self.suggest:
            found = self._with_suggestions(found)
        found = with_rejections(found, self.rejected, self._verdicts(list(self.rejected)).merits, self.cycle)
        if found.verdict is not Conclusion.FITS_NOWHERE:
            return found
        return replace(found, summary=self._summary(found.headline))

    def _judged(self) -> Explanation:
        verdicts = self._verdicts([node.name for node in self.nodes])
        if verdicts.merits:
            return self._fitting(verdicts)
        if not self.nodes:
            return self._short(verdicts)
        found: list[Explanation] = []
        faults, pod = self.cycle.solver.faults, self.cycle.pod
        with faults.of(f"pod {pod}", lambda fault: found.append(self._short(verdicts, fault))):
            try:
                found.append(self._failing(verdicts))
            except TimeoutError:
                found.append(self._short(verdicts, _NO_TIME))
        return found[0]

    def _verdicts(self, names: Sequence[str]) -> _Verdicts:
        bounds = Bounds(self.cycle.solver.until)
        question = FilterQuestion.of(self.cycle, names, self.decider, bounds, self.checks)
        verdicts = _Verdicts()
        try:
            for start in range(0, len(names), _AT_ONCE):
                part = names[start : start + _AT_ONCE]
                try:
                    self.pause()
                    found = question.evaluate(question.lookup(part))
                except TimeoutError:
                    verdicts.reasons.update(dict.fromkeys(part, OUT_OF_TIME))
                    continue
                verdicts.merits.update(found.merits)
                verdicts.over.update(found.over)
                verdicts.reasons.update({**found.unresolvable, **found.failed})
        except InvalidClaimError as error:
            return _Verdicts(dict.fromkeys(names, error.reason), cause=str(error))
        except SelectorError as error:
            return _Verdicts(dict.fromkeys(names, error.reason), cause=str(error).partition("\n")[0])
        return verdicts

    def _fitting(self, verdicts: _Verdicts) -> Explanation:
        policy, merits = self.cycle.solver.policy, verdicts.merits
        scores = policy.scores(merits)
        places = tuple(
            FittingNode(name, scores[name], devices, why_here(merits[name], merits.values(), policy), left_out)
            for name in ranking(scores)[:MAX_PLACES]
            for devices, left_out in [self._got(name)]
        )
        best = f", best on {places[0].node} by policy {policy.name}" if len(merits) > 1 else f": {places[0].node}"
        summary = f"pod {self.cycle.pod} fits on {len(merits)} of {_nodes(self._asked_about)}{best}"
        groups = node_groups(Reasons.of(verdicts.reasons).in_words())
        return Explanation(
            str(self.cycle.pod), Conclusion.FITS, summary, nodes=groups, places=places, policy=policy.name
        )

    def _got(self, name: str) -> tuple[tuple[OfferedDevice, ...], tuple[LeftOut, ...]]:
        """What the pod would get on a node, and the optional requests that would be left out."""
        node = self.cycle.snapshot.nodes[name]
        needs = self.cycle.claims.on(node)
        try:
            found = self.cycle.at(node)
        except TimeoutError:
            return (), ()
        if isinstance(needs, Reason) or not isinstance(found, Allocation):
            return (), ()
        devices = tuple(
            OfferedDevice(str(claim.key), result.request, result.device, result.consumed_capacity)
            for claim, allocation in zip(needs.pending, found.results, strict=False)
            for result in allocation.results
        )
        return devices, (*self.cycle.claims.withheld, *found.left_out)

    def _failing(self, verdicts: _Verdicts) -> Explanation:
        able = [node for node in self.nodes if isinstance(self.cycle.claims.on(node), Needs)]
        targets = targets_of(self.cycle.pod, self._claims_to_allocate(able))
        requests = ways_to_serve(tuple(target.claim.claim for target in targets), self.snapshot.classes)
        survey = Survey(requests, self.cycle.snapshot, self.nodes, self.cycle.solver, self.pause)
        holders = Holders(self.snapshot, self.cycle.pod)
        bundles = Bundles(self.cycle.pod, self.cycle.claims, targets, survey, holders, self.snapshot)
        causes = {node.name: verdicts.reasons[node.name].cause for node in able}
        known = {name: cause for name, cause in causes.items() if cause not in (STOPPED, OUT_OF_TIME.cause)}
        within = {name: cause for name, cause in known.items() if name not in verdicts.over}
        proposals, all_tried = self._proposals(bundles)
        reports = survey.reports(targets, holders)
        told = () if verdicts.cause else tuple(islice(clashes(survey, targets, within), MAX_CLASHES))
        short = self._short(verdicts, *self._notes(len(able) - len(known)))
        is_over = bool(verdicts.over) and not verdicts.cause
        refusal = self._refusal(min(verdicts.over)) if is_over else None
        lacks = ((), ()) if is_over else (reports, told)
        return replace(
            short,
            advice="" if refusal is None else refusal.advice,
            headline=headline(*lacks, short.nodes, verdicts.cause) if refusal is None else str(refusal),
            requests=reports,
            clashes=told,
            preemption=self._preemption(),
            proposals=proposals,
            all_tried=all_tried,
        )

    def _preemption(self) -> PreemptionReport | None:
        pod = self.cycle.pod
        if not self.preempts or pod.nominated_node:
            return None
        return preemption_of(pod, self.nodes, self.snapshot, self._measured())

    def _short(self, verdicts: _Verdicts, *notes: str) -> Explanation:
        """The answers of filter, and notes."""
        groups = node_groups(Reasons.of(verdicts.reasons).in_words())
        told, pod = headline((), (), groups, verdicts.cause), str(self.cycle.pod)
        return Explanation(pod, Conclusion.FITS_NOWHERE, "", verdicts.cause, told, notes=notes, nodes=groups)

    def _refusal(self, name: str) -> Refusal | None:
        """What a plugin says of a node with the devices, and of what is found there; None if no plugin refuses it."""
        node = self.cycle.snapshot.nodes[name]
        found = self.cycle.at(node)
        refused = Admitted(self.cycle, self.checks).refused(node, found) if isinstance(found, Allocation) else None
        return None if refused is None else refused.refusal

    def _claims_to_allocate(self, nodes: Iterable[NodeObject]) -> tuple[ClaimObject, ...]:
        """The claims to allocate: the same on all nodes, except the special claim for extended resources."""
        found = {each.claim.uid: each for each in self.cycle.claims.pending}
        for node in nodes:
            needs = self.cycle.claims.on(node)
            if isinstance(needs, Needs) and len(needs.pending) > len(found):
                found = {each.claim.uid: each for each in needs.pending}
        return tuple(found.values())

    def _notes(self, stopped: int) -> Iterator[str]:
        if node := self.cycle.pod.kept.node:
            yield f"devices are kept for the pod on node {node}, because other pods are evicted for it"
        for claim in self.cycle.claims.allocated:
            held = ", ".join(map(str, held_by(claim, self.snapshot)))
            yield f"claim {claim.key} is allocated already and holds {held}"
        if stopped:
            yield (
                f"the answer for {_nodes(stopped)} is not known: a limit stopped the search "
                "(settings scheduling.maxSteps and scheduling.maxSeconds)"
            )

    @property
    def _asked_about(self) -> int:
        return len(self.nodes) + len(self.rejected)

    def _summary(self, told: str) -> str:
        if self._asked_about == 1:
            (node,) = (*self.rejected, *(node.name for node in self.nodes))
            return f"pod {self.cycle.pod} does not fit on node {node}: {told}"
        return f"pod {self.cycle.pod} fits nowhere: {told}"

    def _proposals(self, bundles: Bundles) -> tuple[tuple[Proposal, ...], bool]:
        """The best proposals, and whether no limit kept a change from being tried."""
        kinds, nodes = one_of_each(bundles.survey), promising(bundles.survey)
        others, fails = kinds[:MAX_CONFIRMED], bool(bundles.survey.guards)
        trials = ProposalTrials(self.cycle.pod.key, self.snapshot, self._measured(), others, fails, self.pause)
        proposals = proposals_on(nodes, bundles, trials)
        return proposals, not trials.cut_short and len(kinds) <= len(nodes)

    def _with_suggestions(self, explanation: Explanation) -> Explanation:
        """The explanation with what others suggest, as far as it helps."""
        measured, others = self._measured(), [node.name for node in self.nodes[:MAX_CONFIRMED]]

        def clock() -> float:
            """The time. Verbs go first."""
            self.pause()
            return measured.clock()

        solver = replace(measured, clock=clock)
        trials = ProposalTrials(self.cycle.pod.key, self.snapshot, solver, others, everywhere=False, pause=self.pause)
        found = list(explanation.proposals)
        for suggest in self.suggest:
            with self.cycle.solver.faults.of(f"pod {self.cycle.pod}"):
                found += suggested(suggest, self.cycle.pod, trials)
        is_whole = explanation.all_tried and not trials.cut_short
        return replace(explanation, proposals=best(found), all_tried=is_whole)

    def _measured(self) -> Solver:
        """The solver for work of `seconds`, by the clock of the work; its time is up at the deadline, too."""
        solver, worked = self.cycle.solver, self.worked
        return replace(solver, clock=lambda: worked() + (_LATE if solver.is_late else 0), until=worked() + self.seconds)


def clashes(survey: Survey, targets: Sequence[Target], causes: Mapping[str, Cause]) -> Iterator[Clash]:
    """Clashes on one node of each kind, where each request could be served alone; with the causes against nodes."""
    for node in one_of_each(survey):
        if node not in causes or not all(_is_served(survey, node, requests) for requests in survey.requests):
            continue
        if causes[node] is not CONSTRAINT:
            yield Clash("", node, ())
            continue
        for index, target in enumerate(targets):
            for spec in target.claim.claim.spec.constraints:
                yield Clash(constraint_text(spec), node, tuple(_values(survey, node, index, spec)))


def _is_served(survey: Survey, node: str, requests: Sequence[Wanted]) -> bool:
    """Whether one alternative can be served alone. For "all devices", each device must be free."""
    for way in requests:
        number = survey.ways.index(way)
        takes_all = way.request.mode is AllocationMode.ALL
        if survey.free(node, number) >= way.request.count and not (takes_all and survey.lacks_some(node, number)):
            return True
    return False


def _values(
    survey: Survey, node: str, claim: int, spec: ConstraintSpec
) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """Per request that a constraint covers: the values of the attribute on its free devices."""
    for number, way in enumerate(survey.ways):
        if way.claim == claim and constraint_covers(spec, way.request_name, way.request.name):
            free = survey.free_devices(node, number)
            seen = Counter(value_in_words(d.attributes.get(spec.attribute, ABSENT)) for d in free)
            yield way.label, tuple(sorted(seen.items()))


def _nodes(count: int) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}"
