"""Work that leaves the event loop, so that health checks and other calls are answered meanwhile."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import anyio.to_thread

_T = TypeVar("_T")


class Offload(Protocol):
    """A way to have work done off the loop."""

    async def __call__(self, work: Callable[[], _T]) -> _T:
        """What the work returns or raises; who is cancelled no longer waits for it."""
        ...


async def in_thread(work: Callable[[], _T]) -> _T:
    """In a thread of anyio's."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
