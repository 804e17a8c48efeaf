"""The gate in a scheduling cycle: people are told of it."""

from collections.abc import Sequence

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.plugin import Plugin
from extender.planning.kube_scheduler import at_gate


class SchedulingGatesPlugin(Plugin):
    """Tells of the gate of a pod. It refuses no pod: what has a turn is tried, what has none is not asked about."""

    name = "scheduling-gates"
    of_pod = ("gates",)

    def notes(self, pod: Pod, snapshot: Snapshot) -> Sequence[str]:
        """What keeps the pod from its scheduler."""
        text = at_gate(pod)
        return (text,) if text else ()
