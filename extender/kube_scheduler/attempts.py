"""Whether a scheduler that calls the extender tries a pod at all."""

from collections.abc import Collection
from typing import Final

from extender.cluster.objects.pods import Pod

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The scheduler of pods that name none."""


def no_attempt(pod: Pod, schedulers: Collection[str]) -> str:
    """Why no scheduler of ours tries a pod, whatever its nodes have; empty if one does.

    Args:
        pod: without a node.
        schedulers: names of the schedulers that call the extender; empty: not known, so that any scheduler may be one.
    """
    if pod.gates:
        one = len(pod.gates) == 1
        names = ", ".join(pod.gates)
        return (
            f"scheduling {'gate' if one else 'gates'} {names} {'keeps' if one else 'keep'} the pod from its scheduler"
        )
    scheduler = pod.scheduler_name or DEFAULT_SCHEDULER
    if schedulers and scheduler not in schedulers:
        return (
            f"its scheduler is {scheduler}, which does not call dra-extender; {' and '.join(sorted(schedulers))} would"
        )
    return ""
