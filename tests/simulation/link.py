"""The network between a client and the API server: delays, and the faults of some spans of time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import orjson

from extender.kube.connection.transport import HttpReply, HttpRequest, NotSentError, TransportError
from tests.kit import virtualtime
from tests.simulation.chance import Chance
from tests.simulation.owned import unowned
from tests.simulation.server import SimulatedServer

_SHORTEST: Final = 0.0005
_LONGEST: Final = 0.02
"""Seconds that a request or an answer takes, without a fault."""

SLOW: Final = 6.0
"""Seconds that most requests take at most while the network is slow."""

_STUCK: Final = 20.0
"""Seconds that a few requests take at most then: a scheduler has given up long before."""

PARTITION, ERRORS, LOST, SLOWNESS, LATE_WATCH, CUT_WATCH = (
    "partition",
    "errors",
    "lost answers",
    "slowness",
    "late watch",
    "cut watch",
)
NETWORK_FAULTS: Final = (PARTITION, ERRORS, LOST, SLOWNESS, LATE_WATCH, CUT_WATCH)

ADMISSION: Final = "slow admission"
"""A webhook takes seconds for each patch of a pod. What a client is told by its watches comes in time."""

_ERRORS: Final = (
    (429, "TooManyRequests", "too many requests"),
    (500, "InternalError", "etcdserver: request timed out"),
    (503, "ServiceUnavailable", "apiserver not ready"),
    (409, "Conflict", "the object has been modified"),
)
_SHARE: Final = 0.3
"""Of the requests that a fault of a span of time befalls."""


@dataclass(slots=True)
class Answer:
    """An answer whose body comes bit by bit; implements `extender.kube.connection.transport.Stream`."""

    body: AsyncIterator[bytes]
    status: int = 200
    retry_after: float = 0.0

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        return self.body


@dataclass(slots=True)
class Link:
    """One client's way to the API server; implements `extender.kube.connection.transport.Transport`.

    Attributes:
        wrote: is told of each write that was done, before the client hears of it.
        faults: what goes wrong now.
        is_dead: the client's process has ended: it hears nothing any more.
    """

    server: SimulatedServer
    chance: Chance
    name: str
    wrote: Callable[[str, HttpRequest], None] = lambda _name, _request: None
    faults: set[str] = field(default_factory=set)
    is_dead: bool = False

    async def call(self, request: HttpRequest) -> HttpReply:
        """Send a request, and wait for its answer. What was sent arrives, even if the client ends meanwhile."""
        await self._begin()
        told = asyncio.get_running_loop().create_future()
        with unowned():
            work = asyncio.create_task(self._arrive(request, told))
        work.add_done_callback(partial(_note_mistake, told))
        reply: HttpReply = await told
        await self._alive()
        return reply

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Answer]:
        """Begin a watch."""
        await self._begin()
        await virtualtime.elapse(self._delay("watch"))
        yield Answer(self._lines(request))

    async def _begin(self) -> None:
        await self._alive()
        if PARTITION in self.faults:
            if self.chance.happens(f"{self.name} is refused", 0.5):
                raise NotSentError("connection refused")
            await virtualtime.elapse(SLOW)
            raise TransportError("no route to host")

    async def _alive(self) -> None:
        if self.is_dead:
            await asyncio.Event().wait()

    async def _arrive(self, request: HttpRequest, told: "asyncio.Future[HttpReply]") -> None:
        """The request reaches the server, and its answer the client."""
        what = f"{self.name} {request.method}"
        await virtualtime.elapse(self._delay(what))
        is_write = request.method != "GET"
        if ADMISSION in self.faults and request.method == "PATCH" and "/pods/" in request.path:
            await virtualtime.elapse(self.chance.between(f"{what} is admitted", 1.0, 5.0))
        if ERRORS in self.faults and self.chance.happens(f"{what} fails", _SHARE):
            status, reason, message = self.chance.of(f"{what} error", _ERRORS if is_write else _ERRORS[:3])
            body = orjson.dumps({"kind": "Status", "code": status, "reason": reason, "message": message})
            if status == 500 and self.chance.happens(f"{what} is done all the same", 0.5):
                await self.server.answer(request)
            return _tell(told, HttpReply(status, body))
        reply = await self.server.answer(request)
        if is_write and reply.status < 300:
            self.wrote(self.name, request)
        if LOST in self.faults and self.chance.happens(f"{what} is lost", _SHARE):
            return _fail(told, TransportError("connection reset by peer"))
        await virtualtime.elapse(self._delay(what))
        return _tell(told, reply)

    async def _lines(self, request: HttpRequest) -> AsyncIterator[bytes]:
        async for line in self.server.watch(request):
            await virtualtime.elapse(self._delay("watch"))
            if LATE_WATCH in self.faults:
                await virtualtime.elapse(self.chance.between(f"{self.name} watch is late", 0.0, 2.0))
            await self._alive()
            if PARTITION in self.faults:
                await asyncio.Event().wait()  # nothing comes, and nobody says so
            if CUT_WATCH in self.faults and self.chance.happens(f"{self.name} watch is cut", _SHARE):
                yield line[: len(line) // 2]
                raise TransportError("connection reset by peer")
            yield line

    def _delay(self, what: str) -> float:
        delay = self.chance.between(what, _SHORTEST, _LONGEST)
        if SLOWNESS in self.faults and self.chance.happens(f"{what} is slow", _SHARE):
            is_stuck = self.chance.happens(f"{what} is stuck", 0.15)
            delay += self.chance.between(f"{what} takes", 0.1, _STUCK if is_stuck else SLOW)
        return delay


def _note_mistake(told: "asyncio.Future[HttpReply]", work: "asyncio.Task[None]") -> None:
    """A mistake in the simulation itself reaches whoever has asked, instead of leaving that without an answer."""
    if not work.cancelled() and (error := work.exception()) is not None and not told.done():
        told.set_exception(error)


def _tell(told: "asyncio.Future[HttpReply]", reply: HttpReply) -> None:
    if not told.done():
        told.set_result(reply)


def _fail(told: "asyncio.Future[HttpReply]", error: TransportError) -> None:
    if not told.done():
        told.set_exception(error)
