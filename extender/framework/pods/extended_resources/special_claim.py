"""A pod's extended resources on a node: device plugins of the node serve some, a special claim serves the rest.

Bind creates the claim (KEP-5004). A claim of an earlier try is used again if it suits the node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from allocator import (
    AllocationResult,
    Features,
    GroupResource,
    Reason,
    allocation_reaches,
    allocation_reaches_all,
    missing_class,
)
from allocator.reason import Cause
from extender.cluster.consumers import is_in_use
from extender.cluster.double_allocations import double_allocation
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.extended_resources import IMPLICIT_PREFIX, ExtendedClaim
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.extended_resources.requests import UNMADE, DemandError, demand, special_claim, wanted

_UNSERVED: Final = Cause("unserved", "neither a device plugin nor a device class offers extended resource {detail}")
_MEMBER: Final = Cause("member-class", "device class {detail}")


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a pod on one node.

    Attributes:
        pending: claims to allocate there, together; a special claim comes last.
        kept: an allocated special claim that suits the node.
        stale: other special claims: they are deleted first, so that their devices are free for the pod.
        status: the special claim for the pod's status; None if the pod needs none.
    """

    pending: tuple[ClaimObject, ...] = ()
    kept: ClaimObject | None = None
    stale: tuple[ClaimObject, ...] = ()
    status: ExtendedClaim | None = None

    def world(self, snapshot: Snapshot) -> Snapshot:
        """The cluster in which the claims are allocated: without the stale ones."""
        for each in self.stale:
            snapshot = snapshot.without_claim(each.key)
        return snapshot


_Variant: TypeAlias = Needs | Reason


@dataclass(frozen=True, slots=True)
class Special:
    """A pod's extended resources and special claims.

    Attributes:
        wanted: the requested resources.
        classes: the resources that a device class serves, with the name of the class.
        groups: those of the classes that stand for several others.
        refusals: why the class of a resource cannot serve it.
        made: existing special claims of the pod whose allocation is not void.
        void: existing special claims whose allocation is void.
        assumed: the assumed allocation of a claim that is being created.
    """

    pod: Pod | None = None
    wanted: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, GroupResource] = field(default_factory=dict)
    refusals: Mapping[str, Reason] = field(default_factory=dict)
    made: tuple[ClaimObject, ...] = ()
    void: tuple[ClaimObject, ...] = ()
    assumed: AllocationResult | None = None
    _variants: dict[tuple[str, ...], _Variant] = field(default_factory=dict, compare=False, repr=False)
    """Needs with a new claim, by the resources that it serves; many nodes share an entry."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to decide or to clean up."""
        left = self.made or self.void or (self.pod is not None and self.pod.extended_claim)
        return bool(self.wanted or left)

    @property
    def asked(self) -> tuple[ClaimObject, ...]:
        """The claim that the pod needs on a node without device plugins."""
        needs = self._variant(tuple(self.wanted))
        return () if isinstance(needs, Reason) else needs.pending

    def on(self, node: NodeObject) -> Needs | Reason:
        """What the pod needs on a node; or why it cannot run there."""
        served = tuple([name for name in self.wanted if not _has_plugin(node, name)]) if self.wanted else ()
        needs = self._variant(served)
        if isinstance(needs, Reason) or not (self.made or self.void or self.assumed):
            return needs
        stale = (*self.made, *self.void)
        if not needs.pending:
            return Needs(stale=stale)
        (new,) = needs.pending
        chosen = self._chosen(new, node)
        left = tuple(each for each in stale if each is not chosen)
        status = None if needs.status is None else replace(needs.status, claim_name=chosen.claim.name)
        if chosen.claim.allocation is None:
            return Needs(pending=(chosen,), stale=left, status=status)
        return Needs(kept=chosen, stale=left, status=status)

    def _chosen(self, new: ClaimObject, node: NodeObject) -> ClaimObject:
        """An existing claim that suits the node, preferably an allocated one; else the new one."""
        same = [each for each in self.made if each.claim.spec == new.claim.spec and not each.claim.deleting]
        suiting = [each for each in same if reaches(each, node)]
        suiting.sort(key=lambda each: each.claim.allocation is None)
        return suiting[0] if suiting else self._new(new, node)

    def _variant(self, served: tuple[str, ...]) -> _Variant:
        if served not in self._variants:
            self._variants[served] = self._worked_out(served)
        return self._variants[served]

    def _worked_out(self, served: tuple[str, ...]) -> _Variant:
        for name in served:
            if name not in self.classes:
                return Reason(_UNSERVED, detail=name)
            if name in self.refusals:
                return self.refusals[name]
        if self.pod is None or not served:
            return Needs()
        try:
            asked = demand(self.pod, {name: self.classes[name] for name in served}, self.groups)
        except DemandError as error:
            return error.reason
        new = special_claim(self.pod, asked.spec)
        return Needs(pending=(new,), status=ExtendedClaim(new.claim.name, asked.mappings))

    def _new(self, new: ClaimObject, node: NodeObject) -> ClaimObject:
        """The new claim, with its assumed allocation if there is one."""
        if self.assumed is None:
            return new
        requests = {each.name for each in new.claim.spec.requests}
        found = replace(new, claim=replace(new.claim, allocation=self.assumed))
        is_same = {each.request for each in self.assumed.results} <= requests
        return found if is_same and reaches(found, node) else new


NO_SPECIAL: Final = Special()


def special_of(pod: Pod, snapshot: Snapshot) -> Special:
    """A pod's extended resources and special claims in a cluster."""
    names = wanted(pod)
    found = snapshot.special_claims(pod.uid)
    if not names and not found and pod.extended_claim is None:
        return NO_SPECIAL
    classes = {name: served for name in names if (served := class_serving(name, snapshot)) is not None}
    void = tuple(each for each in found if _is_void(each, snapshot))
    new = snapshot.assumed.get(f"{pod.uid}{UNMADE}")
    return Special(
        pod=pod,
        wanted=names,
        classes=classes,
        groups=groups_of(classes.values(), snapshot),
        refusals={name: why for name, served in classes.items() if (why := _refusal(served, snapshot))},
        made=tuple(_with_assumed(each, pod, snapshot) for each in found if each not in void),
        void=void,
        assumed=None if new is None else new.allocation,
    )


def class_serving(resource: str, snapshot: Snapshot) -> str | None:
    """The device class that serves an extended resource, by its own name or by the implicit one."""
    if resource.startswith(IMPLICIT_PREFIX):
        return resource.removeprefix(IMPLICIT_PREFIX)
    return snapshot.extended.get(resource)


def groups_of(classes: Iterable[str], snapshot: Snapshot) -> Mapping[str, GroupResource]:
    """The device classes among these that stand for several others."""
    found = {name: known.group for name in classes if (known := snapshot.classes.get(name)) is not None}
    return {name: group for name, group in found.items() if group is not None}


def _refusal(device_class: str, snapshot: Snapshot) -> Reason | None:
    """Why a device class can serve no extended resource; None if it can."""
    known = snapshot.classes.get(device_class)
    if known is None:
        return missing_class(device_class)
    for name, _ in known.group.members if known.group is not None else ():
        member = snapshot.classes.get(name)
        if member is None:
            return Reason(_MEMBER, detail=f"{device_class}: its member {name} does not exist")
        if member.group is not None or member.controller:
            what = "members, too" if member.group is not None else "a controller"
            return Reason(_MEMBER, detail=f"{device_class}: its member {name} has {what}")
    return None


def reaches(claim: ClaimObject, node: NodeObject) -> bool:
    """Whether pods that use a claim can run on a node; true while the claim is not allocated."""
    allocation = claim.claim.allocation
    return allocation is None or allocation_reaches(allocation, node.node)


def reaches_anywhere(claim: ClaimObject) -> bool:
    """Whether pods that use a claim can run on any node, as far as the claim goes."""
    allocation = claim.claim.allocation
    return allocation is None or allocation_reaches_all(allocation)


def _has_plugin(node: NodeObject, resource: str) -> bool:
    amount = node.allocatable.get(resource)
    return amount is not None and amount.nano > 0


def _is_void(claim: ClaimObject, snapshot: Snapshot) -> bool:
    return not is_in_use(claim.claim, snapshot) and bool(double_allocation(snapshot, claim.claim.uid))


def _with_assumed(claim: ClaimObject, pod: Pod, snapshot: Snapshot) -> ClaimObject:
    """The claim with its assumed allocation for this pod, if there is one."""
    assumed_allocation = snapshot.assumed.get(claim.claim.uid)
    if claim.claim.allocation is not None or assumed_allocation is None or assumed_allocation.pod_uid != pod.uid:
        return claim
    return replace(claim, claim=replace(claim.claim, allocation=assumed_allocation.allocation))


def without_devices(pod: Pod, snapshot: Snapshot, features: Features) -> str:
    """Why a pod that has a node starts without devices for its extended resources; empty if it gets them.

    kubelet waits for claims that the pod names. It does not wait for a special claim (Kubernetes 1.36): without
    ``status.extendedResourceClaimStatus`` it starts the pod at once, and ignores resources that the node does not have.
    """
    node = snapshot.nodes.get(pod.node_name)
    if node is None or not (pod.containers and features.extended_resource) or pod.extended_claim is not None:
        return ""
    needs = special_of(pod, snapshot).on(node)
    if isinstance(needs, Reason):
        return f"the pod has node {node.name}, and kubelet starts it without devices: {needs.in_words()}"
    resources = sorted({each.resource for each in needs.status.mappings}) if needs.status is not None else []
    if not resources:
        return ""
    return (
        f"the pod has node {node.name}, and kubelet starts it without {', '.join(resources)}: kubelet does not wait "
        "for devices of a device class; remove spec.nodeName, so that a scheduler allocates them"
    )
