"""The part of kube-scheduler in the choice of a node, apart from devices."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from extender.cluster.objects.pods import Pod
from extender.kube_scheduler import SchedulerChecks


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
