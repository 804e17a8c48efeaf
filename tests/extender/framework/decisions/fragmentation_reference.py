"""The plain reference of usable room: sums over shapes and devices, without any memory.

Devices are those of a trace: each has a model, and 1,000 thousandths that pods share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.cluster.snapshot import Snapshot
from loadtest.packing.trace import WHOLE, Shape, TraceNode


@dataclass(frozen=True)
class Left:
    """What is left on a node: CPU, and thousandths by device."""

    node: TraceNode
    cpu: int
    devices: Mapping[str, int]

    def usable(self, weights: Mapping[Shape, float]) -> float:
        """The mean over the shapes of the room that a shape can use, in devices."""
        return sum(weight * self._usable_by(shape) for shape, weight in weights.items()) / sum(weights.values())

    def _usable_by(self, shape: Shape) -> float:
        if self.cpu < shape.cpu or (shape.models and self.node.model not in shape.models):
            return 0.0
        copies = float(sum(left // shape.milli for left in self.devices.values()) // shape.gpus)
        if shape.cpu:
            copies = min(copies, self.cpu / shape.cpu)
        return copies * shape.asked / WHOLE

    def without(self, shape: Shape, devices: Sequence[str]) -> "Left":
        """What is left when a pod has these devices."""
        left = dict(self.devices)
        for device in devices:
            left[device] -= shape.milli
        return Left(self.node, self.cpu - shape.cpu, left)


def left_on(node: TraceNode, snapshot: Snapshot, shapes: Mapping[str, Shape]) -> Left:
    """What pods have left on a node.

    Args:
        node: of the trace.
        snapshot: has the pods and their claims.
        shapes: by name of the pod, of all pods with a node.
    """
    devices = {f"gpu-{number}": WHOLE for number in range(node.gpus)}
    for claim in snapshot.claims.values():
        for result in claim.claim.allocation.results if claim.claim.allocation else ():
            if result.device.pool == node.name:
                assert result.consumed_capacity is not None
                devices[result.device.device] -= result.consumed_capacity["milli"].nano // 10**9
    return Left(node, node.cpu - sum(shape.cpu for shape in shapes.values()), devices)
