"""One request to a service and its answer, whatever either is."""

import asyncio
import contextlib
from typing import Final

_LONGEST: Final = 64 * 1024 * 1024


class AnswerError(Exception):
    """No answer: the connection was closed, or nothing came in time."""


async def exchange(port: int, request: bytes, *, seconds: float) -> bytes:
    """The answer to a request on a connection of its own; to HEAD, its head alone.

    Raises:
        AnswerError: there is none, or not all of it.
        OSError: no connection.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_LONGEST)
    try:
        async with asyncio.timeout(seconds):
            writer.write(request)
            return await _answer(reader, has_body=not request.startswith(b"HEAD "))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, TimeoutError) as error:
        raise AnswerError(f"{type(error).__name__}: {error}") from error
    finally:
        writer.close()
        with contextlib.suppress(Exception):
            writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, *, has_body: bool) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if not has_body:
        return head
    _, found, rest = head.lower().partition(b"content-length:")
    if found:
        return head + await reader.readexactly(int(rest.partition(b"\r\n")[0]))
    if b"transfer-encoding: chunked" in head.lower():
        return head + await reader.readuntil(b"0\r\n\r\n")
    return head
