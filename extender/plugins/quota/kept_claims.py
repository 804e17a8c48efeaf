"""The claims for which something is kept: those of nominated pods that have no devices yet.

What a nominated pod gets of the devices that are kept for it is searched as if nothing were in use. So the answer
depends on few objects, and it is remembered until one of them changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from allocator import AllocationResult, AllocatorError, ClaimSpec, DeviceId, DeviceResult, Reason, Usage
from extender.cluster.consumers import after_departures, claim_keys, claim_name, left_behind
from extender.cluster.indexes import NO_SPEC, AssumedAllocation, Stage
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.device_quotas import Amounts, DeviceLimit
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, quotas_of
from extender.framework.decisions.solver import No, Remembered, Solver
from extender.framework.pods.extended_resources import special_of
from extender.framework.pods.negotiated_claims import NegotiationError, names_controller, negotiated
from extender.framework.pods.reduced_claims import reduced_claim
from extender.plugins.quota.usage import LimitMeter, Taken, in_flight, least


class KeptClaim(NamedTuple):
    """A claim without devices of a nominated pod, and what is kept for it.

    Attributes:
        uid: of the claim. The name of a controller follows, if this is what the controller is asked for. It is the uid
            of the pod, if it is not known which claim gets the devices.
        pod: for which it is kept. Of pods that share the claim, the first in the order of `rank`.
        spec: of the claim.
        allocation: what the claim gets of the devices that are kept by name. None: no device is kept by name, so the
            least that the claim asks for counts.
        loose: kept devices of which it is not known which request gets them. They count in limits of each class.
    """

    uid: str
    pod: Pod
    spec: ClaimSpec = NO_SPEC
    allocation: AllocationResult | None = None
    loose: tuple[DeviceId, ...] = ()

    @property
    def claim_uid(self) -> str:
        """The uid of the claim."""
        return self.uid.partition(" ")[0]

    @property
    def devices(self) -> Sequence[DeviceId]:
        """The devices that are kept for it by name."""
        return self.loose if self.allocation is None else [each.device for each in self.allocation.results]

    def without(self, devices: frozenset[DeviceId]) -> "KeptClaim":
        """Without some of the devices: they count for a claim that holds them."""
        if devices.isdisjoint(self.devices):
            return self
        left = tuple(each for each in self.loose if each not in devices)
        if self.allocation is None:
            return self._replace(loose=left)
        results = tuple(each for each in self.allocation.results if each.device not in devices)
        return self._replace(allocation=AllocationResult(results))

    def measured(self, limit: DeviceLimit, meter: LimitMeter) -> Amounts:
        """What it takes of a limit. Raises SearchLimitError: time is up."""
        if self.allocation is not None:
            return meter.measured(limit, [Taken(self.spec, self.allocation)])
        if not self.loose:
            return least(limit, [self.spec])
        results = tuple(DeviceResult("", each) for each in self.loose)
        return meter.measured(replace(limit, device_class=""), [Taken(NO_SPEC, AllocationResult(results))])


class _KeptClaims(Remembered[Sequence[KeptClaim]]):
    """The claims for which something is kept, of a pod by its uid, and of a namespace."""


class _Expected(Remembered[Sequence[AllocationResult]]):
    """The devices that pods would get that only their scheduler has nominated, by uid of the pod."""


Rank: TypeAlias = tuple[int, tuple[Any, ...]]


def rank(pod: Pod, snapshot: Snapshot) -> Rank:
    """The place of a nominated pod among those whose kept devices exceed a quota together: the first ones may be bound.

    Members of a gang have one place. Gangs come first. Of the gangs, those with a pod on a node come before the others:
    they run in part until all their members have nodes. Then come other pods with devices by name, then pods that only
    their scheduler has nominated.
    """
    key = pod.gang_key
    if key is not None and pod.kept.node:
        is_begun = any(part.stage is Stage.BOUND for part in snapshot.gangs.numbers.get(key, ()))
        return (0 if is_begun else 1), key
    return (2 if pod.kept.devices else 3), pod.order


def kept_claims(namespace: str, snapshot: Snapshot, solver: Solver) -> Sequence[KeptClaim]:
    """The claims of a namespace for which something is kept, each once; the same object while they are the same.

    A device that a claim of the namespace holds as a whole is left out, such as one of a victim in the namespace.

    They are worked out again when a nominated pod, an allocation or a pool has changed. After another change, of a
    claim or a node, too much may be counted until then, but never too little.

    Raises:
        TimeoutError: the solver's time is up.
    """
    uids, keeping = snapshot.kept.in_namespaces.get(namespace), snapshot.keeping
    if uids is None and not keeping:
        return ()
    assumed = [each for uid, each in snapshot.assumed.items() if _is_in(namespace, uid, each, snapshot)]
    basis = (uids, snapshot.allocated_in.get(namespace), *assumed, snapshot.inventory, *_rules(snapshot))
    basis = (*basis, keeping, snapshot.pods) if keeping else basis
    if _depends_on_devices(namespace, snapshot) and any(uid in snapshot.kept.unnamed for uid in uids or ()):
        basis = (*basis, snapshot.usage, snapshot.pods)
    key = "namespace", namespace
    found = solver.memories.of(_KeptClaims).find(key, basis)
    if found is None:
        found = _found_in(namespace, list(_nominated(namespace, snapshot)), snapshot, solver)
        solver.memories.of(_KeptClaims).keep(key, basis, found)
    return found


def _is_in(namespace: str, claim_uid: str, assumed: AssumedAllocation, snapshot: Snapshot) -> bool:
    """Whether an assumed allocation is for a claim or a pod of a namespace."""
    key = snapshot.claim_keys.get(claim_uid) or snapshot.pod_keys.get(assumed.pod_uid)
    return key is not None and key.namespace == namespace


def _depends_on_devices(namespace: str, snapshot: Snapshot) -> bool:
    """Whether it depends on the devices what a claim takes of the quotas of a namespace."""
    return any(each.selectors or each.capacities for quota in quotas_of(namespace, snapshot) for each in quota.limits)


def _nominated(namespace: str, snapshot: Snapshot) -> Iterator[Pod]:
    """The nominated pods of a namespace, also those whose nomination the watch has not shown yet."""
    assumed = {
        uid: each.pod
        for uid, each in snapshot.keeping.items()
        if each.pod.namespace == namespace and each.counts(snapshot.pod(uid))
    }
    for uid in snapshot.kept.in_namespaces.get(namespace, ()):
        pod = snapshot.pod(uid)
        if pod is not None and uid not in assumed:
            yield snapshot.nominee(pod)
    yield from assumed.values()


def _rules(snapshot: Snapshot) -> tuple[object, ...]:
    """What decides about any claim which devices it may get."""
    return snapshot.classes, snapshot.controllers, snapshot.extended, snapshot.taint_rules


def _found_in(namespace: str, pods: Sequence[Pod], snapshot: Snapshot, solver: Solver) -> tuple[KeptClaim, ...]:
    found: dict[str, KeptClaim] = {}
    for pod in pods:
        for each in () if pod.deleting or pod.is_finished else _of_pod(pod, snapshot, solver):
            known = found.get(each.uid)
            if known is None or rank(pod, snapshot) < rank(known.pod, snapshot):
                found[each.uid] = each
    held = _held_in(namespace, snapshot) if found else frozenset[DeviceId]()
    return tuple(each.without(held) for each in found.values())


def _held_in(namespace: str, snapshot: Snapshot) -> frozenset[DeviceId]:
    """The devices that claims of a namespace hold as a whole."""
    allocations = [*snapshot.allocated_in.get(namespace, {}).values()]
    allocations += [taken.allocation for _, taken in in_flight(namespace, snapshot)]
    return frozenset(each.device for got in allocations for each in got.results if each.share_id is None)


def _of_pod(pod: Pod, snapshot: Snapshot, solver: Solver) -> Sequence[KeptClaim]:
    """The claims of a pod for which something is kept."""
    if not pod.kept.devices:
        return _unnamed(pod, snapshot, solver)
    node = snapshot.nodes.get(pod.nominated_node)
    own = tuple(map(snapshot.claims.get, claim_keys(pod)))
    special = snapshot.special.get(pod.uid)
    basis: list[object] = [pod, node, *_rules(snapshot), *own, special]
    basis += [snapshot.assumed.get(each.claim.uid) for each in own if each is not None]
    basis += [snapshot.inventory.pools.get(each.pool_id) for each in pod.kept.devices]
    if special is not None or pod.containers:
        basis += [snapshot.usage, snapshot.claims, snapshot.assumed]  # which special claims may be used
    found = solver.memories.of(_KeptClaims).find(pod.uid, tuple(basis))
    if found is None:
        found = tuple(_worked_out(pod, snapshot, solver))
        solver.memories.of(_KeptClaims).keep(pod.uid, tuple(basis), found)
    return found


def _unnamed(pod: Pod, snapshot: Snapshot, solver: Solver) -> Sequence[KeptClaim]:
    """The claims of a pod that only its scheduler has nominated.

    If the quotas depend on devices, those count that the pod would get on its node once its victims have gone.
    """
    claims = (*(each for each in _pending(pod, snapshot) if each is not None), *(_special(pod, snapshot) or ()))
    found = _expected(pod, claims, snapshot, solver) if _depends_on_devices(pod.namespace, snapshot) else ()
    allocations: Sequence[AllocationResult | None] = found or [None] * len(claims)
    return [KeptClaim(each.claim.uid, pod, each.claim.spec, got) for each, got in zip(claims, allocations, strict=True)]


def _expected(
    pod: Pod, claims: Sequence[ClaimObject], snapshot: Snapshot, solver: Solver
) -> Sequence[AllocationResult]:
    """What claims would get on the node of their pod; empty if that is not known."""
    node = snapshot.nodes.get(pod.nominated_node)
    if node is None or not claims or any(names_controller(each.claim, snapshot) for each in claims):
        return ()
    basis: list[object] = [pod, node, *_rules(snapshot), snapshot.node_requests, *_pending(pod, snapshot)]
    for view in snapshot.inventory.for_node(node.node, solver.features):
        basis += view, snapshot.usage.pools.get(view.id)
    basis += left_behind(snapshot, node, solver.features)
    if pod.containers or pod.extended_claim or snapshot.special.get(pod.uid) is not None:
        basis += [snapshot.usage, snapshot.claims, snapshot.assumed]  # which special claims may be used
    known = solver.memories.of(_Expected).find(pod.uid, tuple(basis))
    if known is not None:
        return known
    try:
        found = solver.judge(
            after_departures(snapshot, node, solver.features), node.node, tuple(each.claim for each in claims)
        )
    except AllocatorError:
        return ()
    results = () if isinstance(found, No) else found.results
    if not (isinstance(found, No) and found.stopped):
        solver.memories.of(_Expected).keep(pod.uid, tuple(basis), results)
    return results


def _worked_out(pod: Pod, snapshot: Snapshot, solver: Solver) -> Iterator[KeptClaim]:
    named = list(_pending(pod, snapshot))
    pending = [each for each in named if each is not None]
    special = _special(pod, snapshot)
    searched: list[ClaimObject] = []
    for each in pending:
        try:
            own = negotiated(each, snapshot)
        except NegotiationError:
            own = None
        if own is None:
            searched.append(each)
            continue
        yield KeptClaim(f"{own.uid} {own.controller}", pod, own.negotiated_spec)
        searched += [own.rest] if own.has_rest else []
    searched += special or ()
    found = _searched(pod, searched, snapshot, solver)
    if found is None or special is None or len(pending) < len(named):
        yield KeptClaim(pod.uid, pod, loose=pod.kept.devices)
        return
    for each, allocation in zip(searched, found, strict=True):
        yield KeptClaim(each.claim.uid, pod, each.claim.spec, allocation)


def _pending(pod: Pod, snapshot: Snapshot) -> Iterator[ClaimObject | None]:
    """The claims that a pod names and that have no devices; None for a claim that does not exist."""
    for reference in pod.claims:
        name = claim_name(pod, reference)
        if name is None and reference.name in pod.claim_statuses:
            continue
        claim = snapshot.claims.get(pod.key._replace(name=name or ""))
        if claim is None or (claim.claim.allocation is None and claim.claim.uid not in snapshot.assumed):
            yield claim


def _special(pod: Pod, snapshot: Snapshot) -> Sequence[ClaimObject] | None:
    """The special claim that the pod needs on its node and that has no devices; None if none can be made."""
    node, special = snapshot.nodes.get(pod.nominated_node), special_of(pod, snapshot)
    if not special.is_needed:
        return ()
    needs = special.asked if node is None else special.on(node)
    return None if isinstance(needs, Reason) else needs if isinstance(needs, tuple) else needs.pending


def _searched(
    pod: Pod, claims: Sequence[ClaimObject], snapshot: Snapshot, solver: Solver
) -> Sequence[AllocationResult] | None:
    """What claims get of the devices that are kept for their pod, if nothing is in use; None if that is not enough."""
    node = snapshot.nodes.get(pod.nominated_node)
    if not claims:
        return ()
    if node is None:
        return None
    only = replace(solver, among=frozenset(pod.kept.devices))
    try:
        asked = tuple(reduced_claim(each.claim, pod.kept.without) for each in claims)
        found = only.judge(snapshot._replace(usage=Usage()), node.node, asked)
    except AllocatorError:
        return None
    return None if isinstance(found, No) else found.results
