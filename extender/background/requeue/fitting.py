"""Where a pod would fit now: filter lets it pass the node, and kube-scheduler does not reject the node."""

from collections.abc import Sequence
from typing import Final

from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.evaluate import Decider
from extender.kube_scheduler import rejection
from extender.verbs.filter import Bounds, filter_nodes

_CHUNK: Final = 512
"""Nodes that are judged before it is asked whether one of them takes the pod."""


class UndecidedError(Exception):
    """A search was stopped, and no other node takes the pod."""


def fitting_node(
    pod: Pod, names: Sequence[str], snapshot: Snapshot, decider: Decider, until: float
) -> NodeObject | None:
    """The first of the nodes that takes the pod; None if there is none.

    Args:
        pod: the pod.
        names: the nodes, in the order in which they are judged.
        snapshot: the cluster that the decider follows, or a fork.
        decider: remembers what was decided.
        until: when to begin no more nodes, by the solver's clock.

    Raises:
        TimeoutError: not all nodes were judged in time.
        UndecidedError: the search on one of them was stopped.
    """
    solver, bounds, undecided = decider.solver, Bounds(until), False
    kept = [pod.kept.node] if pod.kept.node in names else []
    for start in range(0, len(names), _CHUNK):
        chunk = [*kept, *names[start : start + _CHUNK]]
        result = filter_nodes(pod, chunk, snapshot, solver, decider=decider, bounds=bounds)
        taken = (snapshot.nodes[name] for name in result.passed)
        suiting = next((node for node in taken if not rejection(pod.requirements, node)), None)
        if suiting is not None:
            return suiting
        undecided = undecided or result.is_undecided
    if undecided:
        raise UndecidedError
    return None
