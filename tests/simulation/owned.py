"""Which simulated process a task of the loop belongs to, so that a process can end at any of its awaits."""

import asyncio
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from tests.kit.virtualtime import VirtualTimeLoop

_T = TypeVar("_T")

_PATIENCE: Final = 0.001
"""Seconds until a task that has gone on in spite of its end is ended again."""


class Process:
    """A simulated process: the tasks that it has begun."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def add(self, task: asyncio.Task[Any]) -> None:
        """A task of the process has begun."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def kill(self) -> None:
        """End each task where it is. What tasks begin while they end, ends as well."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_PATIENCE)


_OWNER: Final = ContextVar[Process | None]("process", default=None)


@contextmanager
def owned_by(process: Process | None) -> Iterator[None]:
    """Within the context, tasks that begin belong to a process."""
    token = _OWNER.set(process)
    try:
        yield
    finally:
        _OWNER.reset(token)


def unowned() -> "Any":
    """Within the context, tasks that begin belong to the world."""
    return owned_by(None)


class WorldLoop(VirtualTimeLoop):
    """A loop in virtual time that knows whose tasks are whose."""

    def __init__(self) -> None:
        super().__init__()
        self.set_task_factory(_made)


def _made(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, _T] | Generator[Any, None, _T], **more: Any
) -> "asyncio.Task[_T]":
    task: asyncio.Task[_T] = asyncio.Task(coro, loop=loop, **more)
    if (owner := _OWNER.get()) is not None:
        owner.add(task)
    return task
