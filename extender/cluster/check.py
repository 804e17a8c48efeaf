"""The check against other writers: the API server does not stop two claims from holding one device.

Of two allocations that clash the later one is void. Which is later the revisions tell that brought them; one that was
there when we first looked may be older than anything.
"""

from allocator.audit import device_findings
from extender.cluster.objects import ClaimObject
from extender.cluster.snapshot import Snapshot, pools_of


def clash(snapshot: Snapshot, uid: str) -> str:
    """How a claim's allocation clashes with earlier ones; empty if it does not, or if there is none.

    The snapshot must have all revisions of claims up to the one that brought the allocation.
    """
    claim = snapshot.claim(uid)
    if claim is None or claim.claim.allocation is None:
        return ""
    earlier = [other for other in _neighbours(snapshot, claim) if _is_before(other, claim)]
    pools = pools_of(claim.claim.allocation)
    slices = [
        each for pool in pools if pool in snapshot.inventory.pools for each in snapshot.inventory.pools[pool].slices
    ]
    claims = [each.claim for each in (*earlier, claim)]
    name = str(claim.claim)
    return "; ".join(str(finding) for finding in device_findings(claims, slices) if name in finding.claims)


def _neighbours(snapshot: Snapshot, claim: ClaimObject) -> list[ClaimObject]:
    """Other claims that hold something of the same pools."""
    uids = {uid for pool in pools_of(claim.claim.allocation) for uid in snapshot.holders.get(pool, ())}
    found = (snapshot.claim(uid) for uid in sorted(uids - {claim.claim.uid}))
    return [each for each in found if each is not None and each.claim.allocation is not None]


def _is_before(other: ClaimObject, claim: ClaimObject) -> bool:
    if other.allocated_at is None:
        return True
    return claim.allocated_at is not None and other.allocated_at < claim.allocated_at
