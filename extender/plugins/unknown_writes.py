"""Unknown writes: an allocation that was perhaps written is not assumed for good, whatever becomes of its pod.

A write without an answer may still be on its way, so its devices go to nobody else meanwhile. The next bind of the pod
writes the allocation again. A pod that is gone, or that fits nowhere any more, has no next bind: its claim gets another
write instead. The API server refuses the first one from then on, and the watch shows that.
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.indexes import AssumedAllocation
from extender.cluster.writes.writer import Writer
from extender.framework.handle import Handle
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.tools.faults import Faults

logger = structlog.get_logger()

UNKNOWN_SECONDS: Final = 10.0
"""After which an outcome that the watch does not show is asked for, and between two tries. kube-scheduler tries a pod
whose bind has failed within this time, as a rule: then the next bind finds out."""


class UnknownWrites(BackgroundTask):
    """Ends the assumed allocations of which nobody will know otherwise whether they were written.

    Args:
        state: the cluster.
        writer: writes to it.
        is_binding: whether a bind of the pod with this uid is running.
        faults: gets unexpected errors, each with its claim.
        clock: measures durations, in seconds.
    """

    def __init__(
        self,
        state: ClusterState,
        writer: Writer,
        is_binding: Callable[[str], bool],
        faults: Faults,
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._writer = writer
        self._is_binding = is_binding
        self._faults = faults
        self._clock = clock
        self._due: dict[AssumedAllocation, float] = {}
        """When each outcome is asked for."""

    @property
    def idle_seconds(self) -> float:
        """Until the first outcome is asked for; writes that go on are news once they have ended."""
        return min(self._due.values()) - self._clock() if self._due else UNTIL_NEWS

    async def tick(self) -> None:
        """Ask for the outcomes that are due."""
        now, assumed = self._clock(), self._state.snapshot.assumed
        ended = [each for each in assumed.values() if each.ends_at is not None]
        self._due = {each: self._due.get(each, now + UNKNOWN_SECONDS) for each in ended}
        for each in [] if self._state.not_ready else ended:
            if self._due[each] <= now and not self._is_binding(each.pod_uid):
                self._due[each] = now + UNKNOWN_SECONDS
                with self._faults.of(f"the claim with uid {each.claim_uid}"):
                    await self._end(each)

    async def _end(self, assumed: AssumedAllocation) -> None:
        claim = self._state.snapshot.claim(assumed.claim_uid)
        if claim is None or assumed.ends_at is None:
            return
        try:
            if await self._writer.overtake(claim, assumed.ends_at):
                logger.info("claim not allocated", claim=str(claim.key), error="its write had no answer")
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("outcome still unknown", claim=str(claim.key), error=str(error))


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task for writes without an answer."""
    return [UnknownWrites(handle.state, handle.writer, handle.binder.is_binding, handle.faults, handle.clock)]
