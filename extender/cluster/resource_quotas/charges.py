"""The charges of claims and pods in ResourceQuotas, as far as they concern devices.

Source: the quota evaluators of claims and pods of Kubernetes 1.36 (KEP-5004 for extended resources).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from allocator import MAX_RESULTS, AllocationMode, Claim, DeviceRequest, Quantity, Request
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import IMPLICIT_PREFIX, Pod, asked
from extender.cluster.resource_quotas.limits import CLAIM_COUNT, PER_CLASS, REQUESTS, Charges, Extended

NOTHING: Final[Charges] = {}


def claim_charges(claim: Claim, extended: Extended, of_pod: Charges = NOTHING) -> Charges:
    """What a claim is charged for: itself, and devices of each class as claims and as extended resources.

    Whether a device is for administrative access makes no difference.

    Args:
        claim: allocated or not.
        extended: the extended resources of classes.
        of_pod: the charge of the pod of a special claim. The claim is charged only for the rest.
    """
    devices: Counter[str] = Counter()
    for request in claim.spec.requests:
        devices.update(_worst(request))
    found = {CLAIM_COUNT: Quantity.from_int(1)}
    for name, count in devices.items():
        found[f"{name}{PER_CLASS}"] = amount = Quantity.from_int(count)
        for resource in filter(None, (f"{IMPLICIT_PREFIX}{name}", extended.resources.get(name))):
            rest = amount - of_pod.get(f"{REQUESTS}{resource}", Quantity(0))
            if rest.nano > 0:
                found[f"{REQUESTS}{resource}"] = rest
    return found


def pod_charges(pod: Pod) -> Charges:
    """What a pod is charged for: its extended resources, at their peak; nothing once it has finished."""
    if pod.is_finished:
        return NOTHING
    return {f"{REQUESTS}{name}": Quantity(nano) for name, nano in asked(pod.containers).items()}


def charged_before(claim: ClaimObject, pod: Pod | None, special: Iterable[ClaimObject]) -> Charges:
    """What the pod of a special claim is charged for, so that the claim is not charged for it again.

    Args:
        claim: any claim; other claims have no such pod.
        pod: the owner of the claim; None if it is gone.
        special: all special claims of the pod.
    """
    if pod is None or claim.special_of != pod.uid:
        return NOTHING
    if pod.extended_claim is not None:
        is_first = pod.extended_claim.claim_name == claim.claim.name
    else:
        mine = (claim.created, claim.claim.name)
        is_first = all(mine <= (each.created, each.claim.name) for each in special)
    return pod_charges(pod) if is_first else NOTHING


def total(all_charges: Iterable[Charges]) -> Charges:
    """The sum."""
    nano: Counter[str] = Counter()
    for charges in all_charges:
        nano.update({name: amount.nano for name, amount in charges.items()})
    return {name: Quantity(amount) for name, amount in nano.items()}


def _worst(request: Request) -> Mapping[str, int]:
    """The most devices of each class that a request may get. It is not known which alternative will be taken."""
    most: dict[str, int] = {}
    for each in request.alternatives:
        most[each.device_class] = max(_count(each), most.get(each.device_class, 0))
    return most


def _count(request: DeviceRequest) -> int:
    if request.mode is AllocationMode.ALL:
        return MAX_RESULTS
    return request.count if request.mode is AllocationMode.EXACT_COUNT else 0
