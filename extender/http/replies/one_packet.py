"""Replies in one packet. uvicorn sends a reply's head and body in two packets.

Two small packets take two system calls to send and two to read. With Nagle's algorithm the second packet also waits for
the acknowledgement of the first, which the reader may delay by 40 ms.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


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
