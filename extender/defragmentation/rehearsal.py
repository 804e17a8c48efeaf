"""Schedules pods on forks of a snapshot, by the code of the verbs: nothing is written."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.autoscaler.simulated_cluster import with_claims
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.evaluate import Decider
from extender.decisions.solver import No, Solver
from extender.kube_scheduler import SchedulerChecks
from extender.pods.policy import policy_of
from extender.verbs.filter import Bounds, FilterResult, filter_nodes
from extender.verbs.placing import place
from extender.verbs.prioritize import score_nodes
from extender.verbs.reasons import Reasons


class Queued(NamedTuple):
    """A pod that waits for a node, and its shape: after a pod finds no node, no later pod of its shape finds one."""

    pod: Pod
    shape: Hashable


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The cluster after some pods had their turn.

    Attributes:
        snapshot: with the pods that got a node, and their devices.
        nodes: uid of a pod to its node; a pod that got no node is absent.
        refusals: shape to filter's answer for the first pod of the shape that got no node.
    """

    snapshot: Snapshot
    nodes: Mapping[str, str]
    refusals: Mapping[Hashable, FilterResult]


class LateError(TimeoutError):
    """The solver's time is up before all pods had their turn.

    Attributes:
        so_far: the cluster after the turns that there were.
    """

    def __init__(self, so_far: Rehearsed) -> None:
        super().__init__()
        self.so_far = so_far


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Schedules pods one after the other.

    Attributes:
        decider: remembers verdicts on the snapshot that all forks come from.
    """

    decider: Decider

    def run(
        self,
        queue: Iterable[Queued],
        snapshot: Snapshot,
        names: Sequence[str],
        solver: Solver,
        placed: Callable[[Pod, str, Snapshot], Snapshot] = lambda _pod, _node, after: after,
    ) -> Rehearsed:
        """Give each pod the best of some nodes. Of equal nodes the first one is taken; kube-scheduler takes any.

        Args:
            queue: the first pod has the first turn.
            snapshot: the cluster, or a fork.
            names: the nodes.
            solver: the decider's, for as long as there is time.
            placed: called with each pod that gets a node, the node, and the cluster then; returns the cluster to go on
                with.

        Raises:
            LateError: the solver's time is up.
        """
        plugged = (pod for pod in snapshot.pods.values() if pod.containers)
        checks = SchedulerChecks({name: snapshot.nodes[name] for name in names}, plugged)
        nodes: dict[str, str] = {}
        refusals: dict[Hashable, FilterResult] = {}
        for pod, shape in queue:
            if shape in refusals:
                continue
            try:
                solver.look()
                rejected = checks.rejections(pod)
                found = self._placed(pod, snapshot, [name for name in names if name not in rejected], solver)
            except TimeoutError:
                raise LateError(Rehearsed(snapshot, nodes, refusals)) from None
            if isinstance(found, FilterResult):
                refusals[shape] = found
                continue
            snapshot, node = found
            snapshot = placed(pod, node, snapshot)
            nodes[pod.uid] = node
            checks.place(pod, node)
        return Rehearsed(snapshot, nodes, refusals)

    def settled(self, queue: Sequence[Queued], snapshot: Snapshot, names: Sequence[str], solver: Solver) -> Rehearsed:
        """The cluster after each pod that fits has its node. Forks of that cluster are quick to ask about.

        The refusals are those of the cluster with all of these pods. Arguments and errors are those of `run`.
        """
        self.decider.follow(snapshot)
        first = self.run(queue, snapshot, names, solver)
        self.decider.follow(first.snapshot)
        left = [each for each in queue if each.pod.uid not in first.nodes]
        then = self.run(left, first.snapshot, names, solver)
        return Rehearsed(then.snapshot, {**first.nodes, **then.nodes}, then.refusals)

    def takers(self, pod: Pod, snapshot: Snapshot, names: Sequence[str], solver: Solver) -> FilterResult:
        """Which of some nodes take a pod. A pod that is on a node already leaves it first. Errors as `run`."""
        pod, world = with_claims(pod, snapshot)
        return self._filtered(pod, world, names, solver)

    def _placed(
        self, pod: Pod, snapshot: Snapshot, names: Sequence[str], solver: Solver
    ) -> tuple[Snapshot, str] | FilterResult:
        """The cluster with the pod, and its node; or filter's answer."""
        pod, world = with_claims(pod, snapshot)
        result = self._filtered(pod, world, names, solver)
        if not result.passed:
            return result
        scores = score_nodes(result.passed, result.merits, policy_of(pod, solver.policy) or solver.policy)
        node = result.passed[scores.index(max(scores))]
        found = place(pod, node, world, solver)
        if isinstance(found, No):
            return FilterResult((), unresolvable=Reasons.alike((node,), found.reason))
        return found, node

    def _filtered(self, pod: Pod, world: Snapshot, names: Sequence[str], solver: Solver) -> FilterResult:
        """Filter's answer for all of the nodes: filter itself leaves out nodes for which there is no time."""
        result = filter_nodes(pod, names, world, solver, decider=self.decider, bounds=Bounds(solver.until))
        solver.look()
        return result
