"""Prometheus over HTTP: range queries, within bounds of time and size."""

import asyncio
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import orjson

from allocator.tools import printable
from extender.answers.usage.past import PastError, RangeQuery
from extender.config.settings import UsageSettings
from extender.kube.certificates import file_problem, trusting
from extender.kube.encoding import loads
from extender.tools.files import UnreadableError, bearer
from extender.tools.offload import in_thread

SECONDS: Final = 30.0
"""For one query."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Of an answer: a day of 600 series has 4 MB."""

_PIECE_BYTES: Final = 64 * 1024
_LONGEST_TEXT: Final = 200


class Prometheus:
    """A Prometheus, or what answers like one; an `Ask`. The files are read for each query, as they are then."""

    def __init__(self, settings: UsageSettings) -> None:
        self._settings = settings

    async def __call__(self, query: RangeQuery) -> Mapping[str, Any]:
        """The answer to a query."""
        url, headers, tls = f"{self._settings.prometheus}/api/v1/query_range", self._authorization(), self._tls()
        try:
            async with asyncio.timeout(SECONDS), aiohttp.ClientSession(trust_env=False) as session:
                asking = session.post(url, data=query.parameters, headers=headers, ssl=tls, allow_redirects=False)
                async with asking as response:
                    body = await _body(response)
                    if response.status != HTTPStatus.OK:
                        text = printable(body[:_LONGEST_TEXT].decode(errors="replace").strip())
                        raise PastError(f"{url}: HTTP {response.status}: {text}")
        except TimeoutError as error:
            raise PastError(f"{url}: no answer within {SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PastError(f"{url}: {printable(str(error)) or type(error).__name__}") from error
        return await in_thread(lambda: _document(url, body))

    def _authorization(self) -> Mapping[str, str]:
        try:
            return bearer(self._settings.token)
        except UnreadableError as error:
            raise PastError(f"usage.token {self._settings.token}: {error}") from error

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._settings.prometheus.startswith("https:"):
            return True
        try:
            return trusting(file=self._settings.ca or None)
        except OSError as error:  # an SSLError is one, too
            raise PastError(f"usage.ca {self._settings.ca}: {file_problem(error)}") from error


async def _body(response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        size += len(piece)
        if size > MOST_BYTES:
            raise PastError(f"{response.url}: the answer has more than {MOST_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _document(url: str, body: bytes) -> Mapping[str, Any]:
    try:
        found = loads(body)
    except orjson.JSONDecodeError as error:
        raise PastError(f"{url}: the answer is not JSON") from error
    if not isinstance(found, dict):
        raise PastError(f"{url}: the answer is no object")
    return found
