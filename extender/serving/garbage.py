"""Python's garbage collector, kept from examining long-lived objects again and again."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN_ALL = 3600.0


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the context, nothing is collected; what was made in it is not examined later either.

    For work that makes a million objects and leaves no garbage in cycles: Python would examine them again and again
    while it lasts.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def sparing_survivors(clock: Callable[[], float], *, every: float = _SECONDS_BETWEEN_ALL) -> Iterator[None]:
    """Within the context, a full collection examines only objects that are newer than the last full collection.

    The cache of a big cluster has a million objects, and almost none of them are in cycles. To examine them all stops
    every thread for a second. Python would do so each time that a quarter of the objects is new, and most of the time
    while the cache grows. Objects that survive a full collection are no garbage then. Few of them become garbage in a
    cycle later, and those wait for a collection of all objects.

    Args:
        clock: seconds.
        every: seconds after which the next full collection examines all objects.
    """
    last = clock()

    def called(phase: str, info: dict[str, int]) -> None:
        nonlocal last
        if info["generation"] < 2:
            return
        if phase == "stop":
            gc.freeze()
        elif clock() - last >= every:
            gc.unfreeze()
            last = clock()

    gc.callbacks.append(called)
    try:
        yield
    finally:
        gc.callbacks.remove(called)
        gc.unfreeze()
