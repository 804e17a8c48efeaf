"""The check against other writers: the API server does not stop two claims from holding one device.

Of two such allocations the later one is void; revisions tell which one that is. An allocation that a list was the first
to show came no later than the list. Where that leaves the order open, both are void.
"""

from collections.abc import Sequence
from dataclasses import replace

from allocator import AllocationResult
from allocator.audit import device_findings
from allocator.usage import DeviceUsage
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot, pools_of


def double_allocation(snapshot: Snapshot, uid: str) -> str:
    """How a claim's allocation conflicts with earlier ones; empty if it does not.

    Who reads the claim's namespace reads the text, so claims of other namespaces are counted in it, not named.

    The snapshot must include all changes of claims up to the revision of the allocation.
    """
    claim = snapshot.claim(uid)
    if claim is None or claim.claim.allocation is None or _is_alone(snapshot, claim.claim.allocation):
        return ""
    earlier = [other for other in _neighbours(snapshot, claim) if is_before(other, claim)]
    pools = pools_of(claim.claim.allocation)
    slices = [
        each for pool in pools if pool in snapshot.inventory.pools for each in snapshot.inventory.pools[pool].slices
    ]
    claims = [each.claim for each in (*earlier, claim)]
    name, namespace = str(claim.claim), claim.key.namespace
    found = (finding for finding in device_findings(claims, slices) if name in finding.claims)
    return "; ".join(str(replace(finding, claims=_named(finding.claims, namespace))) for finding in found)


def _named(claims: Sequence[str], namespace: str) -> tuple[str, ...]:
    """The claims of a namespace by name, and how many others there are."""
    own = tuple(claim for claim in claims if claim.partition("/")[0] == namespace)
    others = len(claims) - len(own)
    return (*own, f"{others} of other namespaces") if others else own


def _is_alone(snapshot: Snapshot, allocation: AllocationResult) -> bool:
    """Whether no other claim can be in conflict: the common case, decided without looking at other claims."""
    held = [result.device for result in allocation.results if not result.admin_access]
    if any(snapshot.usage.device(device) != DeviceUsage(holders=1) for device in held):
        return False
    pools = (snapshot.inventory.pools.get(pool) for pool in {device.pool_id for device in held})
    return not any(each.counter_sets for pool in pools if pool is not None for each in pool.slices)


def _neighbours(snapshot: Snapshot, claim: ClaimObject) -> list[ClaimObject]:
    """Other claims that hold something of the same pools."""
    uids = {uid for pool in pools_of(claim.claim.allocation) for uid in snapshot.holders.get(pool, ())}
    found = (snapshot.claim(uid) for uid in sorted(uids - {claim.claim.uid}))
    return [each for each in found if each is not None and each.claim.allocation is not None]


def is_before(other: ClaimObject, claim: ClaimObject) -> bool:
    """Whether the other allocation came first, or may have."""
    latest = claim.listed_at if claim.allocated_at is None else claim.allocated_at
    return other.allocated_at is None or other.allocated_at < latest
