"""Write shares: how many writes of one namespace may be on their way to the API server at the same time.

All writes share the connections to the API server. A write that a webhook is slow to admit keeps its connection.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from extender.kube.connection.transport import HttpRequest
from extender.kube.errors import UnreachableError

MOST_WRITES: Final = 32
"""Of one namespace. A write takes milliseconds, so this is enough for thousands in a second."""

WAITING_SECONDS: Final = 30.0
"""The longest wait of a write. Those before it have an answer, or none, within 10 s each."""

_NAMESPACES: Final = "/namespaces/"


class WriteShares:
    """Has the writes of a namespace wait for each other, if there are too many."""

    def __init__(self) -> None:
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, request: HttpRequest) -> AsyncIterator[None]:
        """Within, a write has its share. One of an object without a namespace is free.

        Raises:
            UnreachableError: the other writes of the namespace have left it no share in time. It was not sent.
        """
        namespace = request.path.partition(_NAMESPACES)[2].partition("/")[0]
        if not namespace:
            yield
            return
        limit = self._limits.setdefault(namespace, asyncio.Semaphore(MOST_WRITES))
        self._users[namespace] += 1
        try:
            await _acquired(limit, request, namespace)
            try:
                yield
            finally:
                limit.release()
        finally:
            self._users[namespace] -= 1
            if not self._users[namespace]:
                del self._users[namespace], self._limits[namespace]


async def _acquired(limit: asyncio.Semaphore, request: HttpRequest, namespace: str) -> None:
    try:
        async with asyncio.timeout(WAITING_SECONDS):
            await limit.acquire()
    except TimeoutError as error:
        cause = f"not sent within {WAITING_SECONDS:g} s: other writes of namespace {namespace} are slow"
        raise UnreachableError(str(request), cause) from error
