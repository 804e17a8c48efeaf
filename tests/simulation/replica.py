"""A replica of the service: its own code from the watch to the verbs, as a process that can be killed."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from extender.answers.observe.device_history import HistoryKeeper
from extender.answers.observe.device_states import StatesKeeper
from extender.answers.observe.pool_sizes import SizesKeeper
from extender.answers.observe.problems import ProblemsKeeper
from extender.cluster.live import LiveCluster
from extender.config.settings import Settings
from extender.faces.assembly import Extender, Surroundings, make_extender, make_solver
from extender.framework.wire import decode_bind, decode_filter, decode_preempt
from extender.kube.discovery import discover
from extender.kube.remote import RemoteApi
from extender.plugins.negotiation.protocol import Controller
from extender.plugins.requeue.unserved import Unserved
from extender.plugins.second_opinion.task import SecondOpinions
from extender.tools.verb_priority import VerbPriority
from tests.corpus.chance import clocks
from tests.corpus.stage import replica_state
from tests.kit import virtualtime
from tests.kit.clusters import NOW
from tests.simulation.chance import Chance
from tests.simulation.link import Link
from tests.simulation.owned import Process, owned_by

_T = TypeVar("_T")

_REPORTING_TASKS: Final = (Unserved, SecondOpinions, HistoryKeeper, StatesKeeper, SizesKeeper, ProblemsKeeper)
"""Events with explanations, second opinions, and what tables and problems are made of."""

_LONGEST_SEARCH: Final = 0.05
"""Seconds that work in a thread takes at most here, by the clock of the world."""


def _go_on(_seconds: float) -> None:
    """No thread works beside another one here: an explanation that lets verbs go first does not wait for them."""


def leave_out_reports(extender: Extender) -> None:
    """Take from the background tasks those that only tell people something."""
    tasks = extender.service.background.tasks
    tasks[:] = [each for each in tasks if not isinstance(each, _REPORTING_TASKS)]


class AwayError(Exception):
    """The replica does not answer: it is not there, or it has ended meanwhile."""


class Replica:
    """One of the processes of the service; it can start, end and start again.

    Args:
        name: of the replica.
        link: makes its way to the API server, each time that it starts.
        settings: of the service.
        controllers: of negotiated claims, by name.
        chance: draws how long work takes.
        skew: seconds by which its clock is ahead.
        reports: whether it does what only tells people something, and what nothing else depends on.
    """

    def __init__(
        self,
        name: str,
        link: Callable[[str], Link],
        settings: Settings,
        controllers: Mapping[str, Controller],
        chance: Chance,
        skew: float,
        *,
        reports: bool,
    ) -> None:
        self.name = name
        self._make_link = link
        self._settings = settings
        self._controllers = controllers
        self._chance = chance
        self._skew = skew
        self._reports = reports
        self._process: Process | None = None
        self.link: Link | None = None
        self.extender: Extender | None = None

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self._process is not None

    @property
    def is_ready(self) -> bool:
        """Whether calls are sent to it: its readiness probe succeeds."""
        return self.extender is not None and not self.extender.service.not_ready

    async def get_ready(self) -> None:
        """Wait until calls may be sent to it."""
        while not self.is_ready:
            await virtualtime.elapse(0.1)

    def start(self) -> None:
        """Begin the process, with nothing in its memory."""
        self._process = Process()
        self.link = self._make_link(self.name)
        with owned_by(self._process):
            asyncio.create_task(self._run(self.link))  # noqa: RUF006 - the process holds it

    async def kill(self) -> None:
        """End the process at whatever it waits for. Requests that are on their way arrive."""
        process, self._process = self._process, None
        if process is not None and self.link is not None:
            self.link.is_dead = True
            self.extender = None
            await process.kill()

    async def stop(self) -> None:
        """End as on SIGTERM: no calls come any more, and what was begun comes to its end."""
        if self._process is not None and self.extender is not None:
            service = self.extender.service
            service.stop()
            with suppress(AwayError):  # it is killed while it ends
                await self._within(service.finish(5.0))
        await self.kill()

    async def filter(self, body: bytes) -> tuple[list[str], list[str]]:
        """The nodes that pass, and those that eviction cannot help. Raises AwayError and what the service raises."""
        args = decode_filter(body)
        found = await self._within(self._service.filter(args))
        return list(found.passed), list(found.unresolvable)

    async def prioritize(self, body: bytes) -> list[int]:
        """The scores of the nodes."""
        return list(await self._within(self._service.prioritize(decode_filter(body))))

    async def preempt(self, body: bytes) -> dict[str, list[str]]:
        """The uids of the victims, by node."""
        found = await self._within(self._service.preempt(decode_preempt(body)))
        return {node: list(victims.uids) for node, victims in found.items()}

    async def bind(self, body: bytes) -> None:
        """Bind a pod."""
        await self._within(self._service.bind(decode_bind(body)))

    @property
    def _service(self) -> Any:
        if self.extender is None:
            raise AwayError(f"{self.name} is away")
        return self.extender.service

    async def _within(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do work of the process. Raises AwayError: the process has ended meanwhile."""
        assert self._process is not None
        with owned_by(self._process):
            task = asyncio.create_task(work)
        await asyncio.wait([task])
        if task.cancelled():
            raise AwayError(f"{self.name} has ended")
        return task.result()

    async def _run(self, link: Link) -> None:
        """All that the process does by itself."""
        loop = asyncio.get_running_loop()
        served = await self._patiently(lambda: discover(link))
        with clocks(loop.time):
            api = RemoteApi(link, served, random=self._draw, off_loop=self._aside)
            live = LiveCluster(api, random=self._draw, off_loop=self._aside)
            state = replica_state(self._settings)
            verbs = VerbPriority(loop.time, _go_on)
            around = Surroundings(live, self._controllers, now=self._now, verb_priority=verbs)
            solver = make_solver(self._settings, loop.time)
            extender = make_extender(api, state, solver, self._settings, around=around, off_loop=self._aside)
        if not self._reports:
            leave_out_reports(extender)
        asyncio.create_task(live.run(state))  # noqa: RUF006 - the process holds it
        self.extender = extender
        await extender.service.background.run()

    async def _patiently(self, read: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """As kubelet: the process is started again until the API server answers."""
        while True:
            try:
                return await read()
            except Exception:  # noqa: BLE001 - whatever it was, the process would end and start again
                await virtualtime.elapse(1.0)

    def _draw(self) -> float:
        return self._chance(self.name)

    def _now(self) -> datetime:
        return NOW + timedelta(seconds=asyncio.get_running_loop().time() + self._skew)

    async def _aside(self, work: Callable[[], _T]) -> _T:
        """An `extender.tools.offload.Offload`: the result comes when other things have happened."""
        found = work()
        await virtualtime.elapse(self._chance.between(f"{self.name} works", 0.0, _LONGEST_SEARCH))
        return found
