"""Gangs: no pod is bound before there are devices for all pods of its gang."""

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.pending_reason import PendingReason
from extender.framework.plugin import Plugin, Refusal
from extender.framework.pods.gangs import GANG, gang_refusal


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
