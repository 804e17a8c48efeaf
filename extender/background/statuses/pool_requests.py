"""Answers ResourcePoolStatusRequests (KEP-5677) that nobody else answers."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from extender.background.task import BackgroundTask
from extender.cluster.cluster_state import ClusterState
from extender.kube.api import Api, RawObject
from extender.kube.discovery import NotServedError
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import POOL_REQUESTS
from extender.observe.pool_status import PoolAnswer, answer_to, parse_pool_request
from extender.tools.offload import Offload
from extender.writes.pool_status import write_pool_status

logger = structlog.get_logger()

PAUSE_SECONDS: Final = 5.0
"""Between two looks at the requests."""

PATIENCE_SECONDS: Final = 5.0
"""The time that kube-controller-manager has for its answer: its controller takes less than a second, if it runs."""

INCOMPLETE_SECONDS: Final = 60.0
"""The longest time that an answer waits for the slices that are missing in a pool."""

RETRY_SECONDS: Final = 60.0
"""The pause after requests could not be listed, or an answer was refused, as without the right to do so."""

MOST_ANSWERS: Final = 20
"""The most answers of one turn: the turns of other tasks wait, and each answer walks all claims."""


class PoolRequests(BackgroundTask):
    """Answers requests from the snapshot.

    Args:
        state: the cluster.
        api: has the requests.
        clock: measures durations, in seconds.
        now: the time, for the answer.
        off_loop: runs the sums in a thread.
    """

    def __init__(
        self,
        state: ClusterState,
        api: Api,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._api = api
        self._clock = clock
        self._now = now
        self._off_loop = off_loop
        self._again = 0.0
        self._since: dict[str, float] = {}
        """When each unanswered request was seen first, by its uid."""
        self._looked: dict[str, float] = {}
        """When each unanswered request was looked at last. So requests that wait for slices keep no other waiting."""

    async def tick(self) -> None:
        """Answer the requests that have waited for long enough."""
        now = self._clock()
        if now < self._again or self._state.not_ready:
            return
        self._again = now + PAUSE_SECONDS
        try:
            listed = (await self._api.list(POOL_REQUESTS)).items
        except NotServedError:
            return
        except (ApiError, OutcomeUnknownError) as error:
            self._again = now + RETRY_SECONDS
            logger.warning("pool status requests not listed", error=str(error))
            return
        waiting = {each["metadata"]["uid"]: each for each in listed if not each.get("status")}
        self._since = {uid: self._since.get(uid, now) for uid in waiting}
        self._looked = {uid: at for uid, at in self._looked.items() if uid in waiting}
        due = [uid for uid, since in self._since.items() if now - since >= PATIENCE_SECONDS]
        for uid in sorted(due, key=lambda uid: self._looked.get(uid, 0.0))[:MOST_ANSWERS]:
            self._looked[uid] = now
            if not await self._serve(waiting[uid], now - self._since[uid]):
                self._again = now + RETRY_SECONDS
                return

    async def _serve(self, request: RawObject, waited: float) -> bool:
        """Answer a request, or wait for missing slices; False if the answer was refused."""
        answer = await self._off_loop(partial(answer_to, parse_pool_request(request), self._state.snapshot))
        if answer.incomplete and waited < INCOMPLETE_SECONDS:
            return True
        status = answer.status | {"conditions": [_complete(answer, self._now())]}
        try:
            await write_pool_status(self._api, request, status)
        except (ApiError, OutcomeUnknownError) as error:
            logger.warning("pool status request not answered", request=request["metadata"]["name"], error=str(error))
            return False
        return True


def _complete(answer: PoolAnswer, now: datetime) -> RawObject:
    of_them = f" ({answer.invalid} incomplete)" if answer.invalid else ""
    return {
        "type": "Complete",
        "status": "True",
        "lastTransitionTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": "CalculationComplete",
        "message": f"Calculated status for {len(answer.status.get('pools', ()))} pools{of_them}",
    }
