"""What is known of a gated pod without a search: whether a try is in vain, and whether some node would take it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from immutables import Map

from allocator import AllocatorError, Reason
from allocator.reason import Cause
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import CLAIMS, tried_in_vain
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.filter import FilterResult, Known, ask
from extender.framework.plugin import Refusal, Refused
from extender.planning.kube_scheduler import rejection
from extender.planning.pod_group_rules import contradiction
from extender.plugins.scheduling_gates.shares import FEW

_CONTRADICTION: Final = Cause("group-contradicts", "{detail}")

_OF_A_NODE: Final = 8
"""Pods of one kind that are lifted for each node that takes one: how many it takes together is not known."""

_ANYWHERE: Final = "-"
"""In a fork, the lifted pods of a namespace are nominated to a node of this name, so that quotas count them."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The prospect of a pod: what filter would say of it, as far as filter remembers.

    Attributes:
        takers: nodes that take it; None: not known.
    """

    takers: int | None = None

    @property
    def is_hopeless(self) -> bool:
        """No node takes it now."""
        return self.takers == 0

    @property
    def most(self) -> float:
        """How many pods of this kind may be lifted and not be bound at a time."""
        return max(FEW, _OF_A_NODE * (self.takers or 0))


NOT_KNOWN: Final = Prospect()
HOPELESS: Final = Prospect(0)
NEEDS_NOTHING: Final = Prospect(2**31)
WHOLE: Final = Prospect(2**31)
"""Of a gang: where its pods find nodes is not known, and all of them are lifted together."""


def held_by(pod: Pod, snapshot: Snapshot, solver: Solver) -> Refused | None:
    """Who refuses a gated pod so that a try changes nothing, and why; None if nobody does.

    Raises:
        TimeoutError: selectors of a plugin's rules took too long.
    """
    if pod.gang_key is not None and (why := contradiction(pod.gang_key, snapshot)):
        return Refused(CLAIMS, Refusal(Reason(_CONTRADICTION, detail=why)))
    return tried_in_vain(pod, snapshot, solver)


def with_lifted(pods: Iterable[Pod], snapshot: Snapshot) -> Snapshot:
    """The cluster in which quotas count what lifted pods ask for."""
    for pod in pods:
        if not (pod.nominated_node or pod.node_name):
            snapshot = snapshot.with_pod(replace(pod, nominated_node=_ANYWHERE))
    return snapshot


def prospect_of(pod: Pod, snapshot: Snapshot, decider: Decider) -> Prospect:
    """What filter remembers of a pod. What is kept for nominated pods is left out. Searches nothing.

    Nodes of which filter knows nothing yet count as none if others take the pod: one that changes all the time is never
    known.
    """
    if not decider.follow_at_once(snapshot):
        return NOT_KNOWN
    world = snapshot._replace(nominated=Map())
    try:
        question = ask(pod, tuple(snapshot.nodes), world, decider.solver, decider)
        if isinstance(question, FilterResult):
            return NEEDS_NOTHING if question.passed else NOT_KNOWN
        found = question.at_hand()
        if isinstance(found, Known):
            left = [name for name in found.names if name not in found.missing]
            found = question.at_once(question.lookup(left))
            if found is not None and not found.passed:
                return NOT_KNOWN
    except (AllocatorError, TimeoutError):
        return NOT_KNOWN
    if found is None or found.failed or found.is_undecided:
        return NOT_KNOWN
    nodes = (snapshot.nodes[name] for name in found.passed)
    return Prospect(sum(not rejection(pod.requirements, node) for node in nodes))
