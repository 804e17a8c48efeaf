"""The nodes on which kube-scheduler might bind a pod."""

from collections.abc import Callable, Hashable, Sequence

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.kube_scheduler import SchedulerChecks


def likely_nodes(snapshot: Snapshot) -> Callable[[Pod], Sequence[str]]:
    """The nodes on which kube-scheduler might bind a pod, as far as its conditions are known here."""
    plugged = (pod for pod in snapshot.pods.values() if pod.containers)
    checks, names = SchedulerChecks(snapshot.nodes, plugged), sorted(snapshot.nodes)
    known: dict[Hashable, Sequence[str]] = {}

    def likely(pod: Pod) -> Sequence[str]:
        kind = pod.requirements, pod.containers
        if kind not in known:
            rejected = checks.rejections(pod)
            known[kind] = tuple(name for name in names if name not in rejected)
        return known[kind]

    return likely
