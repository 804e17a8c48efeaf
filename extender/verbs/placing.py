"""Puts a pod on a node of a fork: the claims of the pod get their devices there, and nothing is written."""

from dataclasses import dataclass, replace
from itertools import chain

from allocator import AllocationResult, InvalidClaimError, PoolId, Reason, SelectorError, Usage
from extender.cluster.consumers import consumer_of
from extender.cluster.objects.pods import Pod
from extender.cluster.resources import ClaimResources
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import No, Solver
from extender.pods.claims import Blocked, PodClaims, claims_of, not_ready, unready
from extender.pods.decision_case import Case
from extender.pods.extended_resources.special_claim import Needs
from extender.pods.nominated.held_devices import found_on


@dataclass(frozen=True, slots=True)
class Grant:
    """What a pod gets on a node; nothing is held yet.

    Attributes:
        claims: of the pod, before the grant.
        needs: what was to be allocated on the node.
        results: for each pending claim of the needs.
        resources: what the pod takes of the node by its claims.
    """

    claims: PodClaims
    needs: Needs
    results: tuple[AllocationResult, ...] = ()
    resources: tuple[ClaimResources, ...] = ()

    @property
    def pools(self) -> frozenset[PoolId]:
        """The pools that the devices are from."""
        return frozenset(each.device.pool_id for result in self.results for each in result.results)

    def used(self, usage: Usage) -> Usage:
        """What is in use once the pod holds its devices."""
        for each in self.results:
            usage = usage.with_allocation(each)
        return usage

    def held(self, pod: Pod, node_name: str, snapshot: Snapshot) -> Snapshot:
        """The cluster with the pod on the node: its claims are allocated, and reserved for it."""
        if self.claims.is_empty:
            return snapshot
        snapshot = self.needs.world(snapshot)
        results = map(_ready, self.results)
        before = ((each, each.claim.allocation) for each in self.claims.allocated)
        for each, allocation in chain(before, zip(self.needs.pending, results, strict=True)):
            consumer = consumer_of(pod, each.claim, snapshot)
            users = tuple(user for user in each.claim.reserved_for if user.uid != consumer.uid)
            claim = replace(each.claim, allocation=allocation, reserved_for=(*users, consumer))
            snapshot = snapshot.with_claim(replace(each, claim=claim))
        taken = replace(pod.resources, claims=self.resources)
        bound = replace(pod, node_name=node_name, nominated_node="", extended_claim=self.needs.status, resources=taken)
        return snapshot.with_pod(bound)


def place(pod: Pod, node_name: str, snapshot: Snapshot, solver: Solver) -> Snapshot | No:
    """Put a pod on a node: its claims, which are there, are allocated and reserved for it; or why they can't be.

    Raises:
        TimeoutError: the solver's time is up.
    """
    found = grant(pod, node_name, snapshot, solver)
    return found if isinstance(found, No) else found.held(pod, node_name, snapshot)


def grant(pod: Pod, node_name: str, snapshot: Snapshot, solver: Solver) -> Grant | No:
    """What a pod, whose claims are there, gets on a node; or why it gets nothing.

    Raises:
        TimeoutError: the solver's time is up.
    """
    claims, node = claims_of(pod, snapshot), snapshot.nodes[node_name]
    if isinstance(claims, Blocked):
        return No(claims.reason)
    if claims.is_empty:
        return Grant(claims, Needs())
    waiting, needs = unready(claims, solver.features), claims.on(node)
    if waiting is not None:
        return No(not_ready(waiting))
    if isinstance(needs, Reason):
        return No(needs)
    try:
        found = found_on(node, pod, snapshot, solver)
    except (InvalidClaimError, SelectorError) as error:
        return No(error.reason)
    if isinstance(found, No):
        return found
    case = Case(pod, claims, snapshot, solver)
    resources = case.resources(node, needs, found) if case.counts_resources else ()
    return Grant(claims, needs, found.results, resources)


def _ready(allocation: AllocationResult) -> AllocationResult:
    """The allocation without binding conditions: a simulation does not wait for them."""
    if not any(each.binding_conditions for each in allocation.results):
        return allocation
    results = (replace(each, binding_conditions=None, binding_failure_conditions=None) for each in allocation.results)
    return replace(allocation, results=tuple(results))
