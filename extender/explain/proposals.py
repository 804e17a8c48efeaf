"""What would make a pod fit: sets of changes, the smallest first, each tried out by the verbs' own code.

Of nodes that are alike only a few are looked at, those that lack least first. On a node, every device that could serve
gives a bundle: all that would have to change for it. Unions of few bundles are tried by size; where none of them
suffices, everything at once, from which what is not needed is then taken back. Either way no change of a proposal can
be left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from allocator import Allocation, DeviceId, InvalidClaimError, Limits, SelectorError
from extender.decisions.solver import Solver
from extender.explain.bundles import Bundle, Bundles
from extender.explain.changes import Change, Kind, combined, configured
from extender.explain.explanation import Proposal
from extender.explain.references import with_claims_made
from extender.explain.survey import Survey
from extender.kube.api import ObjectKey
from extender.pods.case import held_for_nominated, open_case
from extender.pods.claims import Blocked
from extender.state.snapshot import Snapshot
from extender.verbs.filter import Bounds, filter_nodes

MAX_PROPOSALS: Final = 5
MAX_ALIKE: Final = 2
"""Proposals of changes of the same kinds."""

_NODES: Final = 24
_NODES_ALIKE: Final = 4
_TRIALS: Final = 1500
_TRIALS_ON_NODE: Final = 150
_FOUND_ON_NODE: Final = 6
_PAIRED: Final = 40
_TRIPLED: Final = 16
"""Bundles, the least invasive, of which unions are made."""

_STEPS: Final = 20_000
_SECONDS: Final = 0.1
"""For one trial: a "yes" that takes longer is not worth waiting for."""


@dataclass(slots=True)
class Trials:
    """Tries changes out on forks of a snapshot.

    Attributes:
        pod: in the snapshot.
        others: nodes where a selector could fail after the changes, which would fail the pod everywhere.
        until: when to stop, by the solver's clock.
        left: how many more may be made.
    """

    pod: ObjectKey
    snapshot: Snapshot
    solver: Solver
    others: Sequence[str]
    until: float
    pause: Callable[[], None]
    left: int = _TRIALS

    def __post_init__(self) -> None:
        limits = self.solver.limits
        short = Limits(min(limits.steps, _STEPS), min(limits.seconds, _SECONDS))
        self.solver = replace(self.solver, limits=short).within(self.until)

    @property
    def is_over(self) -> bool:
        """No more trials, or no more time."""
        return self.left <= 0 or self.solver.clock() > self.until

    def fits(self, changes: Iterable[Change], node: str) -> bool:
        """Would the pod fit on the node?"""
        return self._allocation(*self._world(changes), node) is not None

    def proposal(self, changes: Sequence[Change], node: str) -> Proposal | None:
        """The changes as a proposal, if filter would pass the node although it looks at others as well."""
        world, solver = self._world(changes)
        found = self._allocation(world, solver, node)
        names = tuple(dict.fromkeys((*self.others, node)))
        if found is None or node not in self._passed(names, world, solver):
            return None
        results = (r for allocation in found.results for r in allocation.results)
        devices = tuple(dict.fromkeys(r.device for r in results if self._is_there(r.device)))
        return Proposal(tuple(sorted(changes, key=_invasiveness)), node, devices)

    def anywhere(self, changes: Sequence[Change], nodes: Sequence[str]) -> Proposal | None:
        """The changes as a proposal, on the first node that will do."""
        world, solver = self._world(changes)
        passed = self._passed(nodes, world, solver)
        return self.proposal(changes, passed[0]) if passed else None

    def _passed(self, nodes: Sequence[str], world: Snapshot, solver: Solver) -> Sequence[str]:
        """Nodes that filter would pass, as far as there is time."""
        try:
            return filter_nodes(world.pods[self.pod], nodes, world, solver, bounds=Bounds(solver.until)).passed
        except TimeoutError:
            return ()

    def _is_there(self, device: DeviceId) -> bool:
        """Not only after the changes."""
        pool = self.snapshot.inventory.pools.get(device.pool_id)
        return pool is not None and any(d.id == device for s in pool.newest for d in s.devices)

    def _world(self, changes: Iterable[Change]) -> tuple[Snapshot, Solver]:
        self.left -= 1
        self.pause()
        made = tuple(changes)
        world = combined(made)(self.snapshot)
        solver = replace(self.solver, features=configured(made, self.solver.features))
        return with_claims_made(world.pods[self.pod], world)[0], solver

    def _allocation(self, world: Snapshot, solver: Solver, node: str) -> Allocation | None:
        pod = world.pods[self.pod]
        case = open_case(pod, world, solver)
        if isinstance(case, Blocked):
            return None
        case = replace(case, snapshot=held_for_nominated(pod, world, solver))
        try:
            found = case.at(world.nodes[node])
        except (InvalidClaimError, SelectorError, TimeoutError):
            return None
        return found if isinstance(found, Allocation) else None


def proposals_on(nodes: Sequence[str], bundles: Bundles, trials: Trials) -> tuple[Proposal, ...]:
    """The best proposals on some nodes, which are in the order in which to look at them."""
    found: dict[frozenset[str], Proposal] = {}
    for name in nodes:
        for changes in _sufficient(bundles.on(bundles.snapshot.nodes[name]), name, trials):
            proposal = trials.proposal(changes, name)
            if proposal is not None:
                found.setdefault(frozenset(c.what + c.text for c in changes), proposal)
        if trials.is_over:
            break
    return best(found.values())


def promising(survey: Survey) -> tuple[str, ...]:
    """Nodes to look at: of each kind a few, those first that lack least."""
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
    """Whether a node has no devices at all, how many it lacks at least, and how many others hold there."""
    lack, number = 0, 0
    for requests in survey.requests:
        numbers = range(number, number + len(requests))
        number += len(requests)
        needs = [max(0, survey.ways[n].request.count - survey.free(node, n)) for n in numbers]
        lack += min(needs, default=0)
    views = survey.views[node]
    has_none = not any(view.pool.candidates or view.pool.problem for view in views)
    return has_none, lack, sum(view.held for view in views)


def _sufficient(bundles: Sequence[Bundle], node: str, trials: Trials) -> Iterator[tuple[Change, ...]]:
    """Sets of changes that suffice on a node, none of which contains another."""
    found: list[frozenset[str]] = []
    until = trials.left - _TRIALS_ON_NODE
    for changes in _unions(bundles):
        if trials.is_over or trials.left < until or len(found) >= _FOUND_ON_NODE:
            break
        touched = _touched(changes)
        if not any(known <= touched for known in found) and trials.fits(changes, node):
            needed = _needed(changes, node, trials)
            found.append(_touched(needed))
            yield needed
    if not found and not trials.is_over:
        for kinds in ({Kind.FREE}, set(Kind) - {Kind.FREE, Kind.ADD}, set(Kind)):
            changes = _compatible(c for b in sorted(bundles, key=_size) for c in b if c.kind in kinds)
            if trials.fits(changes, node):
                yield _needed(changes, node, trials)
                return


def _unions(bundles: Sequence[Bundle]) -> Iterator[tuple[Change, ...]]:
    """Unions of up to three bundles, the smallest first and then the least invasive."""
    ranked = sorted(bundles, key=_size)
    sets = [
        *ranked,
        *(a | b for a, b in combinations(ranked[:_PAIRED], 2)),
        *(a | b | c for a, b, c in combinations(ranked[:_TRIPLED], 3)),
    ]
    for each in sorted(dict.fromkeys(sets), key=_size):
        if len(_touched(each)) == len(each) and (len(each) == 1 or _KINDS_TOGETHER.issuperset(c.kind for c in each)):
            yield tuple(sorted(each, key=_invasiveness))


_KINDS_TOGETHER: Final = frozenset(Kind) - {Kind.ADD}
"""More hardware and other changes besides: only where nothing else is found."""


def _needed(changes: Sequence[Change], node: str, trials: Trials) -> tuple[Change, ...]:
    """The changes without those that are not needed, the most invasive taken back first.

    More than once, where it takes: one change may be needed only for as long as another is there.
    """
    kept = sorted(changes, key=_invasiveness, reverse=True)
    before: list[Change] = []
    while kept != before:
        before = kept
        for change in before:
            rest = [each for each in kept if each is not change]
            if trials.fits(rest, node):
                kept = rest
    return tuple(kept)


def _compatible(changes: Iterable[Change]) -> tuple[Change, ...]:
    """One change of each thing."""
    found: dict[str, Change] = {}
    for change in changes:
        found.setdefault(change.what, change)
    return tuple(found.values())


def best(proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
    """The smallest and least invasive, with some variety: none that contains another, and few of the same kinds."""
    chosen: list[Proposal] = []
    for each in sorted(proposals, key=lambda p: _size(p.changes)):
        touched = _touched(each.changes)
        alike = [p for p in chosen if _kinds(p) == _kinds(each)]
        if any(_touched(p.changes) <= touched for p in chosen) or len(alike) >= MAX_ALIKE:
            continue
        if all(_count(p.changes) == _count(each.changes) for p in alike):
            chosen.append(each)
    return tuple(chosen[:MAX_PROPOSALS])


def _kinds(proposal: Proposal) -> tuple[Kind, ...]:
    return tuple(change.kind for change in proposal.changes)


def _touched(changes: Iterable[Change]) -> frozenset[str]:
    return frozenset(change.what for change in changes)


def _count(changes: Iterable[Change]) -> int:
    return sum(change.size for change in changes)


def _size(changes: Iterable[Change]) -> tuple[object, ...]:
    each = sorted(changes, key=_invasiveness)
    worst = max((c.kind for c in each), default=Kind.WAIT)
    kinds, weight = sum(c.kind for c in each), sum(c.weight for c in each)
    return (_count(each), len({c.kind for c in each}), worst, kinds, weight, [c.text for c in each])


def _invasiveness(change: Change) -> tuple[Kind, int, str]:
    return (change.kind, change.weight, change.text)
