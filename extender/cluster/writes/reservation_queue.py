"""Reservations of one claim that wait to be written: one write makes all that wait at that time.

Pods that share a claim are bound at the same time. Each write changes the version of the claim, so writes of single
pods would meet conflicts, or wait for each other. Whoever holds the lock of the claim writes for all that wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from allocator import Claim
from extender.cluster.cluster_state import ClusterState
from extender.cluster.writes.claims import (
    ClaimWrites,
    ReadClaim,
    Reservation,
    confirmed,
    is_being_taken,
    is_confirmed,
    is_protected,
    protected,
    without_taking,
)
from extender.cluster.writes.pods import ATTEMPTS, changed_by_others, refused
from extender.kube.api import ApiError, OutcomeUnknownError, RawObject, WriteRefusedError, revision_of


@dataclass(slots=True, eq=False)
class WaitingReservation:
    """A reservation that waits to be written.

    Attributes:
        reservation: the goal.
        fence: the latest fence of the pod in the version that will be bound; empty if there is none.
        outcome: the claim as it is then, or why it is not reserved; None while the reservation waits.
        is_left: nobody waits for the outcome any more.
    """

    reservation: Reservation
    fence: str
    outcome: ReadClaim | Exception | None = None
    is_left: bool = False

    def is_certain(self, now: ReadClaim) -> bool:
        """Whether no write that others made from older reads can still take the claim, which is reserved already.

        Whoever has fenced the pod may still write what was read before the fence. Whoever takes a claim from a PodGroup
        marks the claim first, and may not know the pod. In both cases a write to the claim makes theirs refused. A
        special claim must have the finalizer: an undo that has begun to delete it removes the finalizer first.
        """
        reservation, raw = self.reservation, now.raw
        if self.fence and not is_confirmed(raw, reservation.pod, self.fence):
            return False
        if reservation.group is not None and is_being_taken(raw):
            return False
        return is_protected(raw) or not reservation.is_special


class ReservationQueue:
    """The reservations of one claim; it exists while somebody writes the claim or waits for it.

    Attributes:
        lock: of the claim, in this process.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._waiting: list[WaitingReservation] = []
        self._writing: list[WaitingReservation] = []
        self._last: ReadClaim | None = None

    async def reserve(
        self, waiting: WaitingReservation, claims: ClaimWrites, clock: Callable[[], datetime]
    ) -> ReadClaim:
        """Wait until a reservation is written; returns the claim as it is then.

        Args:
            waiting: the reservation.
            claims: where it is written.
            clock: the time of an allocation.

        Raises:
            WriteRefusedError: the claim is not reserved; its assumed allocation is dropped.
            OutcomeUnknownError: it may be reserved; the assumed allocation stays until the watch shows the outcome.
        """
        self._waiting.append(waiting)
        try:
            async with self.lock:
                while waiting.outcome is None:
                    await self._write_all(waiting, claims, clock)
        finally:
            waiting.is_left = True
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._leave(waiting.reservation, claims.state)
        if isinstance(waiting.outcome, Exception):
            raise waiting.outcome
        return waiting.outcome

    async def _write_all(self, own: WaitingReservation, claims: ClaimWrites, clock: Callable[[], datetime]) -> None:
        """Write all reservations that wait now, and note the outcome of each and of the assumed allocation.

        If the bind of the ``own`` one is cancelled meanwhile, the others wait for the next writer.
        """
        batch, self._waiting = self._waiting, []
        self._writing = batch
        reserved, state, uid = Reserved(list(batch), claims, clock), claims.state, batch[0].reservation.uid
        try:
            try:
                self._last = now = await reserved.reach(self._newest(batch))
            finally:
                self._writing = []
        except WriteRefusedError as error:
            self._drop_allocation(uid, state)
            reserved.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a status write that was begun may have happened
            self._settle(reserved, uid, state)
            reserved.fail(reserved.reported(error))
        except BaseException:
            own.is_left = True
            again = (each for each in batch if each.outcome is None and not each.is_left)
            self._waiting = [*again, *self._waiting]
            self._settle(reserved, uid, state)
            raise
        else:
            if reserved.waiting:
                state.settle(uid, revision_of(now.raw))
            else:
                self._drop_allocation(uid, state)
            for each in reserved.waiting:
                each.outcome = now

    def _settle(self, reserved: "Reserved", uid: str, state: ClusterState) -> None:
        """Note what an error says of the assumed allocation: a status write that was begun may have happened."""
        if reserved.written_from:
            state.settle(uid, reserved.written_from + 1)
        else:
            self._drop_allocation(uid, state)

    def _leave(self, reservation: Reservation, state: ClusterState) -> None:
        """A bind has ended before its reservation was written. What others have written ends by itself."""
        assumed = state.snapshot.assumed.get(reservation.uid)
        if reservation.allocates and assumed is not None and assumed.ends_at is None:
            self._drop_allocation(reservation.uid, state)

    def _drop_allocation(self, uid: str, state: ClusterState) -> None:
        """Drop the assumed allocation of the claim, unless a bind writes it or waits to: then it is of that bind."""
        waiting = (each.reservation for each in (*self._writing, *self._waiting) if each.reservation.allocates)
        if (successor := next(waiting, None)) is None:
            state.forget(uid)
        else:
            state.assume(uid, successor.allocation, successor.pod.uid, successor.claim.claim.spec)

    def _newest(self, batch: list[WaitingReservation]) -> ReadClaim | None:
        """The claim as it is known best: what our last write returned, or what one of the binds has seen.

        None: the cache has not kept all of the claim, so it is read before it is replaced.
        """
        best = max((each.reservation for each in batch), key=lambda each: each.claim.revision)
        if self._last is not None and revision_of(self._last.raw) >= best.claim.revision:
            return self._last
        return best.known if best.claim.is_whole else None


@dataclass(slots=True)
class Reserved:
    """The goal of one write for several binds: the claim is allocated, and reserved for the pod of each.

    Finalizer first, so that an allocated claim is always protected; then allocation and reservations in one write. The
    API server refuses a reservation without an allocation. `claim_json.AllocationFirst` is for claims of a pod that has
    its node already: reserved in a write of its own.

    Attributes:
        waiting: the reservations that are still possible. Others get their refusal as outcome.
        written_from: the revision that the last status write was made from; 0 without such a write.
    """

    waiting: list[WaitingReservation]
    claims: ClaimWrites
    clock: Callable[[], datetime]
    written_from: int = 0
    _key: str = field(init=False)

    def __post_init__(self) -> None:
        self._key = f"claim {self.waiting[0].reservation.claim.key}"

    async def reach(self, known: ReadClaim | None) -> ReadClaim:
        """Write and read in turn until the goal is reached; returns the claim as it is then.

        A claim that seems to need no write is read, because what was known may be old. After a write nothing is read.

        Args:
            known: the claim as it was known; None: it is read first.

        Raises:
            WriteRefusedError, OutcomeUnknownError, ApiError: the goal is not reached, or perhaps not.
        """
        unknown, is_fresh = None, known is None
        now = await self._read(None) if known is None else known
        for _ in range(ATTEMPTS):
            missing = self._missing(now.claim)
            is_reached = self._is_certain(now, missing)
            if is_reached and (is_fresh or not self.waiting):
                return now
            if not is_reached:
                try:
                    return await self._write(now, missing)
                except OutcomeUnknownError as error:
                    unknown = error
                except ApiError as error:
                    if not error.is_conflict:
                        raise (None if error.is_missing else unknown) or refused(self._key, error) from error
                    unknown = None
            now, is_fresh = await self._read(unknown), True
        if self._is_certain(now, self._missing(now.claim)):
            return now
        raise unknown or changed_by_others(self._key)

    def fail(self, error: Exception) -> None:
        """Give the outcome to all that still wait."""
        for each in self.waiting:
            each.outcome = error

    def reported(self, error: Exception) -> Exception:
        """An error as binds are told it: if no status write was begun, nothing has happened."""
        cause = str(error) if isinstance(error, OutcomeUnknownError) else f"{type(error).__name__}: {error}"
        if not self.written_from:
            return WriteRefusedError(cause)
        return error if isinstance(error, OutcomeUnknownError) else OutcomeUnknownError(self._key, cause)

    def _is_certain(self, now: ReadClaim, missing: Sequence[Reservation]) -> bool:
        """Whether the goal is reached: nothing is missing, and no write of others can take it away."""
        return not missing and all(each.is_certain(now) for each in self.waiting)

    def _missing(self, claim: Claim) -> Sequence[Reservation]:
        """The reservations that the claim lacks. What has become impossible waits no more."""
        missing = []
        for each in list(self.waiting):
            try:
                is_made = each.reservation.is_made(claim)
            except WriteRefusedError as refusal:
                each.outcome = refusal
                self.waiting.remove(each)
                continue
            if not is_made:
                claim = each.reservation.made(claim)
                missing.append(each.reservation)
        return missing

    async def _write(self, now: ReadClaim, missing: Sequence[Reservation]) -> ReadClaim:
        """Write from what was known. A write of any kind makes older writes of others refused.

        Args:
            now: the claim as it was known.
            missing: the reservations that it lacks.
        """
        if not missing or not is_protected(now.raw):
            raw = without_taking(now.raw) if missing else self._certain(now.raw)
            now = await self.claims.update(protected(raw))
            missing = self._missing(now.claim)
        if not missing:
            return now
        self.written_from = revision_of(now.raw)
        raw, at = now.raw, self.clock()
        for each in missing:
            raw = each.written(raw, at)
        return await self.claims.update_status(raw)

    def _certain(self, raw: RawObject) -> RawObject:
        """The claim with a change that makes older writes of others refused, if one is needed.

        The mark names one of the pods. If the outcome of the write is unknown, it is certain for this pod only.
        """
        for each in self.waiting:
            if each.fence and not is_confirmed(raw, each.reservation.pod, each.fence):
                raw = confirmed(raw, each.reservation.pod, each.fence)
                break
        return without_taking(raw)

    async def _read(self, unknown: OutcomeUnknownError | None) -> ReadClaim:
        """The claim as it is now; if it can't be read, the earlier error ``unknown`` is raised."""
        try:
            return await self.claims.get(self.waiting[0].reservation.claim.key)
        except ApiError as error:
            raise (None if error.is_missing else unknown) or refused(self._key, error) from error
