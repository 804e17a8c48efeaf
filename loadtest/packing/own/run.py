"""One run over a trace of ours: pods arrive, the service places each with a policy, or never, and some leave again."""

import heapq
import random
import time
from collections.abc import Callable
from typing import Final

from extender import Cluster, Settings
from extender.config.settings import SchedulingSettings
from extender.faces.serving.memory import undisturbed
from loadtest.packing.own.draw import LIVES, OwnTrace
from loadtest.packing.own.objects import NAMESPACE, cluster_objects, pod_object
from loadtest.packing.own.tie import AnyNode
from loadtest.packing.run import Run, allocated

_FILLING: Final = 1.0
"""The mean lives of a pod at the beginning in which the empty cluster fills. They don't count for what is in use."""


def run_own(
    trace: OwnTrace,
    policy: str,
    seed: int,
    progress: Callable[[int, int], object] = lambda _done, _all: None,
    at_end: Callable[[Cluster], object] = lambda _cluster: None,
) -> Run:
    """Place the pods of a trace.

    Args:
        trace: as the seed has drawn it. Either all its pods leave, or none.
        policy: name of the policy for all pods.
        seed: of the trace; it decides between nodes that score equally, too.
        progress: called after each pod with the number of pods that are done, and of all.
        at_end: called with the cluster after the last pod; its time does not count.
    """
    with undisturbed():
        cluster = Cluster.from_objects(
            cluster_objects(trace.scenario, trace.nodes),
            settings=Settings(scheduling=SchedulingSettings(policy=policy)),
        )
        began = time.process_time()
        choice = AnyNode(random.Random(seed))
        departs = any(pod.leaves is not None for pod in trace.pods)
        place = _passing if departs else _staying
        placed = place(cluster, trace, choice, progress)
        seconds = time.process_time() - began
        at_end(cluster)
    sizes = [pod.kind.size for pod in trace.pods]
    percent = {} if departs else allocated(sizes, placed, trace.units)
    in_use = mean_in_use(trace, placed) if departs else None
    return Run(trace.scenario.name, policy, seed, percent, len(placed), sum(placed), seconds, in_use)


def _staying(cluster: Cluster, trace: OwnTrace, choice: AnyNode, progress: Callable[[int, int], object]) -> list[bool]:
    """Which pods get a node, if none leaves."""
    cluster.add(*[pod_object(str(number), pod.kind) for number, pod in enumerate(trace.pods)])
    return [bool(placement.node) for placement in cluster.schedule(choice=choice, progress=progress)]


def _passing(cluster: Cluster, trace: OwnTrace, choice: AnyNode, progress: Callable[[int, int], object]) -> list[bool]:
    """Which pods get a node, if each leaves when its time has come."""
    placed: list[bool] = []
    there: list[tuple[float, str]] = []
    for number, pod in enumerate(trace.pods):
        while there and there[0][0] <= pod.arrives:
            cluster.remove("Pod", heapq.heappop(there)[1], NAMESPACE)
        name = str(number)
        cluster.add(pod_object(name, pod.kind))
        (placement,) = cluster.schedule(choice=choice)
        placed.append(bool(placement.node))
        if pod.leaves is not None and placement.node:
            heapq.heappush(there, (pod.leaves, name))
        else:
            cluster.remove("Pod", name, NAMESPACE)
        progress(len(placed), len(trace.pods))
    return placed


def mean_in_use(trace: OwnTrace, placed: list[bool]) -> float:
    """Percent of the units that placed pods ask for, the mean over the time after the cluster has filled."""
    held = 0.0
    for pod, has_node in zip(trace.pods, placed, strict=True):
        if has_node and pod.leaves is not None:
            held += pod.kind.size * max(0.0, min(pod.leaves, LIVES) - max(pod.arrives, _FILLING))
    return 100 * held / (trace.units * (LIVES - _FILLING))
