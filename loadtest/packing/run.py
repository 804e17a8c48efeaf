"""One run: the pods of a trace arrive in the order of a seed, and the service places each with a policy, or never.

Filter, prioritize and bind are those of the service, over a cluster in memory (`extender.Cluster`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extender import Cluster, Settings
from extender.config.settings import SchedulingSettings
from extender.serving.garbage import undisturbed
from loadtest.packing.arrivals import arrivals
from loadtest.packing.cluster import cluster_objects, pod_objects
from loadtest.packing.room import Room
from loadtest.packing.trace import WHOLE, Shape, Trace, TraceNode

CHECKPOINTS: Final = (90, 95, 100, 110, 120, 130)
"""Loads at which the allocation is noted: percent of all GPUs that pods have asked for so far."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run has measured.

    Attributes:
        allocated: percent of all GPUs that is allocated, by checkpoint.
        pods: how many arrived.
        placed: how many of them got a node.
        seconds: of computing for the scheduling, without making the cluster.
    """

    trace: str
    policy: str
    seed: int
    allocated: Mapping[int, float]
    pods: int
    placed: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The run for programs."""
        allocated = {str(load): round(percent, 3) for load, percent in self.allocated.items()}
        return {
            "trace": self.trace,
            "policy": self.policy,
            "seed": self.seed,
            "allocated": allocated,
            "pods": self.pods,
            "placed": self.placed,
            "seconds": round(self.seconds, 1),
        }


def run(
    nodes: Sequence[TraceNode],
    trace: Trace,
    policy: str,
    seed: int,
    progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Run:
    """Place the pods of a trace.

    Args:
        nodes: at least one has a GPU.
        trace: at least one pod asks for a GPU.
        policy: name of the policy for all pods.
        seed: of the arrivals.
        progress: called after each pod with the number of pods that are done, and of all.
    """
    whole = sum(node.gpus for node in nodes)
    shapes = arrivals(trace, whole * WHOLE, seed)
    with undisturbed():
        cluster = Cluster.from_objects(
            cluster_objects(nodes), settings=Settings(scheduling=SchedulingSettings(policy=policy))
        )
        cluster.add(*pod_objects(shapes))
        began = time.process_time()
        placements = cluster.schedule(progress=progress, choice=Room(nodes, shapes))
        seconds = time.process_time() - began
    placed = [bool(placement.node) for placement in placements]
    percent = allocated(shapes, placed, whole * WHOLE)
    return Run(trace.name, policy, seed, percent, len(shapes), sum(placed), seconds)


def allocated(shapes: Sequence[Shape], placed: Sequence[bool], whole: int) -> Mapping[int, float]:
    """Percent of the GPUs that is allocated at each checkpoint that is reached.

    Args:
        shapes: in the order of arrival.
        placed: whether each of them got a node.
        whole: thousandths of GPUs that the cluster has.
    """
    found: dict[int, float] = {}
    asked = held = 0
    for shape, has_node in zip(shapes, placed, strict=True):
        asked += shape.asked
        held += shape.asked * has_node
        for load in CHECKPOINTS:
            if load not in found and asked * 100 >= whole * load:
                found[load] = 100 * held / whole
    return found
