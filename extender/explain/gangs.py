"""Explains a pod that waits for the other pods of its gang, and where all of them would go."""

from typing import Final

from allocator.tools import printable
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.gangs.plan import Shortfall
from extender.gangs.planning import GangPlanner
from extender.planning.node_choice import likely_nodes
from extender.planning.planner import Planner
from extender.pods.gangs import Gang, gang_at, gang_refusal, in_part_words

PLANNING_SECONDS: Final = 0.5
"""The longest time of the plan that an explanation makes."""


def gang_hindrance(pod: Pod, snapshot: Snapshot, decider: Decider, solver: Solver) -> str:
    """Why a pod waits for its gang; empty if it does not, or if there are devices for the gang.

    Args:
        pod: a pod without a node.
        snapshot: the cluster.
        decider: remembers verdicts on the cluster.
        solver: the decider's, for as long as there is time.
    """
    gang, found_reason = _gang_of(pod, snapshot), gang_refusal(pod, snapshot)
    if found_reason is None:
        return ""
    refusal = found_reason.in_words()
    if gang is None or gang.problem or len(gang.members) < gang.size:
        return refusal
    limited = solver.within(solver.clock() + PLANNING_SECONDS)
    found = GangPlanner(snapshot, Planner(limited, decider), likely_nodes(snapshot)).plan(gang)
    if not isinstance(found, Shortfall):
        return ""
    if not (found.is_final or found.placed):
        return f"{refusal}: the search ended before it was known how many of them get devices"
    placed, whom = len(gang.kept) + found.placed, "the others" if gang.bound else "them"
    if not placed:
        return f"{refusal}: none of {whom} gets devices: {found.reason}"
    limit = "" if found.is_final else "; a limit has stopped the search"
    return f"{refusal}: {placed} of {whom} get devices, and the next one finds none: {found.reason}{limit}"


def gang_note(pod: Pod, snapshot: Snapshot) -> str:
    """A note about the gang of a pod that fits or has a node; empty if there is none."""
    gang = _gang_of(pod, snapshot)
    if gang is not None and gang.runs_in_part:
        return in_part_words(gang)
    if gang is None or gang.is_placed or pod.node_name:
        return ""
    name = printable(gang.key.name)
    if gang.is_ready:
        return f"devices are kept on node {pod.kept.node} for the pod, together with the other pods of group {name}"
    return f"there are devices for {gang.size} pods of group {name} together; dra-extender keeps them all or none"


def _gang_of(pod: Pod, snapshot: Snapshot) -> Gang | None:
    key = pod.gang_key
    return None if pod.gang is None or pod.gang.problem or key is None else gang_at(key, snapshot)
