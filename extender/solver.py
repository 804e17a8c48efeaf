"""The allocator with everything that stays the same from pod to pod."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from allocator.allocate import Task, allocate
from allocator.effort import Clock, Effort, Limits
from allocator.errors import NodeUnsuitableError, SearchLimitError
from allocator.features import Features
from allocator.model import Claim, DeviceClass, Node
from allocator.outcome import Allocation, Unsatisfiable
from allocator.policy import BEST_FIT, Policy
from allocator.pools import NodePool
from allocator.selectors import Selectors
from allocator.single import Single, single_of
from allocator.usage import Usage
from extender.cluster.snapshot import Snapshot

STOPPED: Final = "search stopped by the limit on"
"""How the reason of a node begins of which it is not known."""


@dataclass(frozen=True, slots=True)
class No:
    """A node will not do.

    Attributes:
        reason: short, the same from try to try and for many nodes.
        steps: devices tried.
        stopped: nothing speaks against the node: the search came to no end in the time and steps that it had.
    """

    reason: str
    steps: int = 0
    stopped: bool = False


def stopped_by(error: SearchLimitError) -> No:
    """It is not known whether a node will do."""
    return No(f"{STOPPED} {error.limit}", error.steps, stopped=True)


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

    def judge(self, snapshot: Snapshot, node: Node, claims: tuple[Claim, ...]) -> Allocation | No:
        """The same, with everything that speaks against this node only as a "no".

        Raises:
            InvalidClaimError, SelectorError: the claims can be allocated nowhere.
        """
        try:
            outcome = self.solve(snapshot, node, claims)
        except NodeUnsuitableError as error:
            what = f"request {error.request}" if error.request else "the claims"
            return No(f"the resource pools of the node are not fit for {what}")
        except SearchLimitError as error:
            return stopped_by(error)
        return No(outcome.summary, outcome.steps) if isinstance(outcome, Unsatisfiable) else outcome

    def single(
        self, claims: tuple[Claim, ...], classes: Mapping[str, DeviceClass], node: Node, views: tuple[NodePool, ...]
    ) -> Single | None:
        """What tells the answer of nodes that are like this one, but for what is held; None: that takes a search.

        Args:
            claims: ask for one device.
            classes: by name.
            node: one of the nodes.
            views: what it sees of the pools.

        Raises:
            SearchLimitError: it was not told in the time and steps that there are.
        """
        task = Task(node=node, claims=claims, classes=classes, pools=views, usage=Usage(), features=self.features)
        return single_of(task, self.selectors, self.policy, Effort(self.limits, self.clock))
