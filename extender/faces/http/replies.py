"""Replies on HTTP: the form that a client prefers, texts that many clients share, and how a reply is sent."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Format(Enum):
    """How an answer is written."""

    TEXT = "text"
    JSON = "json"


_TYPES: Final = {Format.TEXT: "text/plain", Format.JSON: "application/json"}


def format_for(request: Request) -> Format:
    """The format that the client prefers; text if it names neither.

    Raises:
        HTTPException: 406, if the client takes neither.
    """
    ranges = _ranges(request)
    quality = {form: _quality(name, ranges) for form, name in _TYPES.items()}
    if max(quality.values()) > _REFUSED:
        return max(Format, key=lambda form: quality[form])
    # A client that only names other types can show text, unless it refuses text.
    if quality[Format.TEXT] == _UNNAMED:
        return Format.TEXT
    raise HTTPException(HTTPStatus.NOT_ACCEPTABLE, f"there is {' and '.join(_TYPES.values())}")


def prefers_page(request: Request) -> bool:
    """Whether the client names HTML, as browsers do, and does not prefer JSON to HTML."""
    ranges = _ranges(request)
    weight, precision, _ = _quality("text/html", ranges)
    return precision == _NAMED and weight > 0 and weight >= _quality(_TYPES[Format.JSON], ranges)[0]


def _ranges(request: Request) -> list[tuple[str, float]]:
    return [_range(each) for each in request.headers.get("accept", "").split(",")]


def _range(text: str) -> tuple[str, float]:
    """A media range and its weight. The weight is 1 if there is none, or none that can be read."""
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    given = next((value for key, _, value in (each.partition("=") for each in parameters) if key.strip() == "q"), "1")
    try:
        return name, min(1.0, max(0.0, float(given)))
    except ValueError:
        return name, 1.0


_NAMED: Final = 2
_UNNAMED: Final = (-1.0, 0, 0)
_REFUSED: Final = (0.0, _NAMED, 0)


def _quality(name: str, ranges: list[tuple[str, float]]) -> tuple[float, int, int]:
    """A type's weight by the most specific range for it; how specific that range is, and how early it comes."""
    for precision, wanted in ((_NAMED, name), (1, f"{name.partition('/')[0]}/*"), (0, "*/*")):
        for index, (each, weight) in enumerate(ranges):
            if each == wanted:
                return weight, precision, -index
    return _UNNAMED


class Shared:
    """A text that is rendered once for all clients that ask before the rendering begins.

    Args:
        clock: seconds, from any point.
        pause: after a rendering, in times of its duration.
    """

    def __init__(self, render: Callable[[], Awaitable[bytes]], clock: Callable[[], float], pause: float) -> None:
        self._render = render
        self._clock = clock
        self._pause = pause
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._not_before = 0.0

    async def latest(self) -> bytes:
        """A rendering that began after the request. A client that gives up does not cancel it for others."""
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn())
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> bytes:
        async with self._lock:
            await asyncio.sleep(max(0.0, self._not_before - self._clock()))
            self._next = None
            started = self._clock()
            try:
                return await self._render()
            finally:
                self._not_before = self._clock() + self._pause * (self._clock() - started)


class OnePacketProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a transport that joins writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Join the writes of this connection."""
        super().connection_made(_Collecting(transport, self.loop))


class _Collecting(asyncio.Transport):
    """A transport that writes once per iteration of the event loop, and before it closes."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._transport.is_closing():  # the connection was ended while the answer was made
            return
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._pending.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._pending))

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._flush()
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def _flush(self) -> None:
        if self._pending and not self._transport.is_closing():
            data = b"".join(self._pending)
            self._pending.clear()
            self._transport.write(data)
