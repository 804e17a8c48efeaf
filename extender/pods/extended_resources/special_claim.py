"""A pod's extended resources, node by node: what device plugins offer there they serve, the rest a special claim.

The claim is made at bind (KEP-5004). One that is there already, from an earlier try, goes on if it suits the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from allocator import AllocationResult, selector_matches
from extender.pods.extended_resources.requests import UNMADE, DemandError, demand, special_claim, wanted
from extender.state.objects import IMPLICIT_PREFIX, ClaimObject, ExtendedClaim, NodeObject, Pod
from extender.state.snapshot import Snapshot
from extender.writes.other_writers import double_allocation, is_in_use


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod needs on one node.

    Attributes:
        pending: claims to be allocated there, together; a special one comes last.
        kept: a special claim that is allocated, and suits the node.
        stale: special claims that don't: they are deleted first, and what they hold is free for the pod.
        status: what the pod's status is to say of its special claim; None if it needs none.
    """

    pending: tuple[ClaimObject, ...] = ()
    kept: ClaimObject | None = None
    stale: tuple[ClaimObject, ...] = ()
    status: ExtendedClaim | None = None

    def world(self, snapshot: Snapshot) -> Snapshot:
        """The cluster in which the claims are to be allocated."""
        for each in self.stale:
            snapshot = snapshot.without_claim(each.key)
        return snapshot


_Variant: TypeAlias = Needs | str


@dataclass(frozen=True, slots=True)
class Special:
    """What a pod's extended resources come to.

    Attributes:
        wanted: the resources.
        classes: those of them that a device class serves, with its name.
        missing: classes that are asked for by name and do not exist.
        made: special claims of the pod that are there; none that is void.
        void: those that are.
        flying: what is in flight for a claim that is being made.
    """

    pod: Pod | None = None
    wanted: tuple[str, ...] = ()
    classes: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    made: tuple[ClaimObject, ...] = ()
    void: tuple[ClaimObject, ...] = ()
    flying: AllocationResult | None = None
    _variants: dict[tuple[str, ...], _Variant] = field(default_factory=dict, compare=False, repr=False)
    """By the resources that a claim is to serve, with a new claim; many nodes have the same."""

    @property
    def is_needed(self) -> bool:
        """Anything is to be decided, or to be cleaned up."""
        left = self.made or self.void or (self.pod is not None and self.pod.extended_claim)
        return bool(self.classes or left)

    def on(self, node: NodeObject) -> Needs | str:
        """What it comes to on a node; or why the pod can't go there."""
        served = tuple(name for name in self.wanted if not _has_plugin(node, name))
        needs = self._variant(served)
        if isinstance(needs, str) or not (self.made or self.void or self.flying):
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
        """The claim that is there and suits the node, one that has devices first; or else the new one."""
        same = [each for each in self.made if each.claim.spec == new.claim.spec and not each.claim.deleting]
        suiting = [each for each in same if reaches(each, node)]
        suiting.sort(key=lambda each: each.claim.allocation is None)
        return suiting[0] if suiting else self._flying(new, node)

    def _variant(self, served: tuple[str, ...]) -> _Variant:
        if served not in self._variants:
            self._variants[served] = self._worked_out(served)
        return self._variants[served]

    def _worked_out(self, served: tuple[str, ...]) -> _Variant:
        for name in served:
            if name not in self.classes:
                return f"neither a device plugin nor a device class offers extended resource {name}"
            if self.classes[name] in self.missing:
                return f"device class {self.classes[name]} does not exist"
        if self.pod is None or not served:
            return Needs()
        try:
            asked = demand(self.pod, {name: self.classes[name] for name in served})
        except DemandError as error:
            return str(error)
        new = special_claim(self.pod, asked.spec)
        return Needs(pending=(new,), status=ExtendedClaim(new.claim.name, asked.mappings))

    def _flying(self, new: ClaimObject, node: NodeObject) -> ClaimObject:
        """The new claim; with its devices where these are in flight for it already."""
        if self.flying is None:
            return new
        requests = {each.name for each in new.claim.spec.requests}
        found = replace(new, claim=replace(new.claim, allocation=self.flying))
        is_same = {each.request for each in self.flying.results} <= requests
        return found if is_same and reaches(found, node) else new


NO_SPECIAL: Final = Special()


def special_of(pod: Pod, snapshot: Snapshot) -> Special:
    """What a pod's extended resources come to in a cluster."""
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
        missing=frozenset(name for name in classes.values() if name not in snapshot.classes),
        made=tuple(_with_flight(each, pod, snapshot) for each in found if each not in void),
        void=void,
        flying=None if new is None else new.allocation,
    )


def class_serving(resource: str, snapshot: Snapshot) -> str | None:
    """The device class that serves an extended resource, by its own name or by the implicit one."""
    if resource.startswith(IMPLICIT_PREFIX):
        return resource.removeprefix(IMPLICIT_PREFIX)
    return snapshot.extended.get(resource)


def reaches(claim: ClaimObject, node: NodeObject) -> bool:
    """Whether pods that use a claim can run on a node: they can anywhere while it is not allocated."""
    allocation = claim.claim.allocation
    if allocation is None or allocation.node_selector is None:
        return True
    return selector_matches(allocation.node_selector, node.node)


def _has_plugin(node: NodeObject, resource: str) -> bool:
    amount = node.allocatable.get(resource)
    return amount is not None and amount.nano > 0


def _is_void(claim: ClaimObject, snapshot: Snapshot) -> bool:
    uid = claim.claim.uid
    return not is_in_use(snapshot, uid) and bool(double_allocation(snapshot, uid))


def _with_flight(claim: ClaimObject, pod: Pod, snapshot: Snapshot) -> ClaimObject:
    """The claim with what is in flight for it."""
    assumed_allocation = snapshot.assumed.get(claim.claim.uid)
    if claim.claim.allocation is not None or assumed_allocation is None or assumed_allocation.pod_uid != pod.uid:
        return claim
    return replace(claim, claim=replace(claim.claim, allocation=assumed_allocation.allocation))
