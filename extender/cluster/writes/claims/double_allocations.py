"""Double allocations: each void allocation is counted once, and its pods get an Event."""

from collections.abc import Callable
from itertools import islice
from typing import Final

from allocator.tools import Recent, printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import users_of
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.other_writers import double_allocation
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.events import Note
from extender.kube.api import ObjectKey

AT_ONCE: Final = 1_000
"""Claims per call of `look`: other tasks wait for the event loop meanwhile."""

_REMEMBERED: Final = 10_000


class DoubleAllocations:
    """Reports double allocations: ``count`` counts one, ``tell`` writes an Event on a pod."""

    def __init__(self, count: Callable[[], None], tell: Callable[[Pod, Note], None]) -> None:
        self._count = count
        self._tell = tell
        self._looked_at = 0
        self._unseen: dict[ObjectKey, None] = {}
        self._known: Recent[bool] = Recent(_REMEMBERED)

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

    def look(self, state: ClusterState) -> None:
        """Check claims that have changed, some now and the rest next time: kube-scheduler does not check its own."""
        changed, snapshot = state.since(self._looked_at).keys(Topic.CLAIM), state.snapshot
        self._looked_at = snapshot.version
        self._unseen.update(dict.fromkeys(snapshot.claims if changed is None else changed))
        for key in list(islice(self._unseen, AT_ONCE)):
            del self._unseen[key]
            claim = snapshot.claims.get(key)
            how = double_allocation(snapshot, claim.claim.uid) if claim is not None else ""
            if claim is not None and how:
                self.found(claim, how, snapshot)
