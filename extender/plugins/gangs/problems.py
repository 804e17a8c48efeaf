"""Gangs that cannot start: their pods contradict each other or their PodGroup, or too few of their pods are there."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from extender.framework.problem import Look, Problem
from extender.kube.api import ObjectKey
from extender.kube.resources import POD_GROUPS, PODS
from extender.planning.pod_group_rules import contradiction
from extender.plugins.gangs.gang import gang_at

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
