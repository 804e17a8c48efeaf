"""One pod that is ready to be decided: every node judged as filter judges it, and what lies behind the answers."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from allocator.constraints import covers
from allocator.errors import InvalidClaimError, SelectorError
from allocator.explain.conditions import ABSENT, in_words
from allocator.explain.obstacles import Wanted, ways
from allocator.model import ConstraintSpec
from allocator.outcome import Allocation
from extender.cluster.objects import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.explain.bundles import Bundles
from extender.explain.changes import Target, constraint_text
from extender.explain.explanation import Clash, Explanation, NodeGroup, Place, PlacedDevice, Proposal, Verdict
from extender.explain.holders import Holders
from extender.explain.merits import ranking, why_here
from extender.explain.proposals import Trials, one_of_each, promising, proposals_on
from extender.explain.references import targets_of
from extender.explain.survey import Survey
from extender.solver import No
from extender.verbs.case import Case
from extender.verbs.filter import selector_reason

MAX_PLACES: Final = 5
"""Nodes that will do, told in full."""

MAX_CLASHES: Final = 3
MAX_CONFIRMED: Final = 200
"""Nodes on which a proposal must not make a selector fail: one of each kind, so many at most."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a pod.

    Attributes:
        case: in the snapshot in which others that go before the pod have what they need.
        snapshot: as it is; changes are tried out on it.
        seconds: for the search for proposals, by the solver's clock.
        pause: called between pieces of work.
    """

    case: Case
    snapshot: Snapshot
    nodes: Sequence[NodeObject]
    seconds: float
    pause: Callable[[], None]

    def explanation(self) -> Explanation:
        """All about it."""
        reasons, found, cause = self._verdicts()
        groups = _groups(reasons)
        return self._fitting(groups, found) if found else self._failing(groups, cause)

    def _verdicts(self) -> tuple[Mapping[str, str], Mapping[str, Allocation], str]:
        """Node to the reason against it; node to what the pod would get; why it can go nowhere, if that is known."""
        reasons: dict[str, str] = {}
        found: dict[str, Allocation] = {}
        for node in self.nodes:
            self.pause()
            try:
                verdict = self.case.at(node)
            except InvalidClaimError as error:
                return dict.fromkeys((n.name for n in self.nodes), str(error)), {}, str(error)
            except SelectorError as error:
                return dict.fromkeys((n.name for n in self.nodes), selector_reason(error)), {}, str(error)
            if isinstance(verdict, No):
                reasons[node.name] = verdict.reason
            else:
                found[node.name] = verdict
        return reasons, found, ""

    def _fitting(self, groups: tuple[NodeGroup, ...], found: Mapping[str, Allocation]) -> Explanation:
        policy = self.case.solver.policy
        merits = {name: allocation.merit for name, allocation in found.items()}
        scores = policy.scores(merits)
        places = tuple(
            Place(name, scores[name], self._devices(found[name]), why_here(merits[name], merits.values(), policy))
            for name in ranking(scores)[:MAX_PLACES]
        )
        best = f", best on {places[0].node}" if len(found) > 1 else f": {places[0].node}"
        summary = f"pod {self.case.pod} fits on {len(found)} of {_nodes(len(self.nodes))}{best}"
        return Explanation(str(self.case.pod), Verdict.FITS, summary, nodes=groups, places=places)

    def _devices(self, found: Allocation) -> tuple[PlacedDevice, ...]:
        return tuple(
            PlacedDevice(str(claim.key), result.request, result.device)
            for claim, allocation in zip(self.case.claims.pending, found.results, strict=False)
            for result in allocation.results
        )

    def _failing(self, groups: tuple[NodeGroup, ...], cause: str) -> Explanation:
        targets = targets_of(self.case.pod, self.case.claims)
        requests = ways(tuple(target.claim.claim for target in targets), self.snapshot.classes)
        survey = Survey(requests, self.case.snapshot, self.nodes, self.case.solver, self.pause)
        holders = Holders(self.snapshot, self.case.pod)
        bundles = Bundles(self.case.pod, self.case.claims, targets, survey, holders, self.snapshot)
        return Explanation(
            str(self.case.pod),
            Verdict.FITS_NOWHERE,
            self._summary(groups, cause),
            cause,
            nodes=groups,
            requests=survey.reports(targets, holders),
            clashes=tuple(islice(clashes(survey, targets), MAX_CLASHES)),
            proposals=self._proposals(bundles),
            searched=True,
        )

    def _summary(self, groups: Sequence[NodeGroup], cause: str) -> str:
        if len(self.nodes) == 1:
            return f"pod {self.case.pod} does not fit on node {self.nodes[0].name}: {cause or groups[0].reason}"
        counted = cause or ", ".join(f"{len(group.nodes)} {group.reason}" for group in groups)
        return f"pod {self.case.pod} fits on none of {len(self.nodes)} nodes: {counted}"

    def _proposals(self, bundles: Bundles) -> tuple[Proposal, ...]:
        solver = self.case.solver
        others = one_of_each(bundles.survey)[:MAX_CONFIRMED]
        until = solver.clock() + self.seconds
        trials = Trials(self.case.pod.key, self.snapshot, solver, others, until, self.pause)
        return proposals_on(promising(bundles.survey), bundles, trials)


def clashes(survey: Survey, targets: Sequence[Target]) -> Iterator[Clash]:
    """What there is to choose from, on nodes of each kind where every request could be served alone."""
    for node in one_of_each(survey):
        if not all(_is_served(survey, node, requests) for requests in survey.requests):
            continue
        constrained = False
        for index, target in enumerate(targets):
            for spec in target.claim.claim.spec.constraints:
                constrained = True
                values = tuple(_values(survey, node, index, spec))
                yield Clash(constraint_text(spec), node, values)
        if not constrained:
            yield Clash("", node, ())


def _is_served(survey: Survey, node: str, requests: Sequence[Wanted]) -> bool:
    return any(survey.free(node, survey.ways.index(way)) >= way.request.count for way in requests)


def _values(
    survey: Survey, node: str, claim: int, spec: ConstraintSpec
) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """Per request that a constraint covers: the values of the attribute on its free devices."""
    for number, way in enumerate(survey.ways):
        if way.claim == claim and covers(spec, way.request_name, way.request.name):
            free = survey.free_devices(node, number)
            seen = Counter(in_words(d.attributes.get(spec.attribute, ABSENT)) for d in free)
            yield way.label, tuple(sorted(seen.items()))


def _groups(reasons: Mapping[str, str]) -> tuple[NodeGroup, ...]:
    """The nodes by reason, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        groups.setdefault(reason, []).append(node)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(NodeGroup(reason, tuple(nodes)) for reason, nodes in ordered)


def _nodes(count: int) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}"
