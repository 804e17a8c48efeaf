"""The part of kube-scheduler in the choice of a node, apart from devices."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from extender.scheduler.checks import SchedulerChecks
from extender.state.objects import Pod


class NodeChoice(Protocol):
    """What kube-scheduler itself says of the nodes for a pod, pod after pod."""

    def rejections(self, pod: Pod, /) -> Mapping[str, str]:
        """The nodes that it rejects, each with the reason."""

    def choose(self, pod: Pod, names: Sequence[str], /) -> str:
        """The node that it takes of those that score equally."""

    def place(self, pod: Pod, node: str, /) -> None:
        """Count a pod that has got a node."""


class FirstNode(SchedulerChecks):
    """The conditions that the extender knows. Of nodes that score equally, the first one is taken."""

    def choose(self, _: Pod, names: Sequence[str]) -> str:
        """The first of the nodes. kube-scheduler would take any of them."""
        return names[0]
