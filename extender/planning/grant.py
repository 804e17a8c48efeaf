"""What a pod gets on a node of a fork, and the fork in which the pod holds it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from allocator import AllocationResult, PoolId, Usage
from extender.cluster.consumers import claim_keys, consumer_of
from extender.cluster.objects.pods import Pod
from extender.cluster.resources import ClaimResources
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import PodClaims
from extender.framework.pods.extended_resources.special_claim import Needs


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

    def held(self, pod: Pod, node_name: str, fork: Snapshot) -> Snapshot:
        """The cluster with the pod on the node: its claims are allocated, and reserved for it."""
        if self.claims.is_empty:
            return fork
        fork = self.needs.world(fork)
        results = map(_ready, self.results)
        before = ((each, each.claim.allocation) for each in self.claims.allocated)
        for each, allocation in chain(before, zip(self.needs.pending, results, strict=True)):
            consumer = consumer_of(pod, each.claim, fork)
            users = tuple(user for user in each.claim.reserved_for if user.uid != consumer.uid)
            claim = replace(each.claim, allocation=allocation, reserved_for=(*users, consumer))
            fork = fork.with_claim(replace(each, claim=claim))
        taken = replace(pod.resources, claims=self.resources)
        bound = replace(pod, node_name=node_name, nominated_node="", extended_claim=self.needs.status, resources=taken)
        return fork.with_pod(bound)


def allocations_of(pod: Pod, fork: Snapshot) -> Iterator[AllocationResult]:
    """What the claims of a pod hold."""
    for key in claim_keys(fork.pods.get(pod.key, pod)):
        claim = fork.claims.get(key)
        if claim is not None and claim.claim.allocation is not None:
            yield claim.claim.allocation


def _ready(allocation: AllocationResult) -> AllocationResult:
    """The allocation without binding conditions: a plan does not wait for them."""
    if not any(each.binding_conditions for each in allocation.results):
        return allocation
    results = (replace(each, binding_conditions=None, binding_failure_conditions=None) for each in allocation.results)
    return replace(allocation, results=tuple(results))
