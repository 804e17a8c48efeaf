"""A claim without a pod: allocated on the best node, checked, and reserved for nobody.

The steps are those of a pinned pod without the reservation; a stand-in takes the place of the pod.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import ClaimObject, priority_of
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.bind.bind import Binder
from extender.framework.bind_errors import BindError
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import Bounds, filter_nodes
from extender.framework.pods.stand_in import is_open, stand_in
from extender.framework.ranking import score_nodes
from extender.kube.api import ObjectKey
from extender.tools.offload import Offload

T = TypeVar("T")

SEARCH_SECONDS: Final = 2.0
"""The longest search for the node of one claim, by the solver's clock."""


def in_order(items: Collection[T], claim_of: Callable[[T], ClaimObject]) -> list[T]:
    """What concerns immediate claims, in the order in which the claims are allocated: the oldest first.

    Priorities order the claims of one namespace, in the places that its claims have by their age: whoever makes a claim
    writes its priority, so it counts nothing among namespaces.
    """
    own: dict[str, list[T]] = defaultdict(list)
    for each in sorted(items, key=lambda each: _turn(claim_of(each)), reverse=True):
        own[claim_of(each).key.namespace].append(each)
    oldest_first = sorted(items, key=lambda each: (claim_of(each).created, claim_of(each).key))
    return [own[claim_of(each).key.namespace].pop() for each in oldest_first]


def _turn(claim: ClaimObject) -> tuple[int, str, ObjectKey]:
    """Sorts the claims of one namespace: those with the highest priority first, then the oldest."""
    return -priority_of(claim.claim), claim.created, claim.key


@dataclass(frozen=True, slots=True)
class ImmediateClaims:
    """Allocates claims that no pod needs yet.

    Attributes:
        state: the cluster.
        decider: remembers verdicts; its solver has the policy.
        binder: writes and checks allocations.
        off_loop: where nodes are judged.
    """

    state: ClusterState
    decider: Decider
    binder: Binder
    off_loop: Offload

    def awaited(self, pod: Pod) -> Collection[str]:
        """The controllers that `allocate` waits for, by the claim's stand-in."""
        return self.binder.claims.awaited(pod)

    def forget(self, claim_uid: str) -> None:
        """Forget what controllers have said about a claim, so that they are asked again."""
        for each in self.binder.plugins:
            each.forget([claim_uid])

    async def allocate(self, claim: ClaimObject, names: Sequence[str] | None = None) -> None:
        """Allocate a claim on the best of some nodes; None: of all nodes.

        Raises:
            BindError: no node has the devices now, or others were quicker.
            WriteRefusedError, OutcomeUnknownError: a write is refused, or it is not known whether it happened.
        """
        pod, claims = stand_in(claim.claim), self.binder.claims
        for each in self.binder.plugins:
            await each.before(pod, self.state.snapshot.nodes if names is None else names)
        node = await self.off_loop(partial(best_node, pod, names, self.state.snapshot, self.decider))
        there, until = replace(pod, node_name=node), claims.until()
        try:
            await claims.allocate(there, await claims.plan(there, until), until)
        finally:
            self.state.give_up(there)  # a stand-in takes nothing of its node

    async def check(self, claim: ClaimObject) -> None:
        """Check an allocation that a process may have left unchecked: one that is void is taken back.

        Raises:
            BindError: the allocation was taken back, or its devices are not ready.
            WriteRefusedError, OutcomeUnknownError: it could not be taken back.
        """
        await self.binder.claims.check(claim, stand_in(claim.claim))


def best_node(pod: Pod, names: Sequence[str] | None, snapshot: Snapshot, decider: Decider) -> str:
    """The node with the highest score of those that have the devices; of equal nodes, the first by name.

    Cordoned nodes are passed over: no pod could use the devices there.

    Args:
        pod: a stand-in.
        names: the nodes; None: all.
        snapshot: the cluster that the decider follows.
        decider: remembers what was decided.

    Raises:
        BindError: there is none; the text has the reasons, counted.
    """
    solver = decider.solver
    until = solver.clock() + SEARCH_SECONDS
    nodes = (snapshot.nodes.get(name) for name in sorted(snapshot.nodes if names is None else names))
    asked = [node.name for node in nodes if node is not None and is_open(node)]
    if not asked:
        raise BindError("there is no node that is not cordoned")
    decider.follow(snapshot)
    try:
        result = filter_nodes(pod, asked, snapshot, solver.within(until), decider=decider, bounds=Bounds(until))
    except TimeoutError as error:
        raise BindError("out of time: the nodes were still looked at") from error
    if not result.passed:
        counts = result.unresolvable.counts() + result.failed.counts()
        raise BindError(", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())))
    scores = score_nodes(result.passed, result.merits, solver.policy)
    return max(zip(scores, result.passed, strict=True), key=lambda each: each[0])[1]
