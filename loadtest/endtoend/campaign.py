"""All runs of a plan, one after the other: one that fails takes nothing from the others."""

import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import httpx

from extender.kube.api import ApiError, OutcomeUnknownError
from loadtest.endtoend.bench import ClearError
from loadtest.endtoend.checker import AuditError
from loadtest.endtoend.plan import Plan, Site, Turn
from loadtest.endtoend.results import Mood, Run
from tests.kit.waiting import WaitError

_FAILURES: Final = (
    ApiError,
    AuditError,
    ClearError,
    ExceptionGroup,
    OSError,
    OutcomeUnknownError,
    WaitError,
    httpx.HTTPError,
    subprocess.SubprocessError,
)
"""What may go wrong with a run, and concerns that run only. Of a group, whatever has happened."""

Told = Callable[[int], object]
"""Is told how many pods have a node by now."""

Place = Callable[[Turn, Mood, Told], Awaitable[Run]]
"""Takes one turn; it is told how the machine was before."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """The runs of a plan.

    Attributes:
        opened: a place of that kind, for as long as it is needed.
        mood: of the machine, at a time that is now.
        watched: is told which turn begins.
        done: is told each run at its end.
    """

    opened: Callable[[Site], AbstractAsyncContextManager[Place]]
    mood: Callable[[datetime], Mood]
    now: Callable[[], datetime]
    watched: Callable[[Site, Turn], Told]
    done: Callable[[Run], object]

    async def run(self, plan: Plan) -> None:
        """Do all of them."""
        for site, turns in plan.items():
            waiting = deque(turns)
            while waiting:
                await self._take_turns(site, waiting)

    async def _take_turns(self, site: Site, waiting: deque[Turn]) -> None:
        """On one control plane, until none waits or one has failed: nobody knows what that has left behind."""
        before = self.mood(self.now())
        try:
            async with self.opened(site) as place:
                while waiting:
                    before = self.mood(self.now())
                    run = await place(waiting[0], before, self.watched(site, waiting[0]))
                    waiting.popleft()
                    self.done(run)
        except _FAILURES as error:
            if not waiting:
                raise
            self.done(_failed(site, waiting.popleft(), before, error))


def _failed(site: Site, turn: Turn, before: Mood, error: Exception) -> Run:
    return Run(
        workload=turn.name,
        nodes=site.nodes,
        pods=turn.pods,
        subject=turn.subject,
        repetition=turn.repetition,
        before=before,
        findings=tuple(f"given up: {type(each).__name__}: {each}" for each in _causes(error)),
    )


def _causes(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error
