"""Gangs: no pod is bound before there are devices for all pods of its gang.

People are told more than schedulers: whether there are devices for the gang, which takes a plan; and which gangs cannot
start, because their pods contradict each other or their PodGroup, or too few of their pods are there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from allocator.tools import printable
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import PendingReason
from extender.framework.plugin import Lacking, Plugin, Refusal
from extender.framework.problem import Look, Problem
from extender.kube.api import ObjectKey
from extender.kube.resources import POD_GROUPS, PODS
from extender.planning.kube_scheduler import contradiction, likely_nodes
from extender.planning.planner import Planner
from extender.plugins.gangs.gang import (
    GANG,
    Gang,
    awaits_devices,
    gang_at,
    gang_refusal,
    in_part_words,
    is_alone,
)
from extender.plugins.gangs.planner import GangPlanner
from extender.plugins.gangs.search import Shortfall

EXPLAINING_SECONDS: Final = 0.5
"""The longest time of the plan that an explanation makes."""


class GangPlugin(Plugin):
    """Refuses a pod until the pods of its gang that have a node, or kept devices, are as many as the gang's size."""

    name = GANG
    waits_for = PendingReason.GANG
    wakes_its_pods = True
    of_pod = ("gang",)

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> Refusal | None:
        """Raises nothing: counts in the snapshot are compared."""
        found = gang_refusal(pod, snapshot)
        return None if found is None else Refusal(found)

    def takes_a_try(self, refusal: Refusal, pod: Pod, snapshot: Snapshot) -> bool:
        """Once enough pods of the gang are there, a plan for them begins when the first one is tried."""
        return awaits_devices(refusal.reason)

    def keeps_devices(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether a pod is in a gang: its devices are kept for all of its pods together."""
        return not is_alone(pod, snapshot)

    def explain(
        self, refusal: Refusal, pod: Pod, snapshot: Snapshot, decider: Decider, solver: Solver
    ) -> Refusal | None:
        """A refusal with the number of pods that would get devices; None if there are devices for the gang."""
        gang, why = _gang_of(pod, snapshot), str(refusal)
        if gang is None or gang.problem or len(gang.members) < gang.size:
            return refusal
        limited = solver.within(solver.clock() + EXPLAINING_SECONDS)
        found = GangPlanner(snapshot, Planner(limited, decider), likely_nodes(snapshot)).plan(gang)
        if not isinstance(found, Shortfall):
            return None
        text = f"{why}: {_lack(found, gang)}"
        if not (found.is_final or found.placed):
            return Refusal(refusal.reason, text)
        if found.next is None:
            return Refusal(refusal.reason, f"{text}: {found.reason}")
        member, fork = found.next
        alone = replace(member, gang=None)
        lacking = Lacking(alone, fork.with_pod(alone), text)
        return Refusal(refusal.reason, f"{text}: {found.reason}", lacking=lacking)

    def notes(self, pod: Pod, snapshot: Snapshot) -> Sequence[str]:
        """What the gang of a pod has."""
        gang = _gang_of(pod, snapshot)
        if gang is not None and gang.runs_in_part:
            return (in_part_words(gang),)
        if gang is None or gang.is_placed or pod.node_name:
            return ()
        name = printable(gang.key.name)
        if gang.is_ready:
            where = f"devices are kept on node {pod.kept.node} for the pod"
            return (f"{where}, together with the other pods of group {name}",)
        return (
            f"there are devices for {gang.size} pods of group {name} together; dra-extender keeps them all or none",
        )


_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def _lack(found: Shortfall, gang: Gang) -> str:
    """A sentence that says how far a plan has come, up to the reason."""
    if not (found.is_final or found.placed):
        return "the search ended before it was known how many of them get devices"
    placed = len(gang.bound) + len(gang.kept) + found.placed
    which = f"the {_ORDINALS[placed]}" if placed < len(_ORDINALS) else f"pod number {placed + 1}"
    limit = "" if found.is_final else " (a limit has stopped the search)"
    return f"{placed} of {gang.size} get devices{limit}; {which} finds none"


def _gang_of(pod: Pod, snapshot: Snapshot) -> Gang | None:
    key = pod.gang_key
    return None if pod.gang is None or pod.gang.problem or key is None else gang_at(key, snapshot)


_PATIENCE: Final = timedelta(minutes=5)
"""So long may the pods of a gang take to come."""


def problems(look: Look) -> Iterator[Problem]:
    """One for each gang that cannot start."""
    for key in look.snapshot.gangs.members:
        look.pause()
        if why := contradiction(key, look.snapshot):
            at, cost = ObjectKey(key.namespace, key.name), "all pods of the group that wait go on waiting"
            advice = "make the pods again, as the PodGroup says"
            yield Problem("gang", POD_GROUPS.kind, at, why, cost, advice)
            continue
        gang = gang_at(key, look.snapshot)
        if gang is None or gang.bound:
            continue
        since = min(pod.created for pod in gang.members)
        here = len(gang.members)
        cost = f"{here} pod{'' if here == 1 else 's'} of the group wait{'s' if here == 1 else ''}"
        kind = POD_GROUPS.kind if key.is_pod_group else PODS.kind
        at = ObjectKey(key.namespace, key.name) if key.is_pod_group else gang.members[0].key
        if gang.problem:
            text = f"group {key.name} gets no devices: {gang.problem}"
            yield Problem("gang", kind, at, text, cost, "correct the annotations of the pods", since)
        elif here < gang.size and look.is_older(since, _PATIENCE):
            text = f"{here} of {gang.size} pods of group {key.name} are there, so none of them starts"
            advice = "create the missing pods, or lower the size of the group"
            yield Problem("gang", kind, at, text, cost, advice, since)
