"""TLS handshakes with limits: on their time, on their number, and on how many begin in a second.

uvicorn and asyncio would start a handshake with each connection, and count the connection only after it. A handshake
takes about a millisecond of the event loop (0.4 to 1.2 ms measured, by key and client certificate), which the
scheduler's verbs need as well.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

import structlog
from uvicorn.server import ServerState

from extender.access.gate import RefusalReason
from extender.http.callers.refusals import Refusals
from extender.http.limits.connections import (
    HEAD_BYTES,
    HEAD_SECONDS,
    AcceptingConfig,
    BoundedProtocol,
    ListenerLimits,
    make_room,
)
from extender.kube.certificates import Certificates, HandshakeError

logger = structlog.get_logger()

CERTIFICATE: Final = "client certificate"
"""In the ``state`` of a request's scope: the client's certificate as `ssl.SSLSocket.getpeercert` has it, or None."""

_SHUTDOWN_SECONDS: Final = 5.0
"""The longest wait for the end of TLS at the end of a connection."""


_LISTEN_SECONDS: Final = 1.0
"""The longest wait for what a refused client has still to send."""

_PAUSE: Final = 0.01
"""Seconds between the starts of two handshakes: at most 100 a second, a tenth of the event loop."""


class SecureConfig(AcceptingConfig):
    """uvicorn's configuration of one server with TLS.

    Args:
        certificates: of the server, and whom it trusts.
        refusals: is told about clients whose handshake fails.
    """

    def __init__(
        self,
        app: Any,  # noqa: ANN401  # as uvicorn's own
        limits: ListenerLimits,
        certificates: Certificates,
        refusals: Refusals,
        **options: Any,  # noqa: ANN401  # as uvicorn's own
    ) -> None:
        super().__init__(app, limits, **options)
        self._certificates = certificates
        self._refusals = refusals

    async def accept(self, listener: socket.socket, state: ServerState) -> None:
        """Accept connections one after the other, with pauses, until cancelled. Those that wait take no descriptor."""
        listener.setblocking(False)  # noqa: FBT003  # of Python
        listener.listen(self.limits.connections)
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listener)
            except OSError as error:  # the client has left already, or there are too many open files
                logger.debug("connection not accepted", problem=str(error))
            else:
                handshake = Handshake(state.connections)
                handshake.begin(self._shake(client, str(address[0]), state, handshake))
                make_room(state.connections, self.limits.connections)
            await asyncio.sleep(_PAUSE)

    async def _shake(self, client: socket.socket, address: str, state: ServerState, handshake: "Handshake") -> None:
        try:
            with client.dup() as same:  # the event loop closes its own when the handshake fails
                try:
                    await self._connect(client, state, handshake)
                except HandshakeError as error:
                    self._refusals.tell(RefusalReason.HANDSHAKE, error.why, address)
                    await _tell(same, error.alert)
        except OSError as error:  # the client has left, or its time is up, as port scanners do
            logger.debug("connection not accepted", problem=str(error))

    async def _connect(self, client: socket.socket, state: ServerState, handshake: "Handshake") -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: SecureProtocol(self, state, handshake.end),
            client,
            ssl=self._certificates.context,
            ssl_handshake_timeout=HEAD_SECONDS,
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )


async def _tell(client: socket.socket, alert: bytes) -> None:
    """Tell a client why its handshake has failed. A client that has sent a request already would else see a reset."""
    with suppress(OSError, TimeoutError):
        client.send(alert)
        client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LISTEN_SECONDS):
            await asyncio.get_running_loop().sock_recv(client, HEAD_BYTES)


class Handshake:
    """A connection until the end of its handshake: it stands among the connections of a server, and counts as idle.

    Args:
        connections: of the server.
    """

    def __init__(self, connections: set[Any]) -> None:
        self.since = time.monotonic()
        self._connections = connections
        self._task: asyncio.Task[None] | None = None

    def begin(self, shaking: Coroutine[Any, Any, None]) -> None:
        """Begin the handshake."""
        self._connections.add(self)
        self._task = asyncio.create_task(shaking)
        self._task.add_done_callback(lambda _: self.end())

    def end(self) -> None:
        """The handshake is over."""
        self._connections.discard(self)

    @property
    def is_idle(self) -> bool:
        """No request waits for its answer."""
        return True

    @property
    def unsent(self) -> int:
        """Bytes of replies that the client has not taken yet."""
        return 0

    def check(self, now: float) -> None:
        """The handshake has a limit of its own."""

    def abort(self) -> None:
        """End the connection at once."""
        if self._task is not None:
            self._task.cancel()

    shutdown = abort
    """uvicorn calls it when the server ends."""


class SecureProtocol(BoundedProtocol):
    """The protocol of a connection with TLS, from the end of the handshake on.

    Args:
        begins: called when the handshake is over.
    """

    def __init__(self, config: SecureConfig, state: ServerState, begins: Callable[[], None]) -> None:
        super().__init__(config, state, {})
        self._begins = begins

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Keep the client's certificate, for all requests of the connection."""
        self._begins()
        certificate = transport.get_extra_info("ssl_object").getpeercert()
        self.app_state = {**self.app_state, CERTIFICATE: certificate or None}
        super().connection_made(transport)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's never keeps the connection
        """The client sends no more. TLS has no connections that are open in one direction."""
        self.transport.close()
        return False

    @property
    def has_certificate(self) -> bool:
        """Whether the client has shown a certificate."""
        return self.app_state.get(CERTIFICATE) is not None


def end_trust(connections: Iterable[object]) -> None:
    """End the connections of clients with a certificate, each after the request that it is answering.

    Their authority may be trusted no longer. Those that are still trusted connect again.
    """
    for each in list(connections):
        if isinstance(each, SecureProtocol) and each.has_certificate:
            each.shutdown()
