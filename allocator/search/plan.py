"""Search plans: the requests of all claims, with what is known of the candidates of each alternative.

A claim that can't be allocated on any node is refused here, before any search.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator.checks.check import Refusal, selectors_of
from allocator.errors import InvalidClaimError, NodeUnsuitableError, missing_class
from allocator.model.claims import MAX_RESULTS, AllocationMode, Claim, ConstraintSpec, DeviceRequest, Request
from allocator.model.device_classes import DeviceClass
from allocator.model.features import Features
from allocator.pools import NodePool
from allocator.search.candidates import Alternative, Candidates
from allocator.search.constraints import CONSTRAINTS, constraint_covers


@dataclass(frozen=True, slots=True)
class Slot:
    """One request of a claim (by its position): one of its alternatives must be served."""

    claim: int
    request: Request
    alternatives: tuple[Alternative, ...]

    @property
    def may_overlap(self) -> bool:
        """Whether an alternative takes nothing from other requests: admin access."""
        return any(a.request.admin_access for a in self.alternatives)


@dataclass(frozen=True, slots=True)
class Plan:
    """All requests in the order in which they are served, and the constraints of each claim."""

    claims: tuple[Claim, ...]
    slots: tuple[Slot, ...]
    constraints: tuple[tuple[ConstraintSpec, ...], ...] = field(default=())

    @property
    def has_admin_access(self) -> bool:
        """Whether a request asks for admin access."""
        return any(slot.may_overlap for slot in self.slots)

    @property
    def constrains_all(self) -> bool:
        """Whether a constraint covers a request for all devices: then a violation is an error, not a "no"."""
        return any(a.members is not None and a.covering for s in self.slots for a in s.alternatives)


def plan(
    claims: tuple[Claim, ...],
    classes: Mapping[str, DeviceClass],
    pools: tuple[NodePool, ...],
    candidates: Candidates,
    features: Features,
) -> Plan:
    """The plan for some claims on one node.

    Raises:
        InvalidClaimError: a claim that no node can serve, with the features that are on.
        NodeUnsuitableError: a request for all devices, and a pool that is incomplete or invalid.
        SelectorError: a selector fails on a device, in a request for all devices.
    """
    slots: list[Slot] = []
    for index, claim in enumerate(claims):
        total = 0
        for request in claim.spec.requests:
            _check_request(claim, request, features)
            alternatives = tuple(
                [_alternative(index, claim, request, each, classes, candidates) for each in request.alternatives]
            )
            for each in alternatives:
                if each.request.mode is AllocationMode.ALL:
                    _check_all(claim, each, pools)
                    each.members = candidates.members(each)
                    each.need = len(each.members)
            slots.append(Slot(index, request, alternatives))
            least = min([a.need for a in alternatives])
            if total + least > MAX_RESULTS:
                raise InvalidClaimError(
                    str(claim),
                    request.name,
                    f"adding {least} devices exceeds the claim limit of {MAX_RESULTS}, with {total} before it",
                )
            total += least
        for number, spec in enumerate(claim.spec.constraints):
            if spec.kind not in CONSTRAINTS:
                raise InvalidClaimError(str(claim), "", f"constraint {number} is of an unknown kind")
    return Plan(claims, tuple(slots), tuple([c.spec.constraints for c in claims]))


def _check_request(claim: Claim, request: Request, features: Features) -> None:
    def refuse(reason: str) -> None:
        raise InvalidClaimError(str(claim), request.name, reason)

    if not request.alternatives:
        refuse("neither exactly nor firstAvailable is set")
    if request.prioritized and not features.prioritized_list:
        refuse("has subrequests, the feature DRAPrioritizedList is off")
    for each in request.alternatives:
        if each.capacity is not None and not features.consumable_capacity:
            refuse("requests capacity, the feature DRAConsumableCapacity is off")
        if each.derived_attributes and not features.derived_attributes:
            refuse("has derived attributes, the feature DRADerivedAttributes is off")
        if each.admin_access and not features.admin_access:
            refuse("asks for admin access, the feature DRAAdminAccess is off")
        if each.mode is None:
            refuse("has an unknown allocation mode")


def _alternative(
    index: int,
    claim: Claim,
    request: Request,
    wanted: DeviceRequest,
    classes: Mapping[str, DeviceClass],
    candidates: Candidates,
) -> Alternative:
    label = request.label(wanted)
    if "" in wanted.selectors:
        raise InvalidClaimError(str(claim), label, f"selector {wanted.selectors.index('')} is of an unknown kind")
    if not wanted.device_class:
        raise InvalidClaimError(str(claim), label, "deviceClassName is missing")
    device_class = classes.get(wanted.device_class)
    if device_class is None:
        raise InvalidClaimError(str(claim), label, missing_class(wanted.device_class).in_words())
    selectors = selectors_of(wanted, device_class)
    constraints = enumerate(claim.spec.constraints)
    covering = tuple(
        [(number, spec) for number, spec in constraints if constraint_covers(spec, request.name, wanted.name)]
    )
    refusals: list[Refusal | None] = [None] * candidates.count
    checks = candidates.checks(wanted)
    return Alternative(
        index, claim, request.name, label, wanted, selectors, device_class, checks, covering, refusals, wanted.count
    )


def _check_all(claim: Claim, alternative: Alternative, pools: tuple[NodePool, ...]) -> None:
    """All devices are not known if a pool is incomplete or invalid."""
    for pool in pools:
        if pool.problem:
            state = "being updated" if pool.incomplete else "invalid"
            raise NodeUnsuitableError(
                str(claim),
                alternative.label,
                f"asks for all devices, but resource pool {pool.id} is {state}: {pool.problem}",
            )
