"""Sets of changes that make a pod fit, the smallest first; each is tried out on a fork, by the verbs' own code.

Of nodes that are alike only a few are examined, starting with the nodes that lack least. On a node, each bundle of
changes is tried alone, then two releases of devices together. If none of them suffices, all claims in the way are
released, without and with what the pod's claims can do without, and what is not needed is taken back. No change of a
proposal can be left out.

A successor is the pod that a controller makes in place of one that a proposal deletes. It has the owner, the shape and
the queue of the pod before it. If it goes before the explained pod in their queue, it may take what the deletion frees:
then the deletion does not help.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from allocator import Allocation, DeviceId, InvalidClaimError, Limits, SelectorError
from allocator.obstacles import RemedyKind
from extender.answers.explain.device_survey import Survey
from extender.answers.explain.explanation import Proposal, Successor
from extender.answers.explain.node_changes import Bundle, Bundles
from extender.answers.explain.patches import commands_of, patches_of
from extender.answers.explain.pod_claims import with_claims_made
from extender.cluster.consumers import without_pods
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import open_cycle
from extender.framework.decisions.solver import No, Solver
from extender.framework.held_devices import held_for_nominated
from extender.framework.pods.claims import Blocked, named_claims
from extender.kube.api import ObjectKey
from extender.planning.changes import ProposedChange, Suggest, combined, configured, invasiveness, size
from extender.planning.kube_scheduler import SchedulerChecks
from extender.planning.planner import TIED, Planner, unbound


def made_again(deleted: Iterable[ObjectKey], snapshot: Snapshot) -> tuple[Pod, ...]:
    """The deleted pods that a controller makes again, in the order of their queue."""
    found = (snapshot.pods.get(key) for key in dict.fromkeys(deleted))
    return tuple(sorted((pod for pod in found if pod is not None and pod.controller is not None), key=_order))


def goes_first(before: Pod, pod: Pod) -> bool:
    """Whether the successor of a pod is tried before a pod that waits already.

    A successor is younger. The order of two schedulers is not known.
    """
    return before.priority > pod.priority or before.scheduler_name != pod.scheduler_name


def returned(
    before: Pod, known: Snapshot, snapshot: Snapshot, solver: Solver, only: str = ""
) -> tuple[Snapshot, Successor]:
    """The cluster after the successor of a pod had its turn, and where the successor is then.

    Args:
        before: the deleted pod.
        known: the cluster in which the pod was there.
        snapshot: the cluster without it.
        solver: for as long as there is time.
        only: the node where it may go; empty: any.

    Raises:
        TimeoutError: the solver's time is up.
    """
    pod, snapshot = _successor(before, known, snapshot)
    nodes, rejected = snapshot.nodes, SchedulerChecks(snapshot).rejections(pod)
    is_tied = before.controller is not None and before.controller.kind in TIED
    names = [before.node_name] if is_tied else [only] if only else sorted(nodes)
    names = [name for name in names if name in nodes and name not in rejected]
    planner = Planner.remembering(solver)
    passed = planner.filter(pod, names, snapshot, most=1).passed
    after = planner.place(pod, passed[0], snapshot) if passed else None
    if after is None or isinstance(after, No):
        return snapshot, Successor(str(before), str(before.controller), "")
    return after, Successor(str(before), str(before.controller), passed[0])


def _successor(before: Pod, known: Snapshot, snapshot: Snapshot) -> tuple[Pod, Snapshot]:
    """The new pod, and the cluster with the claims that are made for it: they ask for the same as those before."""
    uid, statuses = f"{before.uid}/successor", dict(before.claim_statuses)
    entries = {each.name for each in before.claims if each.template_name is not None}
    for entry, old in named_claims(before, known):
        if entry in entries:
            name = f"{old.claim.name}/successor"
            claim = replace(old.claim, name=name, uid=f"{old.claim.uid}/successor", allocation=None, reserved_for=())
            snapshot = snapshot.with_claim(replace(old, claim=replace(claim, owner_uid=uid), allocated_at=None))
            statuses[entry] = name
    new = replace(unbound(before), uid=uid, started="", claim_statuses=statuses)
    return new, snapshot.with_pod(new)


def _order(pod: Pod) -> tuple[int, str, str]:
    return pod.order


MAX_TRIALS: Final = 1500

_STEPS: Final = 20_000
_SECONDS: Final = 0.1
"""The limits of one trial, with `_STEPS`: a "yes" that takes longer is not worth the wait."""


@dataclass(slots=True)
class ProposalTrials:
    """Tries changes out.

    Attributes:
        pod: in the snapshot.
        solver: its deadline ends the trials.
        others: nodes where a selector may fail after the changes; such a failure rejects the pod on every node.
        everywhere: a selector fails before the changes, so each set of changes has to mend this.
        left: the number of trials that may still be made.
        cut_short: a limit kept a change from being tried, or a trial from its end.
    """

    pod: ObjectKey
    snapshot: Snapshot
    solver: Solver
    others: Sequence[str]
    everywhere: bool
    pause: Callable[[], None]
    left: int = MAX_TRIALS
    cut_short: bool = False

    def __post_init__(self) -> None:
        limits = self.solver.limits
        short = Limits(min(limits.steps, _STEPS), min(limits.seconds, _SECONDS))
        self.solver = replace(self.solver, limits=short)
        # What pods were woken for is kept for seconds only: a change is to help for longer.
        for uid in tuple(self.snapshot.woken):
            self.snapshot = self.snapshot.without_woken(uid)

    @property
    def is_over(self) -> bool:
        """No more trials, or no more time."""
        return self.left <= 0 or self.solver.is_late

    def fits(self, changes: Iterable[ProposedChange], node: str) -> bool:
        """Would the pod fit on the node?"""
        made = tuple(changes)
        after, solver = self._after(made)
        if self._allocation(after, solver, node) is None:
            return False
        if self.everywhere and not self._is_passed(node, after, solver):
            return False
        then = self._after_successors(made, after, solver)
        return then is after or (then is not None and self._allocation(then, solver, node) is not None)

    def proposal(self, changes: Sequence[ProposedChange], node: str) -> Proposal | None:
        """The changes as a proposal, if filter would pass the node although it looks at others as well."""
        after, solver = self._after(changes)
        then = self._after_successors(changes, after, solver)
        found = None if then is None else self._allocation(then, solver, node)
        if then is None or found is None or not self._is_passed(node, then, solver):
            return None
        results = (r for allocation in found.results for r in allocation.results)
        devices = tuple(dict.fromkeys(r.device for r in results if self._is_there(r.device)))
        successors = self._successors(changes, after, solver, node)
        made, pod = tuple(sorted(changes, key=invasiveness)), self.snapshot.pods[self.pod]
        patches, gates = patches_of(pod, self.snapshot, after), tuple(each.gate for each in made if each.gate)
        commands = commands_of(made, patches, pod)
        return Proposal(made, node, devices, successors, patches, gates, commands)

    def _after_successors(self, changes: Sequence[ProposedChange], after: Snapshot, solver: Solver) -> Snapshot | None:
        """The cluster after the turns of successors that go before the pod; None if there is no time to see.

        The same cluster if there are none.
        """
        first, _ = self._made_again(changes)
        if not first:
            return after
        try:
            return self._turns(first, without_pods(after, first), solver)[0]
        except TimeoutError:
            self.cut_short = True
            return None

    def _successors(
        self, changes: Sequence[ProposedChange], after: Snapshot, solver: Solver, node: str
    ) -> tuple[Successor, ...]:
        """The places of the successors of deleted pods once the pod is on a node; none if there is no time to see."""
        first, later = self._made_again(changes)
        if not (first or later):
            return ()
        try:
            before, gone = self._turns(first, without_pods(after, (*first, *later)), solver)
            placed = Planner.remembering(solver).place(before.pods[self.pod], node, before)
            return () if isinstance(placed, No) else (*gone, *self._turns(later, placed, solver)[1])
        except TimeoutError:
            return ()

    def _turns(self, pods: Sequence[Pod], cluster: Snapshot, solver: Solver) -> tuple[Snapshot, tuple[Successor, ...]]:
        """The cluster after the turns of the successors of some pods, and where they are then."""
        found = []
        for each in pods:
            self.pause()
            cluster, successor = returned(each, self.snapshot, cluster, solver)
            found.append(successor)
        return cluster, tuple(found)

    def _made_again(self, changes: Iterable[ProposedChange]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """The deleted pods that controllers make again: those that go before the pod then, and the others."""
        again = made_again((key for change in changes for key in change.deletes), self.snapshot)
        pod = self.snapshot.pods.get(self.pod)
        first = tuple(each for each in again if pod is not None and goes_first(each, pod))
        return first, tuple(each for each in again if each not in first)

    def _is_passed(self, node: str, after: Snapshot, solver: Solver) -> bool:
        """Whether filter passes a node although it looks at others as well; not if there is no time."""
        names = tuple(dict.fromkeys((*self.others, node)))
        try:
            return node in Planner.remembering(solver).filter(after.pods[self.pod], names, after).passed
        except TimeoutError:
            self.cut_short = True
            return False

    def _is_there(self, device: DeviceId) -> bool:
        """Whether a device exists without the changes."""
        pool = self.snapshot.inventory.pools.get(device.pool_id)
        return pool is not None and any(d.id == device for s in pool.newest for d in s.devices)

    def _after(self, changes: Iterable[ProposedChange]) -> tuple[Snapshot, Solver]:
        self.left -= 1
        self.pause()
        made = tuple(changes)
        after = combined(made)(self.snapshot)
        solver = replace(self.solver, features=configured(made, self.solver.features))
        return with_claims_made(after.pods[self.pod], after)[0], solver

    def _allocation(self, after: Snapshot, solver: Solver, node: str) -> Allocation | None:
        pod = after.pods[self.pod]
        cycle = open_cycle(pod, after, solver)
        if isinstance(cycle, Blocked):
            return None
        cycle = replace(cycle, snapshot=held_for_nominated(pod, after, solver))
        try:
            found = cycle.at(after.nodes[node])
        except (InvalidClaimError, SelectorError):
            return None
        except TimeoutError:
            self.cut_short = True
            return None
        if isinstance(found, Allocation):
            return found
        self.cut_short |= found.stopped
        return None


MAX_PROPOSALS: Final = 3
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
    """The suggestions that make a pod fit, in their order; no more than are shown."""
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
    counts = _counts(change for bundle in bundles if len(bundle) == 1 for change in bundle)
    until = trials.left - _TRIALS_ON_NODE
    for changes in _ranked(bundles):
        if len(found) >= _FOUND_ON_NODE:
            break
        if trials.is_over or trials.left < until:
            trials.cut_short = True
            break
        touched = _touched(changes)
        if len(changes) == 1 and changes[0].count:
            family = counts.pop(changes[0].what, [])
            most = _most(family, lambda change: trials.fits((change,), node))
            if most is not None:
                found.append(touched)
                yield (most,)
            continue
        if not any(known <= touched for known in found) and trials.fits(changes, node):
            needed = _without_needless(changes, node, trials)
            found.append(_touched(needed))
            yield needed
    if not found:
        yield from _large(bundles, node, trials)


def _counts(changes: Iterable[ProposedChange]) -> dict[str, list[ProposedChange]]:
    """The changes of the number of devices, by what is changed, the fewest devices first."""
    found: dict[str, list[ProposedChange]] = {}
    for change in sorted(changes, key=lambda each: each.count):
        if change.count:
            found.setdefault(change.what, []).append(change)
    return found


def _most(family: Sequence[ProposedChange], fits: Callable[[ProposedChange], bool]) -> ProposedChange | None:
    """The change to the most devices with which the pod fits; None if it does not fit with the fewest."""
    if not family or not fits(family[0]):
        return None
    low, high = 0, len(family) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(family[middle]) else (low, middle - 1)
    return family[low]


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
            nearest = _nearest(_without_needless(every, node, trials), edits, node, trials)
            yield _without_needless(nearest, node, trials)  # after a smaller edit, another edit may be needless


_Changes = tuple[ProposedChange, ...]


def _nearest(
    changes: Sequence[ProposedChange], edits: Iterable[ProposedChange], node: str, trials: ProposalTrials
) -> tuple[ProposedChange, ...]:
    """The changes, each replaced by the smallest edit of the same thing that suffices; edits are in order of size."""
    kept, every = list(changes), list(edits)
    counts = _counts(every)
    for number, change in enumerate(changes):
        before, after = tuple(kept[:number]), tuple(kept[number + 1 :])

        def fits(edit: ProposedChange, before: _Changes = before, after: _Changes = after) -> bool:
            return trials.fits((*before, edit, *after), node)

        if change.count:
            kept[number] = _most(counts[change.what], fits) or change
            continue
        for edit in every:
            is_smaller = edit.what == change.what and size((edit,)) < size((change,))
            if is_smaller and fits(edit):
                kept[number] = edit
                break
    return tuple(kept)


def _ranked(bundles: Sequence[Bundle]) -> Iterator[tuple[ProposedChange, ...]]:
    """Each bundle, and two together that only free devices: the smallest first and then the least invasive."""
    releases = [each for each in sorted(bundles, key=size) if all(change.kind is RemedyKind.FREE for change in each)]
    pairs = (a | b for a, b in combinations(releases[:_PAIRED], 2))
    for each in sorted(dict.fromkeys((*bundles, *pairs)), key=size):
        yield tuple(sorted(each, key=invasiveness))


def _without_needless(
    changes: Sequence[ProposedChange], node: str, trials: ProposalTrials
) -> tuple[ProposedChange, ...]:
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
