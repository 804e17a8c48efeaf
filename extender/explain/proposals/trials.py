"""Changes tried out on forks of a snapshot, by the verbs' own code: would the pod fit?"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocator import Allocation, DeviceId, InvalidClaimError, Limits, SelectorError
from extender.cluster.consumers import without_pods
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import No, Solver
from extender.explain.change import ProposedChange, combined, configured, invasiveness
from extender.explain.claim_references import with_claims_made
from extender.explain.explanation import Proposal, Successor
from extender.explain.proposals.successors import goes_first, made_again, returned
from extender.kube.api import ObjectKey
from extender.planning.planner import Planner
from extender.pods.claims import Blocked
from extender.pods.decision_case import open_case
from extender.pods.nominated.held_devices import held_for_nominated

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
        return Proposal(tuple(sorted(changes, key=invasiveness)), node, devices, successors)

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
        """Where the successors of deleted pods are once the pod is on a node; nothing if there is no time to see."""
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
        case = open_case(pod, after, solver)
        if isinstance(case, Blocked):
            return None
        case = replace(case, snapshot=held_for_nominated(pod, after, solver))
        try:
            found = case.at(after.nodes[node])
        except (InvalidClaimError, SelectorError):
            return None
        except TimeoutError:
            self.cut_short = True
            return None
        if isinstance(found, Allocation):
            return found
        self.cut_short |= found.stopped
        return None
