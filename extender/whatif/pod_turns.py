"""The turns of waiting pods, one after the other: after each, only what the pod has taken is judged again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.autoscaler.made_up_nodes import allocations_of
from extender.cluster.change_log import Change, ChangeLog
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, pools_of
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.defragmentation.rehearsal import Queued, Rehearsal, Rehearsed

_SIGNATURES = 1024
"""More than the waiting pods of most clusters have."""

_CHANGES = 100_000
"""More than all turns of an answer make."""


@dataclass(frozen=True, slots=True)
class PodTurns:
    """Gives pods their nodes.

    Attributes:
        solver: for as long as there is time.
    """

    solver: Solver

    def run(self, queue: Sequence[Queued], snapshot: Snapshot) -> Rehearsed:
        """The cluster after each pod of a queue had its turn. The versions of the forks count the turns.

        Raises:
            LateError: the solver's time is up.
        """
        log = ChangeLog(_CHANGES)
        decider = Decider(self.solver, log.since, signatures=_SIGNATURES)

        def placed(pod: Pod, node: str, after: Snapshot) -> Snapshot:
            after = after._replace(version=after.version + 1)
            log.add(_changes(pod, node, after))
            decider.follow(after)
            return after

        snapshot = snapshot._replace(version=0)
        decider.follow(snapshot)
        return Rehearsal(decider).run(queue, snapshot, sorted(snapshot.nodes), self.solver, placed)


def _changes(pod: Pod, node: str, after: Snapshot) -> Iterator[Change]:
    """What a pod has taken of a node."""
    yield Change(after.version, Topic.CPU, node)
    yield Change(after.version, Topic.NODE, node)
    for allocation in allocations_of(pod, after):
        for pool in pools_of(allocation):
            yield Change(after.version, Topic.POOL, pool)
