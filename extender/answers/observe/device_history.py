"""The history of devices: who has held which one in the last hour, as far as this process saw it, in bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from allocator import AllocationResult, DeviceId
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, View
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.tools.offload import Offload

KEPT: Final = timedelta(hours=1)

_MOST: Final = 20_000
"""Holds that have ended, of all devices together: 15 MB, if no two have a name in common."""

_FEW: Final = 200
"""Claims that are compared on the event loop: half a millisecond. A thread takes a third of that to begin."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A claim has held a device.

    Attributes:
        users: names of those for whom the claim was reserved meanwhile.
        since: None: since before this process looked, and the API server does not say since when.
        until: None: the claim holds the device still.
    """

    claim: ObjectKey
    users: tuple[str, ...]
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class _Held:
    """The devices that one claim holds."""

    uid: str
    devices: frozenset[DeviceId]
    users: tuple[str, ...]
    since: datetime | None


_Holding: TypeAlias = dict[ObjectKey, _Held]


class DeviceHistory(View[_Holding]):
    """Compares claims again and again: only those that have changed since the last time.

    Args:
        timeline: of the cluster.
        now: the time.
        most: how many holds that have ended are remembered; the earliest go first.
        pause: lets others go on, between claims.
    """

    topics = frozenset({Topic.CLAIM})
    bound = f"what each claim holds, and {_MOST:,} holds that have ended"

    def __init__(
        self,
        timeline: Timeline,
        now: Callable[[], datetime],
        most: int = _MOST,
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(timeline)
        self._pause = pause
        self._now = now
        self._most = most
        self._complete_after: datetime | None = None
        self._held: _Holding = {}
        self._ended: deque[tuple[datetime, DeviceId]] = deque()
        self._of_device: dict[DeviceId, deque[Hold]] = {}

    def look(self, snapshot: Snapshot) -> None:
        """Note what claims have begun and ceased to hold since the last look."""
        now = self._now()
        self.at(snapshot)
        self._complete_after = self._complete_after or now
        self._forget(now - KEPT)

    def is_near(self) -> bool:
        """Whether few claims have changed since the last look, so that the next one takes no time to speak of."""
        return self._known is not None and self._since(self._known.version).among(self.topics).is_within(_FEW)

    def complete_after(self) -> datetime:
        """Since when all holds are known: an hour ago, or later if this process is younger or forgot some."""
        now = self._now()
        return max(now - KEPT, self._complete_after or now)

    def of(self, device: DeviceId, snapshot: Snapshot) -> list[Hold]:
        """The holds of a device, the latest first."""
        found = [*self._of_device.get(device, ())]
        for uid in snapshot.holders.get(device.pool_id, ()):
            key = snapshot.claim_keys.get(uid)
            held = self._held.get(key) if key is not None else None
            if key is not None and held is not None and device in held.devices:
                found.append(Hold(key, held.users, held.since, None))
        return found[::-1]

    def build(self, snapshot: Snapshot) -> _Holding:
        """Compare all claims, also with what was known before."""
        return self.apply(self._held, Reach({Topic.CLAIM: {**self._held, **snapshot.claims}.keys()}), snapshot)

    def apply(self, value: _Holding, reach: Reach, snapshot: Snapshot) -> _Holding:
        """Compare the claims that have changed."""
        now = self._now()
        for key in reach.keys(Topic.CLAIM) or ():
            self._pause()
            self._note(value, key, snapshot.claims.get(key), now)
        return value

    def _note(self, held: _Holding, key: ObjectKey, claim: ClaimObject | None, now: datetime) -> None:
        before, after = held.get(key), self._holding(claim, now)
        if before is not None and after is not None and (before.uid, before.devices) == (after.uid, after.devices):
            held[key] = replace(before, users=tuple(dict.fromkeys(before.users + after.users)))
            return
        if before is not None:
            self._end(Hold(key, before.users, before.since, now), before.devices, now)
            del held[key]
        if after is not None:
            held[key] = after

    def _holding(self, claim: ClaimObject | None, now: datetime) -> _Held | None:
        allocation = None if claim is None else claim.claim.allocation
        if claim is None or allocation is None:
            return None
        devices = frozenset(each.device for each in allocation.results if not each.admin_access)
        since = now if self._complete_after else _allocated(allocation)
        users = tuple(each.name for each in claim.claim.reserved_for)
        return _Held(claim.claim.uid, devices, users, since) if devices else None

    def _end(self, hold: Hold, devices: Iterable[DeviceId], now: datetime) -> None:
        for device in devices:
            self._ended.append((now, device))
            self._of_device.setdefault(device, deque()).append(hold)

    def _forget(self, before: datetime) -> None:
        while self._ended and (self._ended[0][0] < before or len(self._ended) > self._most):
            until, device = self._ended.popleft()
            holds = self._of_device[device]
            holds.popleft()
            if not holds:
                del self._of_device[device]
            if until >= before:
                self._complete_after = until


def _allocated(allocation: AllocationResult) -> datetime | None:
    """The time at which the claim was allocated, if whoever allocated it has written that down."""
    try:
        return datetime.fromisoformat(allocation.timestamp) if allocation.timestamp else None
    except ValueError:
        return None


class HistoryKeeper(BackgroundTask):
    """Keeps the history of devices.

    Args:
        state: has the claims. While they are not known, there is nothing to compare.
        history: is told of them.
        off_loop: where they are compared: all of them first, and after many changes.
    """

    def __init__(self, state: ClusterState, history: DeviceHistory, off_loop: Offload) -> None:
        self._state = state
        self._history = history
        self._off_loop = off_loop

    @property
    def idle_seconds(self) -> float:
        """Until claims change: what has ended long ago is forgotten then."""
        return UNTIL_NEWS

    async def tick(self) -> None:
        """Look at the claims that have changed."""
        if self._state.doubt_of(CLAIMS):
            return
        snapshot = self._state.snapshot
        if self._history.is_near():
            self._history.look(snapshot)
        else:
            await self._off_loop(partial(self._history.look, snapshot))
