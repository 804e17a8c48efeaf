"""Write shares: how many writes of one namespace may be on their way to the API server at the same time.

All writes share the connections to the API server. A write that a webhook is slow to admit keeps its connection.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MOST_WRITES: Final = 32
"""Of one namespace. A write takes milliseconds, so this is enough for thousands in a second."""

_NAMESPACES: Final = "/namespaces/"


class WriteShares:
    """Has the writes of a namespace wait for each other, if there are too many."""

    def __init__(self) -> None:
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, path: str) -> AsyncIterator[None]:
        """Within, a write has its share. ``path``: of the object, absolute. An object without a namespace is free."""
        namespace = path.partition(_NAMESPACES)[2].partition("/")[0]
        if not namespace:
            yield
            return
        limit = self._limits.setdefault(namespace, asyncio.Semaphore(MOST_WRITES))
        self._users[namespace] += 1
        try:
            async with limit:
                yield
        finally:
            self._users[namespace] -= 1
            if not self._users[namespace]:
                del self._users[namespace], self._limits[namespace]
