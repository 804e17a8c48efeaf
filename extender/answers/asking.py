"""Answers that take seconds: one at a time, callers in fair turns, and no work for a caller who is gone."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from extender.framework.decisions.solver import Solver
from extender.tools.fairness import Place, Places
from extender.tools.faults import RefusedError

_T = TypeVar("_T")

ANSWER_SECONDS: Final = 10.0
"""Of work for one answer; to wait for other questions does not count."""


class Asking:
    """Gives the answers to one sort of question.

    Args:
        too_long: why an answer is refused that takes longer than `ANSWER_SECONDS`.
    """

    def __init__(self, too_long: str) -> None:
        self._too_long = too_long
        self._places = Places(1, 1, time.monotonic)

    async def answer(self, caller: str, work: Callable[[threading.Event], Coroutine[Any, Any, _T]]) -> _T:
        """The answer. A caller that is cancelled ends the work.

        Args:
            caller: whose place the work takes.
            work: gives the answer. What it is given is set once the caller is gone.

        Raises:
            RefusedError: the answer takes too long; or as the work raises it.
            CrowdedError: others wait.
        """
        place = await self._places.take(caller)
        gone = threading.Event()
        try:
            task = asyncio.create_task(work(gone))
            task.add_done_callback(partial(_ended, place))
            return await asyncio.shield(task)
        except TimeoutError:
            raise RefusedError(self._too_long) from None
        finally:
            gone.set()


def _ended(place: Place, work: asyncio.Task[object]) -> None:
    """The place is left with the work: a caller that goes leaves a thread, until it looks at the clock."""
    place.leave()
    if not work.cancelled():
        work.exception()  # the caller may be gone


def patient(solver: Solver, pause: Callable[[], None], gone: threading.Event) -> Solver:
    """The solver for one answer, in its thread: verbs go first, and for a caller who is gone, all time is up.

    Args:
        solver: of the service.
        pause: waits while verbs run.
        gone: as `Asking.answer` gives it.
    """

    def clock() -> float:
        pause()
        return math.inf if gone.is_set() else solver.clock()

    return replace(solver.still(), clock=clock, until=solver.clock() + ANSWER_SECONDS)
