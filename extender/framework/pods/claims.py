"""The claims of a pod, by name or from templates, and whether they can be used.

A reason is the same text at each try: a text that changes makes the scheduler try the pod again.

kube-scheduler holds a pod until its claims exist, if its profile has `DynamicResources` at PreEnqueue. Without that, it
asks about a pod before. The template says already what the claim will need. `foreseen` has the pod with such claims. It
serves as well if the claim is made, and our watch does not show it yet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from allocator import Claim, ClaimSpec, ClaimTemplate, Features, LeftOut, Reason, Toleration
from allocator.audit import BoundPod
from allocator.model.optional import required
from allocator.reason import Cause
from extender.cluster.binding_conditions import unmet
from extender.cluster.consumers import claim_keys, claim_name, group_of, is_in_use
from extender.cluster.controller_marks import asks_to_deallocate, is_marked
from extender.cluster.double_allocations import double_allocation
from extender.cluster.objects.claims import ClaimObject, is_immediate, mode_problem
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import CORDON, NodeRequirements, Pod, PodClaim
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.extended_resources import NO_SPECIAL, Needs, Special, reaches, special_of
from extender.framework.pods.negotiated_claims import NegotiatedClaim, NegotiationError, negotiated
from extender.kube.api import ObjectKey
from extender.kube.claim_rules import MAX_CONSUMERS
from extender.kube.resources import CLAIMS, CLASSES, TEMPLATES, Resource

ALLOCATED_ELSEWHERE: Final = Cause("allocated-elsewhere", "claim {claim} is allocated for other nodes")
NOT_READY: Final = Cause("not-ready", "claim {claim} waits until its devices are ready")
_UNREADABLE: Final = Cause("unreadable", "{detail}")
_MISSING: Final = Cause("missing", "{detail} does not exist")
_TO_BE_MADE: Final = Cause("claim-to-be-made", "waiting for claim {claim} to be created")
_NOT_FOR_POD: Final = Cause("claim-of-others", "claim {claim} was not made for this pod")
_DELETED: Final = Cause("claim-deleted", "claim {claim} is being deleted")
_FULL: Final = Cause("claim-full", f"claim {{claim}} is reserved for {MAX_CONSUMERS} pods already")
_DEALLOCATING: Final = Cause("claim-deallocating", "claim {claim} waits until its controller has deallocated it")
_MARKED: Final = Cause("claim-marked", "claim {claim} waits until controller {detail} has released it")
_VOID: Final = Cause("claim-void", "the allocation of claim {claim} is void: others hold its devices")
_MODE: Final = Cause("claim-mode", "claim {claim}: {detail}")
_IMMEDIATE: Final = Cause("claim-immediate", "claim {claim} waits for its devices (allocation mode Immediate)")
_FOR_ANOTHER: Final = Cause("claim-for-another-pod", "claim {claim} is being allocated for another pod")

BLOCKED_FOR_LONG: Final = frozenset({_UNREADABLE, _MISSING, _NOT_FOR_POD, _FULL, _VOID, _MODE})
"""Causes that do not pass by themselves."""

_LOWEST: Final = -(2**31)
"""The priority of a stand-in: devices that are kept for nominated pods stay theirs, whatever their priority is."""

_ANY_TAINT: Final = NodeRequirements(tolerations=(Toleration("", "Exists"),))


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of a pod, each once, in the order of the pod.

    Attributes:
        allocated: allocated claims, which restrict the nodes; also those with an assumed allocation for this pod.
        pending: claims to allocate, together. Of a negotiated claim, only what a controller does not serve.
        negotiated: claims without an allocation that controllers decide about.
        special: the claim for the pod's extended resources, which differs between nodes.
        withheld: optional requests that are left out on all nodes.
    """

    allocated: tuple[ClaimObject, ...] = ()
    pending: tuple[ClaimObject, ...] = ()
    negotiated: tuple[NegotiatedClaim, ...] = ()
    special: Special = NO_SPECIAL
    withheld: tuple[LeftOut, ...] = ()

    @property
    def is_empty(self) -> bool:
        """The pod needs no devices."""
        return not (self.allocated or self.pending or self.negotiated or self.special.is_needed)

    @property
    def has_allocated(self) -> bool:
        """Whether a claim of the pod has its devices already."""
        return bool(self.allocated or self.special.made)

    @property
    def open_specs(self) -> Sequence[ClaimSpec]:
        """What is to be allocated, by us or by controllers: the specs of the claims without an allocation."""
        whole = {each.uid: each.claim.claim.spec for each in self.negotiated}
        ours = [each.claim.spec for each in self.pending if each.claim.uid not in whole]
        return [*ours, *whole.values()]

    def on(self, node: NodeObject) -> Needs | Reason:
        """What has to be allocated on a node; or why the pod cannot run there, whatever is free."""
        for each in self.allocated:
            if not reaches(each, node):
                return Reason(ALLOCATED_ELSEWHERE, claim=each.claim.name)
        for negotiated_claim in self.negotiated:
            if refusal := negotiated_claim.refusal(node):
                return refusal
        needs = self.special.on(node)
        if isinstance(needs, Reason) or not self.pending:
            return needs
        return replace(needs, pending=(*self.pending, *needs.pending))


NOTHING: Final = PodClaims()


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why the pod can run on no node now; ``void`` is a claim whose allocation is void and has to be given back."""

    reason: Reason
    void: ClaimObject | None = None


class _BlockedError(Exception):
    """The first claim that blocks the pod."""

    def __init__(self, reason: Reason, void: ClaimObject | None = None) -> None:
        self.blocked = Blocked(reason, void)
        super().__init__(reason)


def claims_of(pod: Pod, snapshot: Snapshot) -> PodClaims | Blocked:
    """What a pod needs, or why it is blocked."""
    if not pod.needs_devices:
        return NOTHING
    allocated: dict[str, ClaimObject] = {}
    pending: dict[str, ClaimObject] = {}
    try:
        for reference in pod.claims:
            claim = _claim_of(pod, reference, snapshot)
            if claim is not None:
                (pending if claim.claim.allocation is None else allocated)[claim.claim.uid] = claim
    except _BlockedError as blocked:
        return blocked.blocked
    claims = PodClaims(tuple(allocated.values()), tuple(pending.values()), special=special_of(pod, snapshot))
    return _negotiating(claims, snapshot) if snapshot.controllers and pending else claims


def _negotiating(claims: PodClaims, snapshot: Snapshot) -> PodClaims | Blocked:
    """The claims, of which controllers decide about some."""
    pending: list[ClaimObject] = []
    found: list[NegotiatedClaim] = []
    for each in claims.pending:
        try:
            own = negotiated(each, snapshot)
        except NegotiationError as error:
            return Blocked(error.reason)
        if own is None:
            pending.append(each)
            continue
        if is_marked(each.claim):
            return Blocked(Reason(_MARKED, detail=own.controller, claim=each.claim.name))
        found.append(own)
        if own.has_rest:
            pending.append(own.rest)
    return replace(claims, pending=tuple(pending), negotiated=tuple(found)) if found else claims


def unready(claims: PodClaims, features: Features) -> ClaimObject | None:
    """An allocated claim whose binding conditions are not met; None if there is none."""
    if not features.binding_conditions:
        return None
    special = (each for each in claims.special.made if each.claim.allocation is not None)
    return next((each for each in (*claims.allocated, *special) if unmet(each) is not None), None)


def not_ready(claim: ClaimObject) -> Reason:
    """The reason for all nodes while a claim waits for binding conditions."""
    return Reason(NOT_READY, claim=claim.claim.name)


def claim_from_template(pod: Pod, entry: PodClaim, name: str, snapshot: Snapshot) -> ClaimObject | None:
    """The claim that will be made for an entry of a pod; None if the entry names no template, or a missing one."""
    template = snapshot.objects(ClaimTemplate).get(ObjectKey(pod.namespace, entry.template_name or ""))
    if template is None:
        return None
    claim = Claim(pod.namespace, name, f"{pod.uid}/{entry.name}", template.spec, owner_uid=pod.uid)
    return ClaimObject(claim, resource_version="", created="", raw=b"{}")


def is_made_for(pod: Pod, claim: Claim) -> bool:
    """Whether a claim was made from a template for a pod, or for the PodGroup of the pod, whose pods share it."""
    return claim.owner_uid == pod.uid or bool(pod.pod_group and claim.pod_group == pod.pod_group)


def named_claims(pod: Pod, snapshot: Snapshot) -> Iterator[tuple[str, ClaimObject]]:
    """The claims of a pod that exist and were made for it, with their names in the pod, however they are used."""
    for reference in pod.claims:
        claim = snapshot.claims.get(ObjectKey(pod.namespace, claim_name(pod, reference) or ""))
        if claim is not None and (reference.template_name is None or is_made_for(pod, claim.claim)):
            yield reference.name, claim


def bound_pod(pod: Pod) -> BoundPod | None:
    """A pod that has a node, for the audit of its claims; None if kubelet does not run it."""
    if not pod.node_name or pod.deleting or pod.is_finished:
        return None
    unmade = tuple(each.name for each in pod.claims if each.template_name and each.name not in pod.claim_statuses)
    return BoundPod(str(pod), pod.uid, pod.node_name, tuple(map(str, claim_keys(pod))), unmade, pod.pod_group)


def _claim_of(pod: Pod, reference: PodClaim, snapshot: Snapshot) -> ClaimObject | None:
    """The claim of an entry of the pod, if it can be used; None if the entry needs no claim."""
    name = claim_name(pod, reference)
    if name is None:
        if reference.name in pod.claim_statuses:
            return None
        raise _BlockedError(_not_created(pod, reference, snapshot))
    key = ObjectKey(pod.namespace, name)
    found = snapshot.claims.get(key)
    if found is None:
        raise _BlockedError(_absent(f"claim {name}", CLAIMS, key, snapshot))
    if reference.template_name is not None and not is_made_for(pod, found.claim):
        raise _BlockedError(Reason(_NOT_FOR_POD, claim=name))
    if found.claim.deleting:
        raise _BlockedError(Reason(_DELETED, claim=name))
    return _usable(pod, found, snapshot)


def _not_created(pod: Pod, reference: PodClaim, snapshot: Snapshot) -> Reason:
    template = ObjectKey(pod.namespace, reference.template_name or "")
    if template not in snapshot.objects(ClaimTemplate):
        return _absent(f"claim template {template.name}", TEMPLATES, template, snapshot)
    return Reason(_TO_BE_MADE, claim=reference.name)


def _usable(pod: Pod, found: ClaimObject, snapshot: Snapshot) -> ClaimObject:
    claim = found.claim
    if claim.allocation is not None:
        if len(claim.reserved_for) >= MAX_CONSUMERS and not claim.is_reserved_for(pod.uid, pod.pod_group):
            raise _BlockedError(Reason(_FULL, claim=claim.name))
        if claim.annotations and asks_to_deallocate(claim):
            raise _BlockedError(Reason(_DEALLOCATING, claim=claim.name))
        if not is_in_use(claim, snapshot) and double_allocation(snapshot, claim.uid):
            raise _BlockedError(Reason(_VOID, claim=claim.name), found)
        return found
    if claim.annotations and claim.uid != pod.uid and (reason := _withheld(claim)):
        raise _BlockedError(reason)
    assumed_allocation = snapshot.assumed.get(claim.uid)
    if assumed_allocation is None:
        _check_classes(claim.spec, snapshot)
        return found
    if assumed_allocation.pod_uid != pod.uid and not _is_for_group(claim, pod, assumed_allocation.pod_uid, snapshot):
        raise _BlockedError(Reason(_FOR_ANOTHER, claim=claim.name))
    return replace(found, claim=replace(claim, allocation=assumed_allocation.allocation))


def _is_for_group(claim: Claim, pod: Pod, other_uid: str, snapshot: Snapshot) -> bool:
    """Whether a claim is being allocated for the PodGroup of a pod: its pods do not wait for each other."""
    group, other = group_of(pod, claim, snapshot), snapshot.pod(other_uid)
    return group is not None and other is not None and group == group_of(other, claim, snapshot)


def _withheld(claim: Claim) -> Reason | None:
    """Why a claim without an allocation is not allocated for a pod; None if it may be. A stand-in has its uid."""
    if problem := mode_problem(claim.annotations):
        return Reason(_MODE, detail=problem, claim=claim.name)
    return Reason(_IMMEDIATE, claim=claim.name) if is_immediate(claim) else None


def _check_classes(spec: ClaimSpec, snapshot: Snapshot) -> None:
    """Each device class of the required requests exists."""
    for request in required(spec).requests if spec.optional else spec.requests:
        for alternative in request.alternatives:
            name = alternative.device_class
            if name not in snapshot.classes:
                raise _BlockedError(_absent(f"device class {name}", CLASSES, ObjectKey("", name), snapshot))


def _absent(what: str, resource: Resource, key: ObjectKey, snapshot: Snapshot) -> Reason:
    """Why an object is not in the snapshot: it can't be read, or it does not exist."""
    found = snapshot.problems.get((resource.kind, key))
    if found is None:
        return Reason(_MISSING, detail=what)
    why = f"is {found}" if found.is_refused else f"can't be read: {found}"
    return Reason(_UNREADABLE, detail=f"{what} {why}")


class Foreseen(NamedTuple):
    """A pod and its cluster as they will be once its claims are made. The claims have no version yet."""

    pod: Pod
    snapshot: Snapshot


def unmade(pod: Pod) -> Iterator[PodClaim]:
    """The entries of a pod with a template, for which the pod's status has no claim yet."""
    return (each for each in pod.claims if each.template_name and each.name not in pod.claim_statuses)


def unseen(pod: Pod, snapshot: Snapshot) -> Iterator[PodClaim]:
    """The entries of a pod whose claim the snapshot does not have; not those whose claim cannot be read."""
    for entry in pod.claims:
        key = ObjectKey(pod.namespace, claim_name(pod, entry) or "")
        if key.name and key not in snapshot.claims and (CLAIMS.kind, key) not in snapshot.problems:
            yield entry


def foreseen(pod: Pod, snapshot: Snapshot) -> Foreseen | None:
    """What will be once the claims of a pod are made and seen; None if none is missing, or if that is not certain.

    The claims of a gang are planned together. A claim of a PodGroup is made for all of its pods. A controller of
    negotiated claims writes to the claim. Such claims are waited for.
    """
    if pod.gang is not None or pod.pod_group or snapshot.controllers:
        return None
    entries = (*unmade(pod), *unseen(pod, snapshot))
    claims = {each.name: _claim_to_come(pod, each, snapshot) for each in entries}
    statuses = dict(pod.claim_statuses)
    for entry, claim in claims.items():
        if claim is None:
            return None
        statuses[entry] = claim.key.name
        snapshot = snapshot.with_claim(claim)
    return Foreseen(replace(pod, claim_statuses=statuses), snapshot) if claims else None


def _claim_to_come(pod: Pod, entry: PodClaim, snapshot: Snapshot) -> ClaimObject | None:
    """The claim of an entry, under a name that no claim can have; None if its template is not known."""
    found = claim_from_template(pod, entry, f"{pod.name}/{entry.name}", snapshot)
    template = snapshot.objects(ClaimTemplate).get(ObjectKey(pod.namespace, entry.template_name or ""))
    if found is None or template is None:
        return None
    return replace(found, claim=replace(found.claim, annotations=template.annotations))


def is_open(node: NodeObject) -> bool:
    """Whether a claim without a pod may be allocated for a node: the node is not cordoned. Taints are ignored."""
    return CORDON not in node.taints[:1]


def stand_in(claim: Claim) -> Pod:
    """Return a pod that needs nothing but a claim, with the name and the uid of the claim.

    A claim that is allocated without a pod is decided as the claim of this pod, which does not exist.
    """
    return Pod(
        claim.namespace,
        claim.name,
        claim.uid,
        priority=_LOWEST,
        claims=(PodClaim(claim.name, claim.name),),
        requirements=_ANY_TAINT,
    )
