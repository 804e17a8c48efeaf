"""One run: the pods of a trace arrive in the order of a seed, and the service places each with a policy, or never.

Filter, prioritize and bind are those of the service, over a cluster in memory (`extender.Cluster`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extender import Cluster, Settings
from extender.config.settings import SchedulingSettings
from extender.faces.serving.memory import undisturbed
from loadtest.packing.arrivals import LOAD, arrivals
from loadtest.packing.cluster import cluster_objects, pod_objects
from loadtest.packing.room import Room, Strategy
from loadtest.packing.trace import WHOLE, Trace, TraceNode

STEP: Final = 5
"""Percent between two loads at which the allocation is noted. A load is what pods have asked for so far."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run has measured.

    Attributes:
        allocated: percent of the cluster that is allocated, by load: percent of the cluster that pods have asked for
            until then. Empty if pods leave.
        pods: how many arrived.
        placed: how many of them got a node.
        seconds: of computing for the scheduling, without making the cluster.
        in_use: if pods leave, percent of the cluster that is allocated, the mean over time.
        bound: the most pods that could have been placed, if it was asked for.
        strategy: of kube-scheduler, between nodes that score equally; None: any of them was taken.
    """

    trace: str
    policy: str
    seed: int
    allocated: Mapping[int, float]
    pods: int
    placed: int
    seconds: float
    in_use: float | None = None
    bound: int | None = None
    strategy: Strategy | None = None

    @property
    def reached(self) -> float | None:
        """Percent of the bound that was placed."""
        return 100 * self.placed / self.bound if self.bound else None

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
            "in_use": None if self.in_use is None else round(self.in_use, 3),
            "bound": self.bound,
            "strategy": self.strategy,
        }


def run(
    nodes: Sequence[TraceNode],
    trace: Trace,
    scheduling: SchedulingSettings,
    seed: int,
    load: float = LOAD,
    strategy: Strategy = Strategy.LEAST,
    progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Run:
    """Place the pods of a trace.

    Args:
        nodes: at least one has a GPU.
        trace: at least one pod asks for a GPU.
        scheduling: has the policy for all pods.
        seed: of the arrivals.
        load: the share of all GPUs that is asked for in the end.
        strategy: of kube-scheduler, between nodes that score equally.
        progress: called after each pod with the number of pods that are done, and of all.
    """
    whole = sum(node.gpus for node in nodes)
    shapes = arrivals(trace, whole * WHOLE, seed, load)
    with undisturbed():
        cluster = Cluster.from_objects(cluster_objects(nodes), settings=Settings(scheduling=scheduling))
        cluster.add(*pod_objects(shapes))
        began = time.process_time()
        placements = cluster.schedule(progress=progress, choice=Room(nodes, shapes, strategy))
        seconds = time.process_time() - began
    placed = [bool(placement.node) for placement in placements]
    percent = allocated([shape.asked for shape in shapes], placed, whole * WHOLE)
    is_whole = scheduling.cpu_of_all_pods or not scheduling.counts_cpu
    policy = scheduling.policy if is_whole else f"{scheduling.policy}, CPU of pods with devices"
    return Run(trace.name, policy, seed, percent, len(shapes), sum(placed), seconds, strategy=strategy)


def allocated(asked: Sequence[int], placed: Sequence[bool], whole: int) -> Mapping[int, float]:
    """Percent of the cluster that is allocated when each load is reached.

    Args:
        asked: how much each pod asks for, in the order of arrival.
        placed: whether each of them got a node.
        whole: how much the cluster has.
    """
    found: dict[int, float] = {}
    load = STEP
    so_far = held = 0
    for size, has_node in zip(asked, placed, strict=True):
        so_far += size
        held += size * has_node
        while so_far * 100 >= whole * load:
            found[load] = 100 * held / whole
            load += STEP
    return found
