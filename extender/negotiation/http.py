"""Controllers behind HTTP: each question is a POST, on connections that are kept."""

import asyncio
from http import HTTPStatus
from typing import Final

import aiohttp
import orjson

from allocator import printable
from extender.config.controllers import ControllerSettings
from extender.negotiation.controller import ControllerAwayError, ControllerError
from extender.negotiation.credentials import Credentials
from extender.negotiation.protocol import (
    UNSUITABLE_NODES,
    Answer,
    ProtocolError,
    Question,
    answer_of,
    question_to_json,
)

_CONNECT_SECONDS: Final = 1.0
_MOST_BYTES: Final = 4 * 1024 * 1024
"""The longest answer. It is read on the event loop."""
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
        self._credentials = Credentials(settings)
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
        url, tls = f"{self._settings.url}/{question.kind}", self._credentials.tls()
        headers = {"Content-Type": "application/json", **self._credentials.authorization()}
        # A connection is used again only with the context that it was made with. The token goes nowhere else.
        asking = self._opened().post(url, data=body, headers=headers, ssl=tls, allow_redirects=False)
        async with asking as response:
            found = await _read(response)
            if response.status != HTTPStatus.OK:
                text = printable(found[:_LONGEST_TEXT].decode(errors="replace").strip())
                error = ControllerAwayError if response.status in _AWAY else ControllerError
                raise error(f"HTTP {response.status}: {text}" if text else f"HTTP {response.status}")
            return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    found = await response.content.read(_MOST_BYTES + 1)
    while not response.content.at_eof() and len(found) <= _MOST_BYTES:
        found += await response.content.read(_MOST_BYTES)
    if len(found) > _MOST_BYTES:
        raise ControllerError(f"wrong answer: it has more than {_MOST_BYTES} bytes")
    return found
