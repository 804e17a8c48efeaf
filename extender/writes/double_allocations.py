"""Double allocations: each allocation that comes after others for the same devices is counted and told once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final

from extender.kube.api import ObjectKey
from extender.state.kinds import Topic
from extender.state.objects import ClaimObject, Pod
from extender.state.snapshot import Snapshot
from extender.state.state import ClusterState
from extender.writes.events import Note
from extender.writes.other_writers import double_allocation

AT_ONCE: Final = 1_000
"""Claims in one look: others wait for the event loop meanwhile."""

_REMEMBERED: Final = 10_000


class DoubleAllocations:
    """Counts and tells them.

    Args:
        count: counts one.
        tell: tells a pod of one.
    """

    def __init__(self, count: Callable[[], None], tell: Callable[[Pod, Note], None]) -> None:
        self._count = count
        self._tell = tell
        self._looked_at = 0
        self._unseen: dict[Hashable, None] = {}
        self._known: OrderedDict[tuple[str, int | None], None] = OrderedDict()

    def found(self, claim: ClaimObject, how: str, snapshot: Snapshot) -> None:
        """An allocation is void.

        Args:
            claim: that has it.
            how: it clashes.
            snapshot: knows the pods that the claim is reserved for.
        """
        key = (claim.claim.uid, claim.allocated_at)
        if key in self._known:
            return
        self._known[key] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        self._count()
        for consumer in claim.claim.reserved_for:
            pod = snapshot.pod(consumer.uid)
            if pod is not None:
                self._tell(pod, Note("DevicesTaken", f"claim {claim.key} was allocated after others: {how}", "Binding"))

    def look(self, state: ClusterState) -> None:
        """Look at claims that have changed, some now and the rest next time: the scheduler beside us never does."""
        changes, snapshot = state.changes_since(self._looked_at), state.snapshot
        self._looked_at = snapshot.version
        self._unseen.update((change.key, None) for change in changes or () if change.topic is Topic.CLAIM)
        for key in list(islice(self._unseen, AT_ONCE)):
            del self._unseen[key]
            claim = snapshot.claims.get(key) if isinstance(key, ObjectKey) else None
            how = double_allocation(snapshot, claim.claim.uid) if claim is not None else ""
            if claim is not None and how:
                self.found(claim, how, snapshot)
