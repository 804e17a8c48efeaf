"""An event loop in which time moves only when everybody waits, and then at once to the next timer."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting, it lets the time pass. It looks at no file: a system call costs more than most events."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and no timer is set")
        self.now += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For what runs in one thread, by `extender.tools.offload.at_once`, and talks to nobody outside."""

    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end, in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


async def elapse(seconds: float) -> None:
    """Let virtual time pass, for everything on the loop.

    Raises:
        AssertionError: the loop has real time; a test would sleep.
    """
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "time is real here"
    await asyncio.sleep(seconds)


def in_virtual_time(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """A test that runs on a loop of its own, in no time."""

    @wraps(test)
    def in_no_time(*args: _P.args, **kwargs: _P.kwargs) -> None:
        run(test(*args, **kwargs))

    return in_no_time


class StillClock:
    """A clock that stands still until a test sets it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
