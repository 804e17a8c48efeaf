"""CPU and memory of nodes, as kube-scheduler counts them: NodeResourcesFit with one of its scoring strategies.

Source: pkg/scheduler/framework/plugins/noderesources, Kubernetes 1.36.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from extender.cluster.objects.pods import Pod
from loadtest.packing.trace import Shape, TraceNode

_CPU: Final = "Insufficient cpu"
_MEMORY: Final = "Insufficient memory"


class Strategy(StrEnum):
    """Scoring strategies of NodeResourcesFit. The first is the default of kube-scheduler."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"


class Room:
    """What the nodes have left, pod after pod.

    Args:
        nodes: all nodes, empty.
        shapes: of the pods; a pod's name is the position of its shape.
        strategy: decides between nodes that score equally.
    """

    def __init__(self, nodes: Iterable[TraceNode], shapes: Sequence[Shape], strategy: Strategy) -> None:
        self._sign = -1 if strategy is Strategy.LEAST else 1
        self._nodes = {node.name: node for node in nodes}
        self._left = {node.name: (node.cpu, node.memory) for node in self._nodes.values()}
        self._shapes = shapes

    def rejections(self, pod: Pod) -> Mapping[str, str]:
        """The nodes without room for a pod, each with what it lacks."""
        cpu, memory = self._needs(pod)
        return {
            name: _CPU if left[0] < cpu else _MEMORY
            for name, left in self._left.items()
            if left[0] < cpu or left[1] < memory
        }

    def choose(self, pod: Pod, names: Sequence[str]) -> str:
        """If nodes score equally: the node that the strategy prefers with the pod; then the first node."""
        cpu, memory = self._needs(pod)

        def left(name: str) -> float:
            node, (cpu_left, memory_left) = self._nodes[name], self._left[name]
            return self._sign * ((cpu_left - cpu) / (node.cpu or 1) + (memory_left - memory) / (node.memory or 1))

        return min(names, key=left)

    def place(self, pod: Pod, node: str) -> None:
        """Count a pod that has got a node."""
        cpu, memory = self._needs(pod)
        cpu_left, memory_left = self._left[node]
        self._left[node] = (cpu_left - cpu, memory_left - memory)

    def _needs(self, pod: Pod) -> tuple[int, int]:
        shape = self._shapes[int(pod.name)]
        return shape.cpu, shape.memory
