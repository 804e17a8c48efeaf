"""``drain``: nodes are cordoned, and their pods leave."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from allocator import Problem
from allocator.tools import JSON, Fields, hint
from extender.cluster.consumers import without_pods
from extender.cluster.objects.budgets import Budget
from extender.cluster.objects.pods import CORDON, Pod
from extender.cluster.snapshot import Snapshot
from extender.planning.planned_pods import TIED, unbound
from extender.verbs.preempt.victims import budgets_covering
from extender.whatif.edits.edit import Edit
from extender.whatif.fork import Fork, Leaving

_MOST_HINTS: Final = 10
"""Similar names are looked for: each look compares with all nodes."""


@dataclass(frozen=True, slots=True)
class Drain(Edit):
    """Nodes that are drained, all at once: a claim that pods of several nodes share is free when all of them leave."""

    field: ClassVar[str] = "drain"
    words: ClassVar[str] = "nodes whose pods leave"
    example: ClassVar[JSON] = "gpu-west-2"

    nodes: tuple[str, ...]

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """The names of the nodes."""
        names = question.texts(cls.field)
        return (cls(names),) if names else ()

    @property
    def number(self) -> int:
        """The nodes."""
        return len(self.nodes)

    @property
    def names(self) -> Sequence[str]:
        """The nodes."""
        return self.nodes

    def apply(self, fork: Fork) -> None:
        """Taint the nodes, and make the pods there pending, except for those that belong to their node."""
        leaving: list[Leaving] = []
        for index, name in enumerate(self.nodes):
            node = fork.snapshot.nodes.get(name)
            if node is None:
                known = hint(name, fork.snapshot.nodes) if len(fork.problems) < _MOST_HINTS else ""
                fork.problems.append(Problem(f"{self.field}[{index}]", f"node {name} does not exist{known}"))
                continue
            taints = (CORDON, *(each for each in node.taints if each != CORDON))
            fork.snapshot = fork.snapshot.with_node(replace(node, taints=taints))
            for pod in fork.before.pods_on(name):
                kind = "" if pod.controller is None else pod.controller.kind
                if kind in TIED:
                    fork.staying.append((str(pod), TIED[kind].format(pod.controller)))
                elif not pod.is_finished:
                    leaving.append(Leaving(pod, _caution(pod, fork.before)))
        fork.snapshot = without_pods(fork.snapshot, [each.pod for each in leaving])
        for each in leaving:
            fork.snapshot = fork.snapshot.with_pod(replace(unbound(each.pod), created=fork.now, deleting=False))
        fork.drained += self.nodes
        fork.leaving += leaving


def _caution(pod: Pod, snapshot: Snapshot) -> str:
    """Why `kubectl drain` does not move a pod as simply as this; empty if it does."""
    if pod.controller is None:
        return "no controller makes it again: kubectl drain needs --force, and somebody has to create it again"
    budgets = (key for key in budgets_covering(pod, snapshot) if snapshot.objects(Budget)[key].allowed <= 0)
    blocked = next(iter(sorted(budgets)), None)
    return "" if blocked is None else f"PodDisruptionBudget {blocked} allows no eviction: kubectl drain waits"
