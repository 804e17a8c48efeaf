"""Python's garbage collector, kept from looking again and again through what is there to stay."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN_ALL = 3600.0


@contextmanager
def sparing_survivors(clock: Callable[[], float], *, every: float = _SECONDS_BETWEEN_ALL) -> Iterator[None]:
    """While this lasts, a full collection looks only at what has come since the one before.

    A cache of a big cluster is a million objects, next to none of them in cycles. To look through them all stops every
    thread for a second, and Python does so again each time that a quarter of them has been replaced; while the cache
    grows, that is most of the time. What a full collection has left is no garbage at that time. Cycles that become
    garbage later are few, and wait for a collection of everything.

    Args:
        clock: seconds.
        every: seconds after which the next full collection looks at everything again.
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
