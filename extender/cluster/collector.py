"""Python's garbage collector, out of the way while lists are read."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector; not to be held across an await.

    Next to nothing of a list is garbage, and none of that is in cycles, but the collector would look through all that
    there is again and again while it grows: half of the time that a list takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
