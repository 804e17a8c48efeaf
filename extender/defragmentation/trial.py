"""Tries moves out on a fork: the pods that move get other nodes, then the pending pods get the room.

This is the order in which people carry a proposal out: they cordon the node, delete the pods, wait until the new pods
run elsewhere, and uncordon the node.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from immutables import Map

from extender.cluster.consumers import claim_keys, without_pods
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, pools_of
from extender.decisions.solver import Solver
from extender.defragmentation.advice import Move, MoveProposal
from extender.planning.planned_pods import unbound
from extender.planning.planner import Planner, Queued


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What happened in a trial.

    Attributes:
        proposal: the moves, and the pods of the shape that got their devices, perhaps none.
        others: how many pending pods of other shapes got a node.
    """

    proposal: MoveProposal
    others: int


@dataclass(frozen=True, slots=True)
class MoveTrials:
    """Tries out moves in one cluster.

    Attributes:
        snapshot: the cluster, where no pod of the queue fits.
        queue: the pending pods, in kube-scheduler's order.
        names: all nodes.
        planner: schedules pods on forks.
    """

    snapshot: Snapshot
    queue: Sequence[Queued]
    names: Sequence[str]
    planner: Planner

    def outcome(self, movers: Sequence[Pod], node: NodeObject, shape: Hashable, solver: Solver) -> TrialOutcome:
        """What happens if some pods make room on a node.

        Pods of other shapes have their turn, too, and may take the room.

        Args:
            movers: the pods that make room.
            node: where they make room. Its pools need not be its own, nor need the pods run there.
            shape: whose pods count as placed.
            solver: for as long as there is time.

        Raises:
            TimeoutError: the solver's time is up.
        """
        others = [name for name in self.names if name != node.name]
        fork, is_local = without_pods(self.snapshot, movers), self._hold_only(movers, node)
        # A device that the network attaches is free for pending pods before the node is uncordoned.
        early = () if is_local else self.queue
        new = [Queued(unbound(pod), pod.uid) for pod in sorted(movers, key=lambda pod: -pod.priority)]
        planner = self.planner.by(solver)
        moved = planner.turns(sorted((*early, *new), key=_priority), fork, others)
        left = [each for each in self.queue if each.pod.uid not in moved.nodes]
        then = planner.turns(left, moved.snapshot, [node.name] if is_local else self.names)
        nodes = {**moved.nodes, **then.nodes}
        served = [each for each in self.queue if each.pod.uid in nodes]
        placed = tuple(str(pod) for pod, key in served if key == shape)
        moves = tuple(Move(pod, nodes.get(pod.uid, "")) for pod in movers)
        return TrialOutcome(MoveProposal(node.name, moves, placed), len(served) - len(placed))

    def _hold_only(self, movers: Sequence[Pod], node: NodeObject) -> bool:
        """Whether all devices of the pods are of pools that only this node reaches."""
        inventory = self.snapshot.inventory
        own = inventory.local.get(node.name, Map())
        claims = (self.snapshot.claims.get(key) for pod in movers for key in claim_keys(pod))
        pools = {pool for each in claims if each is not None for pool in pools_of(each.claim.allocation)}
        return all(pool in own and pool not in inventory.roaming for pool in pools)


def _priority(each: Queued) -> int:
    return -each.pod.priority
