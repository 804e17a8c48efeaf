"""Double allocations: the API server does not stop two claims from holding one device.

Of two such allocations the later one is void; revisions tell which one that is. An allocation that a list was the first
to show came no later than the list. Where that leaves the order open, both are void. Each void allocation is counted
once, and its pods get an Event.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from allocator import AllocationResult
from allocator.audit import device_findings
from allocator.tools import Recent, printable
from allocator.usage import DeviceUsage
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import users_of
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, pools_of
from extender.cluster.writes.events import Note
from extender.kube.api import ObjectKey

_HELD_ONCE: Final = DeviceUsage(holders=1)


def double_allocation(snapshot: Snapshot, uid: str) -> str:
    """The conflicts of a claim's allocation with earlier ones; empty if there are none.

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
    for result in allocation.results:
        if result.admin_access:
            continue
        pool = snapshot.inventory.pools.get(result.device.pool_id)
        if pool is not None and [each for each in pool.slices if each.counter_sets]:
            return False
        if snapshot.usage.device(result.device) != _HELD_ONCE:
            return False
    return True


def _neighbours(snapshot: Snapshot, claim: ClaimObject) -> list[ClaimObject]:
    """Other claims that hold something of the same pools."""
    uids = {uid for pool in pools_of(claim.claim.allocation) for uid in snapshot.holders.get(pool, ())}
    found = (snapshot.claim(uid) for uid in sorted(uids - {claim.claim.uid}))
    return [each for each in found if each is not None and each.claim.allocation is not None]


def is_before(other: ClaimObject, claim: ClaimObject) -> bool:
    """Whether the other allocation came first, or may have."""
    latest = claim.listed_at if claim.allocated_at is None else claim.allocated_at
    return other.allocated_at is None or other.allocated_at < latest


AT_ONCE: Final = 1_000
"""Claims per call of `look`: other background tasks wait meanwhile."""

PIECE: Final = 50
"""The number of claims after which other work gets the event loop: to check them takes a millisecond."""

_REMEMBERED: Final = 10_000


class DoubleAllocations:
    """Reports double allocations: ``count`` counts one, ``tell`` writes an Event on a pod."""

    def __init__(self, count: Callable[[], None], tell: Callable[[Pod, Note], None]) -> None:
        self._count = count
        self._tell = tell
        self._looked_at = 0
        self._unseen: dict[ObjectKey, None] = {}
        self._known: Recent[bool] = Recent(_REMEMBERED)

    @property
    def has_unseen(self) -> bool:
        """Whether claims that have changed are still to be checked."""
        return bool(self._unseen)

    def found(self, claim: ClaimObject, how: str, snapshot: Snapshot) -> None:
        """Report that a claim's allocation is void; ``how`` names the devices and the earlier claims."""
        key = (claim.claim.uid, claim.allocated_at)
        if self._known.find(key):
            return
        self._known.keep(key, value=True)
        self._count()
        for pod in users_of(claim.claim, snapshot):
            text = printable(f"claim {claim.key} was allocated after others: {how}")
            self._tell(pod, Note("DevicesTaken", text, "Binding"))

    async def look(self, state: ClusterState) -> None:
        """Check claims that have changed, with pauses for other work: kube-scheduler does not check its own.

        Some are checked now, and the rest next time.
        """
        changed, snapshot = state.since(self._looked_at).keys(Topic.CLAIM), state.snapshot
        self._looked_at = snapshot.version
        self._unseen.update(dict.fromkeys(snapshot.claims if changed is None else changed))
        for number, key in enumerate(list(islice(self._unseen, AT_ONCE)), 1):
            del self._unseen[key]
            self._check(key, state.snapshot)
            if number % PIECE == 0:
                await asyncio.sleep(0)

    def _check(self, key: ObjectKey, snapshot: Snapshot) -> None:
        claim = snapshot.claims.get(key)
        how = double_allocation(snapshot, claim.claim.uid) if claim is not None else ""
        if claim is not None and how:
            self.found(claim, how, snapshot)
