"""Sets of changes that make a pod fit, the smallest first; `extender.explain.proposals.trials` tries each out.

Of nodes that are alike only a few are examined, starting with the nodes that lack least. On a node, each bundle of
changes is tried alone, then two releases of devices together. If none of them suffices, all claims in the way are
released, without and with what the pod's claims can do without, and what is not needed is taken back. No change of a
proposal can be left out.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from allocator import RemedyKind
from extender.cluster.objects.pods import Pod
from extender.explain.change import ProposedChange, invasiveness, size
from extender.explain.device_survey import Survey
from extender.explain.explanation import Proposal
from extender.explain.proposals.node_changes import Bundle, Bundles
from extender.explain.proposals.suggestions import Suggest
from extender.explain.proposals.trials import ProposalTrials

MAX_PROPOSALS: Final = 5
MAX_ALIKE: Final = 2
"""Proposals of changes of the same kinds."""

_NODES: Final = 24
_NODES_ALIKE: Final = 4
_TRIALS_ON_NODE: Final = 150
_FOUND_ON_NODE: Final = 6
_PAIRED: Final = 40
"""Releases, the least invasive, that are tried two at a time."""

_DONE_WITHOUT: Final[Sequence[Collection[RemedyKind]]] = (
    frozenset(),
    frozenset({RemedyKind.DROP_CONSTRAINT}),
    frozenset({RemedyKind.ASK_FOR_LESS}),
    frozenset({RemedyKind.DROP_CONSTRAINT, RemedyKind.ASK_FOR_LESS}),
)


def proposals_on(nodes: Sequence[str], bundles: Bundles, trials: ProposalTrials) -> tuple[Proposal, ...]:
    """The best proposals on some nodes, which are tried in this order."""
    found: dict[frozenset[str], Proposal] = {}
    for name in nodes:
        if trials.is_over:
            trials.cut_short = True
            break
        for changes in _sufficient(bundles.on(bundles.snapshot.nodes[name]), name, trials):
            proposal = trials.proposal(changes, name)
            if proposal is not None:
                found.setdefault(frozenset(c.what + c.text for c in changes), proposal)
    return best(found.values())


def suggested(suggest: Suggest, pod: Pod, trials: ProposalTrials) -> Iterator[Proposal]:
    """Those of the suggestions that make a pod fit, in their order; no more than are shown."""
    number = 0
    try:
        for each in suggest(pod, trials.snapshot, trials.solver):
            if trials.is_over:
                trials.cut_short = True
            if trials.is_over or number == MAX_ALIKE:
                return
            proposal = trials.proposal(each.changes, each.node)
            if proposal is not None:
                number += 1
                yield proposal
    except TimeoutError:
        trials.cut_short = True


def promising(survey: Survey) -> tuple[str, ...]:
    """Nodes to try: a few of each kind, starting with the nodes that lack least."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for node in survey.views:
        alike.setdefault(survey.signature(node), []).append(node)
    ranked = sorted(alike.values(), key=lambda names: _lack(survey, names[0]))
    chosen = (name for number in range(_NODES_ALIKE) for names in ranked for name in names[number : number + 1])
    return tuple(name for name, _ in zip(chosen, range(_NODES), strict=False))


def one_of_each(survey: Survey) -> tuple[str, ...]:
    """One node of each kind."""
    return tuple({survey.signature(node): node for node in survey.views}.values())


def _lack(survey: Survey, node: str) -> tuple[bool, int, int]:
    """Whether a node has no devices at all, how many devices it lacks at least, and how many are in use."""
    lack, number = 0, 0
    for requests in survey.requests:
        numbers = range(number, number + len(requests))
        number += len(requests)
        needs = [max(0, survey.ways[n].request.count - survey.free(node, n)) for n in numbers]
        lack += min(needs, default=0)
    views = survey.views[node]
    has_none = not any(view.pool.candidates or view.pool.problem for view in views)
    return has_none, lack, sum(view.held for view in views)


def _sufficient(bundles: Sequence[Bundle], node: str, trials: ProposalTrials) -> Iterator[tuple[ProposedChange, ...]]:
    """Sets of changes that suffice on a node. No set contains another one."""
    found: list[frozenset[str]] = []
    until = trials.left - _TRIALS_ON_NODE
    for changes in _ranked(bundles):
        if len(found) >= _FOUND_ON_NODE:
            break
        if trials.is_over or trials.left < until:
            trials.cut_short = True
            break
        touched = _touched(changes)
        if not any(known <= touched for known in found) and trials.fits(changes, node):
            needed = _needed(changes, node, trials)
            found.append(_touched(needed))
            yield needed
    if not found:
        yield from _large(bundles, node, trials)


def _large(bundles: Sequence[Bundle], node: str, trials: ProposalTrials) -> Iterator[tuple[ProposedChange, ...]]:
    """Sets that suffice, of all releases and of what claims can do without: nothing, constraints, devices, or both."""
    releases = dict.fromkeys(change for bundle in bundles for change in bundle if change.kind is RemedyKind.FREE)
    edits = sorted((change for bundle in bundles if len(bundle) == 1 for change in bundle), key=lambda c: size((c,)))
    for kinds in _DONE_WITHOUT:
        largest = {change.what: change for change in edits if change.kind in kinds}
        every = (*releases, *largest.values())
        if trials.is_over:
            trials.cut_short = True
            break
        if {change.kind for change in largest.values()} == kinds and trials.fits(every, node):
            nearest = _nearest(_needed(every, node, trials), edits, node, trials)
            yield _needed(nearest, node, trials)  # after a smaller edit, another edit may be needless


def _nearest(
    changes: Sequence[ProposedChange], edits: Iterable[ProposedChange], node: str, trials: ProposalTrials
) -> tuple[ProposedChange, ...]:
    """The changes, each replaced by the smallest edit of the same thing that suffices; edits are in order of size."""
    kept = list(changes)
    for number, change in enumerate(changes):
        for edit in edits:
            is_smaller = edit.what == change.what and size((edit,)) < size((change,))
            if is_smaller and trials.fits((*kept[:number], edit, *kept[number + 1 :]), node):
                kept[number] = edit
                break
    return tuple(kept)


def _ranked(bundles: Sequence[Bundle]) -> Iterator[tuple[ProposedChange, ...]]:
    """Each bundle, and two together that only free devices: the smallest first and then the least invasive."""
    releases = [each for each in sorted(bundles, key=size) if all(change.kind is RemedyKind.FREE for change in each)]
    pairs = (a | b for a, b in combinations(releases[:_PAIRED], 2))
    for each in sorted(dict.fromkeys((*bundles, *pairs)), key=size):
        yield tuple(sorted(each, key=invasiveness))


def _needed(changes: Sequence[ProposedChange], node: str, trials: ProposalTrials) -> tuple[ProposedChange, ...]:
    """The changes that are needed; the most invasive changes are left out first.

    It repeats until nothing changes: one change may be needed only while another is made.
    """
    kept = sorted(changes, key=invasiveness, reverse=True)
    before: list[ProposedChange] = []
    while kept != before:
        before = kept
        for change in before:
            rest = [each for each in kept if each is not change]
            if trials.fits(rest, node):
                kept = rest
    return tuple(kept)


def best(proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
    """The smallest and least invasive proposals: none contains another, and few are of the same kinds."""
    chosen: list[Proposal] = []
    for each in sorted(proposals, key=lambda p: size(p.changes)):
        touched = _touched(each.changes)
        alike = [p for p in chosen if _kinds(p) == _kinds(each)]
        if any(_touched(p.changes) <= touched for p in chosen) or len(alike) >= MAX_ALIKE:
            continue
        if all(size(p.changes)[0] == size(each.changes)[0] for p in alike):
            chosen.append(each)
    return tuple(chosen[:MAX_PROPOSALS])


def _kinds(proposal: Proposal) -> tuple[RemedyKind, ...]:
    return tuple(change.kind for change in proposal.changes)


def _touched(changes: Iterable[ProposedChange]) -> frozenset[str]:
    return frozenset(change.what for change in changes)
