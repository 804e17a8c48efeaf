"""Feasibility: whether a pod could be bound now, by everything that filter and bind know.

Filter asks about all nodes. Both ways to evict pods (the verb preempt, and preemption for devices) ask about one node
in a fork of the cluster, once the victims are gone there: a pod that could not be bound then evicts nobody.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from allocator import Allocation, Reason
from allocator.reason import Cause
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import No, Solver
from extender.pods.claims import Blocked, not_ready, unready
from extender.pods.decision_case import Case, open_case
from extender.pods.gangs import gang_refusal, is_alone
from extender.pods.pod_quota import PodQuota

_KEPT_ELSEWHERE: Final = Cause("kept-elsewhere", "devices are kept for the pod on node {detail}")
_BOUND: Final = Cause("bound", "the pod is bound to node {detail}")


def kept_elsewhere(node: str) -> Reason:
    """The reason for all nodes but the one where devices are kept for the pod."""
    return Reason(_KEPT_ELSEWHERE, detail=node)


class Part(Enum):
    """What refuses pods."""

    GANG = "gang"
    """The pod is to be bound together with other pods of its gang."""
    QUOTA = "quota"
    """A DeviceQuota of the namespace."""
    CLAIMS = "claims"
    """A claim of the pod that cannot be used, or the pod itself."""
    DEVICES = "devices"
    """The devices of nodes, and what else is compared on each node."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a pod can be bound to no node, whatever the nodes have, and what refuses it."""

    by: Part
    reason: Reason


@dataclass(frozen=True, slots=True)
class Admitted:
    """A pod that may be bound where its claims can be served.

    Attributes:
        quota: has to be compared with the devices of each node; None if that is not needed.
    """

    case: Case
    quota: PodQuota | None = None

    def over_quota(self, node: NodeObject, found: Allocation) -> Reason | None:
        """The limit that a pod would exceed with what was found for it on a node, as a reason; None if there is none.

        Raises:
            TimeoutError: selectors of the quotas took too long.
        """
        if self.quota is None:
            return None
        needs, negotiated = self.case.claims.on(node), self.case.claims.negotiated
        if isinstance(needs, Reason) or not (needs.pending or negotiated):
            return None
        overrun = self.quota.refusal_of(needs.pending, found, negotiated)
        return None if overrun is None else overrun.reason


def admitted(pod: Pod, snapshot: Snapshot, solver: Solver) -> Admitted | Refused:
    """The case of a pod, or why the pod can be bound to no node. Searches no devices.

    Raises:
        TimeoutError: selectors of the quotas took too long.
    """
    if pod.gang is not None and (awaited := gang_refusal(pod, snapshot)):
        return Refused(Part.GANG, awaited)
    case = open_case(pod, snapshot, solver)
    if isinstance(case, Blocked):
        return Refused(Part.CLAIMS, case.reason)
    if case.claims.is_empty:
        return Admitted(case)
    waiting = unready(case.claims, solver.features)
    if waiting is not None:
        return Refused(Part.CLAIMS, not_ready(waiting))
    is_limited = bool(snapshot.device_quotas or snapshot.problems)
    quota = PodQuota.of(pod, snapshot, solver) if is_limited else None
    if quota is None:
        return Admitted(case)
    refusal = quota.refusal(case.claims)
    if refusal is not None:
        return Refused(Part.QUOTA, refusal.reason)
    is_open = quota.depends_on_devices(case.claims) and not quota.suffices(case.claims)
    return Admitted(case, quota if is_open else None)


def feasible_on(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> Allocation | No:
    """What a pod would be bound with on a node, or why it could not be bound there.

    Args:
        pod: pending.
        node: passes kube-scheduler's own checks.
        snapshot: the cluster, or a fork. What is held for other pods counts as in use there.
        solver: the allocator.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    if pod.node_name:
        return No(Reason(_BOUND, detail=pod.node_name))
    found = admitted(pod, snapshot, solver)
    if isinstance(found, Refused):
        return No(found.reason)
    if pod.kept.node not in ("", node.name) and not is_alone(pod, snapshot):
        return No(kept_elsewhere(pod.kept.node))
    allocation = found.case.at(node)
    if isinstance(allocation, No):
        return allocation
    over = found.over_quota(node, allocation)
    return allocation if over is None else No(over)


def is_feasible(pod: Pod, node: NodeObject, snapshot: Snapshot, solver: Solver) -> bool:
    """Whether `feasible_on` finds something. Raises as `feasible_on`."""
    return isinstance(feasible_on(pod, node, snapshot, solver), Allocation)
