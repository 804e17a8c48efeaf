"""The hostile tenant's controllers: they call all nodes suitable, one of them late, and refuse each allocation."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import orjson

from extender.kube.api import RawObject
from extender.plugins.negotiation.protocol import ALLOCATE, UNSUITABLE_NODES
from tests.kit.servers.canned import answer, read_request
from tests.kit.waiting import pause

SLOW_SECONDS: Final = 1.9
"""Just in time: the time limit for a question about nodes is 2 s by default."""


SLOW: Final = "slow.example.com"
"""Answers in time, but late."""

REFUSING: Final = "refusing.example.com"
"""Answers at once."""


@dataclass(slots=True)
class Controllers:
    """Both controllers on one port; the path of a question says whom it is for.

    Attributes:
        asked: how many questions came, by controller.
    """

    port: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await read_request(reader)
                _, name, kind = request.start.split()[1].split("/")
                self.asked[name] += 1
                if name == SLOW:
                    await pause(SLOW_SECONDS)
                writer.write(answer(200, orjson.dumps(_answer(kind, request.body)), Content_Type="application/json"))
        writer.close()

    def settings(self) -> list[RawObject]:
        """The controllers as the settings of an extender name them."""
        return [{"name": each, "url": f"http://127.0.0.1:{self.port}/{each}"} for each in (SLOW, REFUSING)]

    def cut(self) -> None:
        """Cut all connections."""
        for each in self._writers:
            each.transport.abort()


def _answer(kind: str, question: bytes) -> RawObject:
    if kind == ALLOCATE:
        return {"refused": "not today"}
    entry: RawObject = {"unsuitableNodes": {}} if kind == UNSUITABLE_NODES else {}
    return {"claims": [{"uid": each["uid"], **entry} for each in orjson.loads(question)["claims"]]}


@asynccontextmanager
async def controllers() -> AsyncIterator[Controllers]:
    """The controllers, on a port of their own."""
    found = Controllers()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found
        found.cut()
