"""Extenders whose processes die at a chosen write, and what they leave on the API server."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

from extender.cluster.cluster_state import ClusterState
from extender.kube.resources import Resource
from extender.lab.api import MemoryApi
from tests.kit.binders import bind_error, binder_over
from tests.kit.servers.memory import Transport

_T = TypeVar("_T")


@dataclass(frozen=True)
class End:
    """When a process dies.

    Attributes:
        writes: the number of writes before the last one.
        done: the last write still reaches the API server.
    """

    writes: int
    done: bool


NEVER = End(10**9, done=True)


class Mortal(Transport):
    """An API server's client in a process that dies at a write: nothing that it does afterwards happens."""

    def __init__(self, api: MemoryApi, end: End) -> None:
        super().__init__(api)
        self._end = end
        self._writes = 0
        self.died = asyncio.Event()

    async def _call(self, name: str, resource: Resource, call: Callable[[], Awaitable[_T]]) -> _T:
        if self.died.is_set():
            await asyncio.Event().wait()
        if name in {"get", "list"}:
            return await super()._call(name, resource, call)
        is_last = self._writes == self._end.writes
        self._writes += 1
        if is_last and not self._end.done:
            self.died.set()
            await asyncio.Event().wait()
        try:
            return await super()._call(name, resource, call)
        finally:
            if is_last:
                self.died.set()
                await asyncio.Event().wait()


class Process:
    """An extender from its start, when it knows what the API server has, to its end."""

    def __init__(self, api: MemoryApi, end: End = NEVER) -> None:
        self.state = ClusterState()
        api.follow(self.state)
        self.transport = Mortal(api, end)
        self.binder = binder_over(self.transport, self.state)

    async def bind(self, name: str, on: str) -> str:
        """The error; empty for a success."""
        return await bind_error(self.binder, name, on)


async def killed(*tasks: asyncio.Task[str]) -> None:
    """Whatever the dead still do, or wait for, is over."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in {*rest, *tasks}:
        task.cancel()
    await asyncio.gather(*rest, *tasks, return_exceptions=True)


ENDS = st.builds(End, st.integers(0, 14), st.booleans())


async def live_and_die(api: MemoryApi, lives: list[tuple[End, list[tuple[str, str]]]]) -> None:
    """Processes side by side, each with its own pods, until the last is dead or has done its work."""
    processes = [(Process(api, end), binds) for end, binds in lives]

    async def work(process: Process, binds: list[tuple[str, str]]) -> str:
        for name, on in binds:
            await process.bind(name, on)
        return ""

    working = {asyncio.create_task(work(*each)) for each in processes}
    dying = {asyncio.create_task(process.transport.died.wait()) for process, _ in processes}
    await asyncio.wait(working, timeout=60)
    for task in dying:
        task.cancel()
    await killed(*working)
