"""The allocator with everything that stays the same from pod to pod."""

from collections.abc import Callable
from dataclasses import dataclass, field

from allocator.allocate import Task, allocate
from allocator.effort import Clock, Limits
from allocator.features import Features
from allocator.model import Claim, Node
from allocator.outcome import Allocation, Unsatisfiable
from allocator.policy import BEST_FIT, Policy
from allocator.selectors import Selectors
from extender.cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Solver:
    """Decides claims on one node of a snapshot."""

    selectors: Selectors
    clock: Clock
    new_share_id: Callable[[], str]
    policy: Policy = BEST_FIT
    limits: Limits = field(default_factory=Limits)
    features: Features = field(default_factory=Features)

    def solve(self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...]) -> Allocation | Unsatisfiable:
        """Devices for all of the claims on the node.

        Raises:
            AllocatorError: as `allocator.allocate.allocate`.
        """
        task = Task(
            node=node,
            claims=claims,
            classes=snapshot.classes,
            pools=snapshot.inventory.for_node(node, self.features),
            usage=snapshot.usage,
            taint_rules=snapshot.taint_rules,
            features=self.features,
        )
        return allocate(
            task,
            selectors=self.selectors,
            policy=self.policy,
            limits=self.limits,
            clock=self.clock,
            new_share_id=self.new_share_id,
        )
