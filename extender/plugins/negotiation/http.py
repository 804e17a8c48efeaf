"""Controllers behind HTTP: each question is a POST, on connections that are kept."""

import asyncio
import ssl
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from allocator.tools import printable
from extender.config.settings import ControllerSettings
from extender.kube.encoding import dumps, loads, loads_aside
from extender.plugins.negotiation.credentials import ControllerCredentials
from extender.plugins.negotiation.protocol import (
    UNSUITABLE_NODES,
    ControllerAwayError,
    ControllerError,
    NegotiatedAnswer,
    NegotiatedQuestion,
    ProtocolError,
    answer_of,
    question_to_json,
)
from extender.tools.intake import Budget, Room, Source, json_weight, marks_of
from extender.tools.offload import in_thread, waited_for

_CONNECT_SECONDS: Final = 1.0
_MOST_BYTES: Final = 4 * 1024 * 1024
"""The longest answer."""

_PIECE_BYTES: Final = 64 * 1024
_AWAY: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses that are about the controller. Others may be about the question."""

_HTTPS: Final = 443

_LONGEST_TEXT: Final = 200
"""Characters of an error's text that a message quotes."""


class HttpController:
    """A controller at a URL; implements `extender.plugins.negotiation.protocol.Controller`."""

    def __init__(self, settings: ControllerSettings, budget: Budget) -> None:
        self._settings = settings
        self._budget = budget
        self._credentials = ControllerCredentials(settings)
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        """The answer to a question, asked once."""
        settings = self._settings
        seconds = settings.timeout_seconds if question.kind == UNSUITABLE_NODES else settings.allocation_seconds
        with self._budget.room(Source.CONTROLLERS) as room:
            try:
                async with asyncio.timeout(seconds):
                    body = await self._reached(question, room)
            except TimeoutError as error:
                raise ControllerAwayError(f"no answer within {seconds:g} s") from error
            return await self._decoded(question, body)

    async def close(self) -> None:
        """Close the connections. A later question opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _reached(self, question: NegotiatedQuestion, room: Room) -> bytes:
        try:
            return await self._post(question, room)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            problem = self._credentials.refused(error) or self._credentials.refused(await self._alert())
            raise ControllerAwayError(problem or _in_words(error, self._settings)) from error

    async def _post(self, question: NegotiatedQuestion, room: Room) -> bytes:
        body = dumps(question_to_json(question))
        url, tls = f"{self._settings.url}/{question.kind}", self._credentials.tls()
        headers = {"Content-Type": "application/json", **self._credentials.authorization()}
        # A connection is used again only with the context that it was made with. The token goes nowhere else.
        asking = self._opened().post(url, data=body, headers=headers, ssl=tls, allow_redirects=False)
        async with asking as response:
            found = await self._read(response, room)
            if response.status != HTTPStatus.OK:
                text = printable(found[:_LONGEST_TEXT].decode(errors="replace").strip())
                error = ControllerAwayError if response.status in _AWAY else ControllerError
                raise error(f"HTTP {response.status}: {text}" if text else f"HTTP {response.status}")
            return found

    async def _read(self, response: aiohttp.ClientResponse, room: Room) -> bytes:
        """The body of an answer. What it takes when it is decoded is counted piece by piece, in turns with others."""
        pieces: list[bytes] = []
        size = values = 0
        async for piece in response.content.iter_chunked(_PIECE_BYTES):
            size += len(piece)
            if size > _MOST_BYTES:
                raise ControllerError(f"wrong answer: it has more than {_MOST_BYTES} bytes")
            if size > len(piece):
                await self._budget.pieces.turn(Source.CONTROLLERS.label)
            values += len(marks_of(piece))
            weight = json_weight(piece)
            if not room.grow(weight):
                if room.size + weight <= self._budget.share(Source.CONTROLLERS):
                    raise ControllerError("its answer was not read: other answers leave no memory for it")
                told = f"its answer has about {values} values in the first {size} bytes: there is no memory for them"
                raise ControllerError(told)
            pieces.append(piece)
        return b"".join(pieces)

    async def _decoded(self, question: NegotiatedQuestion, body: bytes) -> NegotiatedAnswer:
        try:
            if len(body) <= _PIECE_BYTES:
                return answer_of(question, await loads_aside(body, _in_thread))
            async with self._budget.decoding.turn(Source.CONTROLLERS.label):
                return await _in_thread(partial(_answered, question, body))
        except orjson.JSONDecodeError as error:
            raise ControllerError("wrong answer: it is not JSON") from error
        except ProtocolError as error:
            raise ControllerError(f"wrong answer: {error}") from error

    async def _alert(self) -> Exception | None:
        """What a server says that ends connections, if it does not accept our certificate.

        With TLS 1.3, it says so after the handshake. Who writes a question then often loses the alert.
        """
        url, tls = urlsplit(self._settings.url), self._credentials.tls()
        if url.hostname is None or not isinstance(tls, ssl.SSLContext):
            return None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(url.hostname, url.port or _HTTPS, ssl=tls)
                try:
                    await reader.read(1)
                finally:
                    writer.transport.abort()
        except OSError as error:  # an error of time or of TLS is one, too
            return error
        return None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self._session


def _in_words(error: Exception, settings: ControllerSettings) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection to {settings.url}"
    return f"the connection was lost: {type(error).__name__}"


_in_thread = waited_for(in_thread)
"""An answer takes its room until the thread that decodes it has ended."""


def _answered(question: NegotiatedQuestion, body: bytes) -> NegotiatedAnswer:
    return answer_of(question, loads(body))
