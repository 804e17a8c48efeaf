"""The words about the gate for people: what keeps a pod from its scheduler, and whose gate nobody lifts.

Nobody lifts a gate if the setting is off, or if the scheduler of the pod is none of ours.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.framework.plugin import Plugin
from extender.framework.problem import Find, Look, Problem
from extender.kube.api import ObjectKey
from extender.kube.resources import NAMESPACES
from extender.planning.kube_scheduler import at_gate, no_attempt


class SchedulingGatesPlugin(Plugin):
    """Tells of the gate of a pod. It refuses no pod: what has a turn is tried, what has none is not asked about."""

    name = "scheduling-gates"
    of_pod = ("gates",)

    def notes(self, pod: Pod, snapshot: Snapshot) -> Sequence[str]:
        """What keeps the pod from its scheduler."""
        text = at_gate(pod)
        return (text,) if text else ()


_ADVICE: Final = (
    "turn on schedulingGates.enabled; or take the policy dra-extender-gate away, and lift the gates that are left"
)


def problems(settings: Settings) -> Find:
    """What looks for them, with some settings."""
    gates, schedulers = settings.scheduling_gates, settings.scheduling.scheduler_names

    def find(look: Look) -> Iterator[Problem]:
        """One for each namespace with such pods."""
        stuck = Counter[str]()
        for pod in look.snapshot.pods.values():
            look.pause()
            if pod.awaits_turn and pod.is_pending and (not gates.enabled or no_attempt(pod, schedulers)):
                stuck[pod.namespace] += 1
        for namespace, number in stuck.items():
            pods = "1 pod waits" if number == 1 else f"{number} pods wait"
            text = f"{pods} at the scheduling gate dra-extender.dev/turn, and nobody lifts it"
            yield Problem("gate", NAMESPACES.kind, ObjectKey("", namespace), text, "these pods wait for ever", _ADVICE)

    return find
