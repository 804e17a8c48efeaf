"""Puts many equal pods on a fork: after each one, only its node is asked again."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import policy_of
from extender.framework.decisions.solver import No
from extender.framework.filter import FilterResult
from extender.framework.ranking import score_nodes
from extender.planning.kube_scheduler import SchedulerChecks
from extender.planning.planner import LateError, Planner, Queued, as_planned
from extender.plugins.admission_checks.jobs import copies

_SOME: Final = 512
"""More pods than one claim may be reserved for."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The cluster after equal pods had their turn.

    Attributes:
        fork: with those that got a node.
        number: of these.
        refusal: filter's answer for the first one that got none; None: all did, or the time was up.
    """

    fork: Snapshot
    number: int
    refusal: FilterResult | None = None


def place_equal(pod: Pod, number: int, fork: Snapshot, names: Sequence[str], planner: Planner) -> Placed:
    """Put pods like this one on a fork.

    A node that refuses one of them refuses the others as well: the fork only gets fuller. That does not hold for a
    claim that all of them use, so such pods have plain turns.

    Args:
        pod: a stand-in; its copies are placed.
        number: how many.
        fork: the cluster.
        names: the nodes.
        planner: for as long as there is time. It remembers the cluster that the fork comes from.
    """
    if any(each.claim_name is not None for each in pod.claims):
        return _by_turns((Queued(each, pod.uid) for each in copies(pod, number)), fork, names, planner)
    left = deque[str]()
    placed = 0
    try:
        for each in copies(pod, number):
            planner.solver.look()
            found = _next(each, left, fork, names, planner)
            if isinstance(found, FilterResult):
                return Placed(fork, placed, found)
            fork, placed = found, placed + 1
    except TimeoutError:
        pass
    return Placed(fork, placed)


def _next(
    pod: Pod, left: deque[str], fork: Snapshot, names: Sequence[str], planner: Planner
) -> Snapshot | FilterResult:
    """The fork with the pod on the next node that takes it; or filter's answer about all nodes.

    ``left`` has the nodes that may take it, the best first; nodes that do not are dropped.
    """
    planned, there = as_planned(pod, fork)
    found = _on_first(planned, left, there, planner)
    if found is not None:
        return found
    result = planner.takers(pod, names, fork)
    left.extend(_best_first(pod, result, planner))
    found = _on_first(planned, left, there, planner)
    return result if found is None else found


def _on_first(pod: Pod, left: deque[str], fork: Snapshot, planner: Planner) -> Snapshot | None:
    while left:
        name = left[0]
        if not SchedulerChecks(fork, [name]).rejections(pod) and planner.filter(pod, [name], fork).passed:
            found = planner.place(pod, name, fork)
            if not isinstance(found, No):
                return found
        left.popleft()
    return None


def _best_first(pod: Pod, result: FilterResult, planner: Planner) -> Sequence[str]:
    policy = policy_of(pod, planner.solver.policy) or planner.solver.policy
    scores = dict(zip(result.passed, score_nodes(result.passed, result.merits, policy), strict=True))
    return sorted(result.passed, key=lambda name: -scores[name])


def _by_turns(queue: Iterator[Queued], fork: Snapshot, names: Sequence[str], planner: Planner) -> Placed:
    """Plain turns, some at a time: a plan goes through all of its pods, also after one of them got no node."""
    placed = 0
    while some := tuple(islice(queue, _SOME)):
        try:
            end = planner.long_turns(some, fork, names)
        except LateError as late:
            return Placed(late.so_far.snapshot, placed + len(late.so_far.nodes))
        fork, placed = end.snapshot, placed + len(end.nodes)
        if end.refusals:
            return Placed(fork, placed, next(iter(end.refusals.values())))
    return Placed(fork, placed)
