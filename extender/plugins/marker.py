"""Pods with devices that came past the policies that mark them, where kube-scheduler asks only about marked pods."""

from collections.abc import Iterator
from typing import Final

from extender.framework.problem import Look, Problem
from extender.kube.resources import PODS
from extender.planning.kube_scheduler import not_marked

_COST: Final = "the pod may start without devices, or come to a node that has none left"
_ADVICE: Final = "apply the policies of deploy/only-scheduler, and make the pod again"


def problems(look: Look) -> Iterator[Problem]:
    """One for each pod without the marker that has not started."""
    for pod in look.snapshot.pods.values():
        look.pause()
        is_over = pod.has_started or pod.is_finished or pod.deleting
        if not is_over and (why := not_marked(pod)):
            yield Problem("unmarked", PODS.kind, pod.key, why, _COST, _ADVICE, pod.created)
