"""Waiting for something outside of the test: asked again and again, and given up after a stated time."""

import time
from collections.abc import Callable

INTERVAL = 0.05
"""Seconds between two questions."""


class WaitError(AssertionError):
    """What was waited for did not come."""


def wait_until(probe: Callable[[], bool], what: str, *, within: float) -> float:
    """Ask ``probe`` until it says yes.

    Args:
        probe: may raise `WaitError` to give up at once.
        what: named in the error.
        within: seconds.

    Returns:
        The seconds that it took.

    Raises:
        WaitError: not within that time.
    """
    started = time.monotonic()
    while not probe():
        if time.monotonic() - started > within:
            raise WaitError(f"{what}: not within {within:g} s")
        time.sleep(INTERVAL)
    return time.monotonic() - started
