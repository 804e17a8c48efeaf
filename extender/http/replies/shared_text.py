"""A text that many clients ask for, rendered once for all of them."""

import asyncio
from collections.abc import Awaitable, Callable


class Shared:
    """A text that is rendered once for all clients that ask before the rendering begins.

    Args:
        clock: seconds, from any point.
        pause: after a rendering, in times of its duration.
    """

    def __init__(self, render: Callable[[], Awaitable[bytes]], clock: Callable[[], float], pause: float) -> None:
        self._render = render
        self._clock = clock
        self._pause = pause
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._not_before = 0.0

    async def latest(self) -> bytes:
        """A rendering that began after the request. A client that gives up does not cancel it for others."""
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn())
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> bytes:
        async with self._lock:
            await asyncio.sleep(max(0.0, self._not_before - self._clock()))
            self._next = None
            started = self._clock()
            try:
                return await self._render()
            finally:
                self._not_before = self._clock() + self._pause * (self._clock() - started)
