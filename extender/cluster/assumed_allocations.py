"""When an assumed allocation ends, and since which revision a claim has its allocation."""

from dataclasses import replace

from allocator import PoolId
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot, pools_of, same_devices


def dated(new: ClaimObject, old: ClaimObject | None, *, listed: bool) -> ClaimObject:
    """The claim with the revision that brought its allocation; later updates keep that revision.

    Args:
        new: the claim as it is now.
        old: the claim of this name as it was known; it may have another uid.
        listed: the claim comes from a list, so its allocation may be old.
    """
    allocation = new.claim.allocation
    if allocation is None:
        return new
    before = old.claim.allocation if old is not None and old.claim.uid == new.claim.uid else None
    if old is not None and before is not None and same_devices(before, allocation):
        return replace(new, allocated_at=old.allocated_at, listed_at=old.listed_at)
    return replace(new, listed_at=new.revision) if listed else replace(new, allocated_at=new.revision)


def after_event(snapshot: Snapshot, uid: str) -> Snapshot:
    """The snapshot after an event of a claim: without its assumed allocation, if that has ended.

    It has ended if the claim is gone, shows the allocation, or shows a revision from which the outcome is certain.
    """
    assumed_allocation, claim = snapshot.assumed.get(uid), snapshot.claim(uid)
    if assumed_allocation is None:
        return snapshot
    if claim is not None:
        shown = claim.claim.allocation
        landed = shown is not None and same_devices(shown, assumed_allocation.allocation)
        if not landed and (assumed_allocation.ends_at is None or claim.revision < assumed_allocation.ends_at):
            return snapshot
    return snapshot.without_assumed(uid)


def moved_pools(before: Snapshot, after: Snapshot, uid: str) -> frozenset[PoolId]:
    """The pools whose devices a claim holds now and did not before, or the other way round."""
    old, new = before.held_by(uid), after.held_by(uid)
    if len(old) == len(new) and all(same_devices(*pair) for pair in zip(old, new, strict=True)):
        return frozenset()
    return frozenset(pool for allocation in (*old, *new) for pool in pools_of(allocation))
