"""kube-scheduler's own part in the choice of a node, as far as it is known here."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.planning.kube_scheduler import SchedulerChecks


class NodeChoice(Protocol):
    """kube-scheduler's own judgment of the nodes, for one pod after the other."""

    def rejections(self, pod: Pod, /) -> Mapping[str, str]:
        """The nodes that kube-scheduler rejects, each with the reason."""

    def choose(self, pod: Pod, names: Sequence[str], /) -> str:
        """The node that kube-scheduler takes if several nodes have the highest score."""

    def place(self, pod: Pod, node: str, /) -> None:
        """Count a pod that has got a node."""


class FirstNode(SchedulerChecks):
    """The conditions that the extender knows. If several nodes have the highest score, the first one is taken."""

    def choose(self, _: Pod, names: Sequence[str]) -> str:
        """The first of the nodes. kube-scheduler would take any of them."""
        return names[0]


def likely_nodes(snapshot: Snapshot) -> Callable[[Pod], Sequence[str]]:
    """The nodes on which kube-scheduler might bind a pod, as far as its conditions are known here."""
    checks, names = SchedulerChecks.of(snapshot), sorted(snapshot.nodes)
    known: dict[Hashable, Sequence[str]] = {}

    def likely(pod: Pod) -> Sequence[str]:
        kind = pod.requirements, pod.containers
        if kind not in known:
            rejected = checks.rejections(pod)
            known[kind] = tuple(name for name in names if name not in rejected)
        return known[kind]

    return likely
