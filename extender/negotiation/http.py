"""Controllers behind HTTP: each question is a POST, on connections that are kept."""

import asyncio
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import orjson

from allocator import printable
from extender.config.controllers import ControllerSettings
from extender.config.text_file import UnreadableError, read_bytes
from extender.negotiation.controller import ControllerAwayError, ControllerError
from extender.negotiation.protocol import (
    UNSUITABLE_NODES,
    Answer,
    ProtocolError,
    Question,
    answer_of,
    question_to_json,
)

_CONNECT_SECONDS: Final = 1.0
_MOST_BYTES: Final = 16 * 1024 * 1024
_AWAY: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses that are about the controller. Others may be about the question."""

_LONGEST_TEXT: Final = 200
"""Characters of an error's text that a message quotes."""


class HttpController:
    """A controller at a URL; implements `extender.negotiation.controller.Controller`."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, question: Question) -> Answer:
        """The answer to a question, asked once."""
        settings = self._settings
        seconds = settings.timeout_seconds if question.kind == UNSUITABLE_NODES else settings.allocation_seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._post(question)
        except TimeoutError as error:
            raise ControllerAwayError(f"no answer within {seconds:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise ControllerAwayError(f"no connection to {settings.url}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ControllerAwayError(f"the connection was lost: {type(error).__name__}") from error
        try:
            return answer_of(question, orjson.loads(body))
        except orjson.JSONDecodeError as error:
            raise ControllerError("wrong answer: it is not JSON") from error
        except ProtocolError as error:
            raise ControllerError(f"wrong answer: {error}") from error

    async def close(self) -> None:
        """Close the connections. A later question opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, question: Question) -> bytes:
        body = orjson.dumps(question_to_json(question))
        headers = {"Content-Type": "application/json", **self._authorization()}
        async with self._opened().post(f"{self._settings.url}/{question.kind}", data=body, headers=headers) as response:
            found = await _read(response)
            if response.status != HTTPStatus.OK:
                text = printable(found[:_LONGEST_TEXT].decode(errors="replace").strip())
                error = ControllerAwayError if response.status in _AWAY else ControllerError
                raise error(f"HTTP {response.status}: {text}" if text else f"HTTP {response.status}")
            return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            connector = aiohttp.TCPConnector(ssl=self._tls())
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return self._session

    def _tls(self) -> ssl.SSLContext | bool:
        settings = self._settings
        if not settings.url.startswith("https:"):
            return True
        try:
            context = ssl.create_default_context(cafile=settings.ca or None)
            if settings.certificate:
                context.load_cert_chain(settings.certificate, settings.key)
        except OSError as error:  # an SSLError is one, too
            raise ControllerAwayError(f"its certificates cannot be used: {error}") from error
        return context

    def _authorization(self) -> Mapping[str, str]:
        """The token, read for each question: it is replaced from time to time."""
        path = self._settings.token
        if not path:
            return {}
        try:
            token = read_bytes(Path(path)).decode("ascii", errors="replace").strip()
        except UnreadableError as error:
            raise ControllerAwayError(f"{path}: {error}") from error
        return {"Authorization": f"Bearer {token}"}


async def _read(response: aiohttp.ClientResponse) -> bytes:
    found = await response.content.read(_MOST_BYTES + 1)
    while not response.content.at_eof() and len(found) <= _MOST_BYTES:
        found += await response.content.read(_MOST_BYTES)
    if len(found) > _MOST_BYTES:
        raise ControllerError(f"wrong answer: it has more than {_MOST_BYTES} bytes")
    return found
