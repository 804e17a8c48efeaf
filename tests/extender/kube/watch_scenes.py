"""Signals of a watch as text, and transports of shapes that the fake server does not make."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager

import orjson

from extender.kube.api import Event, key_of
from extender.kube.connection.transport import HttpReply, HttpRequest, TransportError
from extender.kube.plain_pods import PlainPod
from extender.kube.resources import CLAIMS, Resource
from extender.kube.watch import Bookmark, Change, ListedObject, ListEnd, WatchSource
from tests.extender.kube.live_scenes import make_claim
from tests.kit import virtualtime
from tests.kit.servers.transport import FakeApi, FakeStream


async def take(source: WatchSource, resource: Resource, since: int | None, count: int = 1000) -> list[str]:
    """What a connection says, until it ends or there are enough signals; the items of a list are told with its end."""
    found: list[str] = []
    items: list[str] = []
    async with aclosing(source.signals(resource, since)) as signals:
        async for signal in signals:
            if isinstance(signal, ListedObject):
                item = signal.object
                items.append(f"({item.key.name})" if isinstance(item, PlainPod) else key_of(item).name)
                continue
            found.append(told(signal, items))
            if len(found) == count:
                break
    return found


def told(signal: ListEnd | Bookmark | Change, items: list[str]) -> str:
    match signal:
        case ListEnd(at):
            return f"list {','.join(sorted(items))} @{at}"
        case PlainPod():
            return f"({signal.key.name}) @{signal.revision}"
        case Bookmark(at):
            return f"bookmark @{at}"
        case Event():
            return f"{signal.type.value} {key_of(signal.object).name} @{signal.object['metadata']['resourceVersion']}"


def event_line(kind: str, name: str, revision: int) -> bytes:
    obj = {"metadata": {"name": name, "resourceVersion": str(revision)}}
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def three_claims(*, streams_lists: bool = True) -> FakeApi:
    fake = FakeApi(streams_lists=streams_lists)
    for name in "abc":
        fake.put(CLAIMS, make_claim(name))
    return fake


# --- transports for the shapes that the fake server does not make -------------------------------------------


class Scripted:
    """Answers every watch with the same chunks, and then ends it.

    Attributes:
        sent: how many chunks were taken.
    """

    def __init__(self, chunks: Iterable[bytes], *, status: int = 200) -> None:
        self._chunks = chunks
        self._status = status
        self.sent = 0

    async def call(self, request: HttpRequest) -> HttpReply:
        raise TransportError(f"{request} is no watch")

    @asynccontextmanager
    async def stream(self, _: HttpRequest) -> AsyncIterator[FakeStream]:
        async def body() -> AsyncIterator[bytes]:
            for chunk in self._chunks:
                self.sent += 1
                yield chunk

        yield FakeStream(self._status, 0.0, body())


class Trickle:
    """Answers every watch with the same chunk again and again, and everything else like another server.

    Attributes:
        over: that other server.
    """

    def __init__(self, chunk: bytes, *, seconds: float) -> None:
        self._chunk = chunk
        self._seconds = seconds
        self.over = FakeApi()

    async def call(self, request: HttpRequest) -> HttpReply:
        return await self.over.call(request)

    @asynccontextmanager
    async def stream(self, _: HttpRequest) -> AsyncIterator[FakeStream]:
        async def body() -> AsyncIterator[bytes]:
            while True:
                yield self._chunk
                await virtualtime.elapse(self._seconds)

        yield FakeStream(200, 0.0, body())
