"""An event loop whose time does not pass but jumps: to the next timer, as soon as there is nothing else to do."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class StuckError(Exception):
    """Everything waits, and nothing is ever going to happen."""


class _JumpingSelector(selectors.SelectSelector):
    """Never waits; the time for which it should have waited has then passed."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StuckError
            self._jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 1000 s; has no business with sockets or threads."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_JumpingSelector(self._pass))

    def time(self) -> float:
        return self._now

    def _pass(self, seconds: float) -> None:
        self._now += seconds


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run something to its end in virtual time; what it leaves running is cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()
