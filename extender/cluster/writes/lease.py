"""A lease that the replicas share: one of them holds it at a time (coordination.k8s.io).

It keeps replicas from doing the same work at once. It excludes nothing: a holder that is slow may still write when
another replica has taken the lease, so all writes must be safe anyway.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from extender.cluster.writes.pods import refused
from extender.kube.api import Api, ApiError, ObjectKey, RawObject
from extender.kube.resources import LEASES


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a lease.

    Attributes:
        lasts: seconds. If the lease was not renewed for this time, other replicas may take it.
        renewal: seconds. After this time, a holder with work renews the lease, and a holder without work gives it back.
    """

    lasts: int
    renewal: int


SHORT: Final = LeaseTimes(lasts=3, renewal=1)
"""For work that pods and claims wait for: if its holder is killed, they wait no longer."""

LONG: Final = LeaseTimes(lasts=15, renewal=5)
"""For work that nobody waits for, and for holders that end when they cannot renew."""


class SharedLease:
    """A lease that a replica holds only while it has work.

    Attributes:
        key: namespace and name of the lease.

    Args:
        api: the API server.
        holder: a name that only this replica has.
        now: the time, for people who read the lease.
        clock: measures durations, in seconds.
        times: how long the lease lasts.
    """

    def __init__(
        self,
        api: Api,
        key: ObjectKey,
        holder: str,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        times: LeaseTimes = SHORT,
    ) -> None:
        self._api = api
        self.key = key
        self._holder = holder
        self._now = now
        self._clock = clock
        self._times = times
        self._own: RawObject | None = None
        self._renewed = 0.0
        self._seen = ("", 0.0)
        """The version of the lease that another replica holds, and when this replica first read it."""

    @property
    def is_held(self) -> bool:
        """Whether this replica has the lease, as far as it knows."""
        return self._own is not None

    async def take(self) -> bool:
        """Take the lease, or renew it. Returns whether this replica has the lease now and had it before.

        A replica that has just taken the lease waits a moment: the watch has to show the writes of the last holder.

        Raises:
            WriteRefusedError, OutcomeUnknownError: the lease cannot be had.
        """
        held = self._own
        if held is not None and self._clock() < self._renewed + self._times.renewal:
            return True
        self._own = None
        try:
            await self._write(held)
        except ApiError as error:
            if not (error.is_conflict or error.reason == "AlreadyExists"):
                raise refused(f"lease {self.key}", error) from error
        return held is not None and self._own is not None

    async def give_back(self) -> None:
        """Let others take the lease, unless it was renewed just now: then there may soon be more work.

        Giving back is optional: the lease expires otherwise.

        Raises:
            WriteRefusedError, OutcomeUnknownError: others have to wait until it has expired.
        """
        if self._clock() >= self._renewed + self._times.renewal:
            await self.release()

    async def release(self) -> None:
        """Let others take the lease at once. Raises as `give_back`."""
        held, self._own = self._own, None
        if held is not None:
            try:
                await self._api.update(LEASES, self._held_by(held, ""))
            except ApiError as error:
                if not error.is_conflict:
                    raise refused(f"lease {self.key}", error) from error

    async def _write(self, held: RawObject | None) -> None:
        found = held or await self._read()
        if found is not None and held is None and not self._is_free(found):
            return
        began = self._clock()
        if found is None:
            metadata = {"namespace": self.key.namespace, "name": self.key.name}
            new = {"apiVersion": self._api.api_version(LEASES), "kind": LEASES.kind, "metadata": metadata}
            self._own = await self._api.create(LEASES, self._held_by(new, self._holder))
        else:
            self._own = await self._api.update(LEASES, self._held_by(found, self._holder))
        self._renewed = began

    async def _read(self) -> RawObject | None:
        try:
            return await self._api.get(LEASES, self.key)
        except ApiError as error:
            if error.is_missing:
                return None
            raise

    def _is_free(self, lease: RawObject) -> bool:
        """Whether no other replica holds the lease, or did not renew it. Clocks of other replicas do not count."""
        if (lease.get("spec") or {}).get("holderIdentity") in (None, "", self._holder):
            return True
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, self._clock())
        return self._clock() >= self._seen[1] + self._lasts(lease)

    def _lasts(self, lease: RawObject) -> int:
        """The time that the lease lasts for its holder, which may be a replica of another version."""
        told = (lease.get("spec") or {}).get("leaseDurationSeconds")
        return min(told, LONG.lasts) if isinstance(told, int) and told > 0 else self._times.lasts

    def _held_by(self, lease: RawObject, holder: str) -> RawObject:
        at = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": self._times.lasts, "renewTime": at}
        return {**lease, "spec": {**(lease.get("spec") or {}), **spec}}
