"""Controllers behind HTTP: each question is a POST, on connections that are kept.

Certificates and a token, by which a controller and the service know each other, are read again when their files change.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import orjson
import structlog

from allocator.tools import printable
from extender.config.settings import ControllerSettings
from extender.kube.certificates import Subject, TlsProblem, file_problem, tls_problem, trusting
from extender.kube.encoding import dumps, loads, loads_aside
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
from extender.tools.files import UnreadableError, bearer
from extender.tools.intake import Budget, Room, Source, json_weight, marks_of
from extender.tools.offload import in_thread, waited_for

logger = structlog.get_logger()

_Seen: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Of each file: time of its last change in nanoseconds, inode, bytes. None: there is no such file."""


class _FileError(Exception):
    """Files cannot be used; the text names them."""


class ControllerCredentials:
    """The files of one controller, as they are now.

    Args:
        settings: name the files.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._seen: _Seen = ()

    def tls(self) -> ssl.SSLContext | bool:
        """TLS with the certificates of the files; a new context if they have changed. True: there is no TLS.

        While changed files cannot be used, the former ones stay in use: programs write one file after the other.

        Raises:
            ControllerAwayError: the files cannot be used, and never could.
        """
        settings = self._settings
        if not settings.url.startswith("https:"):
            return True
        seen = tuple(_seen(each) for each in (settings.ca, settings.certificate, settings.key) if each)
        if self._context is not None and seen == self._seen:
            return self._context
        try:
            self._context = self._read()
        except _FileError as error:
            if self._context is None:
                raise ControllerAwayError(str(error)) from error
            logger.warning("former certificates stay in use", controller=settings.name, problem=str(error))
        self._seen = seen
        return self._context

    def authorization(self) -> Mapping[str, str]:
        """The header with the token, read for each question.

        Raises:
            ControllerAwayError: the file cannot be read, or has no token.
        """
        try:
            return bearer(self._settings.token)
        except UnreadableError as error:
            raise ControllerAwayError(f"{self._settings.token}: {error}") from error

    def refused(self, error: BaseException | None) -> str:
        """What the error of a connection says about certificates: whose, and why; empty: nothing."""
        settings = self._settings
        match tls_problem(error):
            case TlsProblem(Subject.THEIRS, reason):
                authorities = f"file {settings.ca}" if settings.ca else "those of the system"
                return f"the certificate of {settings.url} is not accepted: {reason}. The authorities are {authorities}"
            case TlsProblem(Subject.OURS, reason) if settings.certificate:
                return f"{settings.url} does not accept our certificate {settings.certificate}: {reason}"
            case TlsProblem(Subject.OURS, reason):
                return f"{settings.url} asks for our certificate, and the settings name none: {reason}"
            case TlsProblem(Subject.NO_TLS):
                return f"{settings.url} does not speak TLS; its url may begin with http:"
            case TlsProblem(_, reason):
                return f"{settings.url}: TLS fails: {reason}"
        return ""

    def _read(self) -> ssl.SSLContext:
        settings = self._settings
        try:
            context = trusting(file=settings.ca or None)
        except OSError as error:  # an SSLError is one, too
            raise _FileError(f"ca {settings.ca}: {file_problem(error)}") from error
        if settings.certificate:
            try:
                # Without a password, OpenSSL would ask for one on the terminal.
                context.load_cert_chain(settings.certificate, settings.key, password="")
            except OSError as error:
                files = f"certificate {settings.certificate} and key {settings.key}"
                raise _FileError(f"{files}: {file_problem(error)}") from error
        return context


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


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
