"""Pauses between the starts of requests, over all connections of a listener."""

import asyncio
from collections import deque
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Pacer:
    """Starts requests one after the other, with a pause in between. A request whose client has gone never starts."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._waiting: deque[tuple[RequestResponseCycle, Callable[[], None]]] = deque()
        self._is_pausing = False

    def begin(self, cycle: RequestResponseCycle, start: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call ``start`` as soon as the pause after the request before is over."""
        self._waiting.append((cycle, start))
        if not self._is_pausing:
            self._next(loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_pausing = False
        while self._waiting and not self._is_pausing:
            cycle, start = self._waiting.popleft()
            if not cycle.disconnected:
                start()
                self._is_pausing = True
                loop.call_later(self._pause, self._next, loop)
