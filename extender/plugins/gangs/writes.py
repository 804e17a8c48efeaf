"""Writes to the pods of a gang. What could not be written is logged: the next turn sees what is missing."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.writes.pods import Nominator
from extender.cluster.writes.writer import Writer
from extender.kube.api import OutcomeUnknownError, WriteRefusedError

logger = structlog.get_logger()

_MOST: Final = 32
"""At the same time, for one gang."""


@dataclass(frozen=True, slots=True)
class GangWrites:
    """Writes what is kept for members, and wakes them.

    Attributes:
        nominator: writes what is kept.
        writer: wakes pods.
    """

    nominator: Nominator
    writer: Writer

    async def keep(self, pod: Pod, keeping: Keeping, refused: Callable[[], str]) -> Pod | None:
        """Keep devices for a pod.

        Args:
            pod: a pending member.
            keeping: what is kept for it.
            refused: why it is not to be written, asked before each try; empty: it is.

        Returns:
            The pod in the version that the write has replaced; None if nothing was written.
        """
        try:
            return await self.nominator.keep(pod, keeping, in_gang=True, refused=refused)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("devices not kept for pod", pod=str(pod), group=str(pod.gang_key), error=str(error))
            return None

    async def end(
        self, pods: Collection[Pod], why: Callable[[Pod], str], is_void: Callable[[], bool] = lambda: False
    ) -> None:
        """End what is kept for pods.

        Args:
            pods: the pods.
            why: for their conditions.
            is_void: whether nothing more is to be ended, asked before each try.
        """
        await at_most([partial(self._end, pod, why(pod), is_void) for pod in pods])

    async def _end(self, pod: Pod, why: str, is_void: Callable[[], bool]) -> None:
        try:
            await self.nominator.end(pod, why, is_void)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("nomination not ended", pod=str(pod), error=str(error))

    async def nominate_again(self, pod: Pod) -> bool:
        """Nominate a pod to its kept node again; False if its scheduler still has the nomination."""
        try:
            return await self.nominator.nominate_again(pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("pod not nominated again", pod=str(pod), error=str(error))
            return True

    async def wake(self, pod: Pod) -> None:
        """Have the scheduler of a pod try it again."""
        try:
            await self.writer.wake(pod)
        except (WriteRefusedError, OutcomeUnknownError) as error:
            logger.info("pod not woken", pod=str(pod), error=str(error))


async def at_most(writes: Sequence[Callable[[], Coroutine[None, None, None]]]) -> None:
    """Do some writes, a limited number of them at the same time."""
    limit = asyncio.Semaphore(_MOST)

    async def limited(write: Callable[[], Coroutine[None, None, None]]) -> None:
        async with limit:
            await write()

    await asyncio.gather(*map(limited, writes))
