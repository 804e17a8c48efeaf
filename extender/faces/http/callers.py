"""Callers: whom the service answers, by TLS handshakes, credentials and origins, and how refused callers are counted.

Handshakes have limits. uvicorn and asyncio would start a handshake with each connection, and count the connection only
after it. A handshake takes about a millisecond of the event loop (0.4 to 1.2 ms measured, by key and client
certificate), which the scheduler's verbs need as well.

The guard answers with Status objects, as an API server does: clients of Kubernetes understand them.

Programs may send requests, pages of other web sites may not. A page in a browser on the same machine can send requests
to 127.0.0.1. The browser does not ask first if the content type is that of a form. A page can also come from a name
that it lets point to 127.0.0.1 (DNS rebinding), and then read the answers. Three headers show such requests:
``Origin``, ``Sec-Fetch-Site`` and ``Host``. DNS rebinding needs a name, so an address in ``Host`` is always fine. With
TLS every name is fine: a browser compares the name with the certificate. A person may follow a link on another site,
such as a chat, to the console: the other site does not see the answer. The content type does not help: ``curl --data``
sends that of a form.
"""

import asyncio
import re
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import lru_cache, partial
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Counter
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from allocator.tools import JSON, shown
from extender.faces.http.connections import (
    HEAD_BYTES,
    HEAD_SECONDS,
    AcceptingConfig,
    BoundedProtocol,
    ListenerLimits,
    make_room,
)
from extender.framework import wire
from extender.kube.access import AccessError, Gate, Knock, Pace, RefusalReason
from extender.kube.certificates import Certificates, HandshakeError

logger = structlog.get_logger()

_ALL: Final = ""
"""All callers share one pace."""


class CallerMetrics:
    """Counts callers that are refused."""

    def __init__(self, registry: CollectorRegistry) -> None:
        refused = Counter(
            "dra_extender_callers_refused",
            "TLS handshakes and requests of callers that are not known, or may not do what they ask for, by reason.",
            ("reason",),
            registry=registry,
        )
        self._refused = {reason: refused.labels(reason.value) for reason in RefusalReason}

    def refused(self, reason: RefusalReason) -> None:
        """A caller was refused."""
        self._refused[reason].inc()


class Refusals:
    """Counts and logs refusals.

    Args:
        count: is called for each refusal.
        clock: seconds, from any point.
    """

    def __init__(
        self, count: Callable[[RefusalReason], None] = lambda _: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._pace = Pace(1.0, 10.0, clock)
        self._left_out = 0

    def tell(self, reason: RefusalReason, why: str, client: str) -> None:
        """Count a refusal, and log it unless there were many lately."""
        self._count(reason)
        if not self._pace.allows(_ALL):
            self._left_out += 1
            return
        more = {"left_out": self._left_out} if self._left_out else {}
        logger.warning("caller refused", why=why, client=client, **more)
        self._left_out = 0


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
                    await _send_alert(same, error.alert)
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


async def _send_alert(client: socket.socket, alert: bytes) -> None:
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


USER: Final = "dra_extender.user"
"""Key of the scope of a request: the name of the user that sends it."""

MAY: Final = "dra_extender.may"
"""Key of the scope of a request: whether the user has a further right (`extender.kube.access.Gate.may`)."""


def caller_of(scope: Scope) -> str:
    """The caller of a request, as shares count it: off the node the user that the gate knows, elsewhere the address.

    All callers on loopback are one: nothing that they show tells them apart for certain.
    """
    if user := scope.get(USER):
        return f"user {user}"
    client = scope.get("client")
    return f"address {client[0] if client else ''}"


class Guard:
    """An ASGI application that asks a gate before another one.

    Args:
        app: gets the requests of callers that may send them.
        gate: knows who may.
        refusals: is told about those who may not.
    """

    def __init__(self, app: ASGIApp, gate: Gate, refusals: Refusals) -> None:
        self._app = app
        self._gate = gate
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        knock = _knock(scope)
        try:
            user = await self._gate.admit(knock)
        except AccessError as error:
            self._refusals.tell(error.why, str(error), knock.address)
            await _refusal(error)(scope, receive, send)
        else:
            scope[USER] = user.name
            scope[MAY] = partial(self._gate.may, user)
            await self._app(scope, receive, send)


def _knock(scope: Scope) -> Knock:
    client = scope.get("client")
    return Knock(
        address=str(client[0]) if client else "",
        certificate=scope.get("state", {}).get(CERTIFICATE),
        authorization=tuple(value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"),
        verb=scope["method"].lower(),
        path=scope["path"],
    )


def _refusal(error: AccessError) -> Response:
    status: JSON = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": int(error.status),
    }
    headers = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": "Bearer"}
    elif error.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        headers = {"Retry-After": "1"}
    return Response(wire.as_line(status), error.status, headers, media_type="application/json")


_LOOPBACK: Final = "localhost"
_SAFE: Final = frozenset({"GET", "HEAD"})
_SITES: Final = frozenset({b"same-origin", b"none"})
"""``none``: the user has typed the address."""

_FOLLOWED: Final = {(b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document"), (b"sec-fetch-user", b"?1")}
"""What a browser says when a person follows a link and the answer becomes the page."""


_HOST: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._~%-]+)?)\]|(?P<v4>\d+\.\d+\.\d+\.\d+)|(?P<name>[0-9A-Za-z_.-]+))(?::\d{1,5})?"
)
"""A header ``Host`` (RFC 9110, 7.2): an address of IPv6 in brackets, an address of IPv4 or a name, and perhaps a port.

Nothing else follows: no user, no path, no second bracket. A name may end with one dot.
"""


class Callers:
    """Decides whether a request is answered.

    Args:
        names: host names of this service, beside addresses and localhost; None: the service has TLS.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        self._scheme = b"https://" if names is None else b"http://"
        self._is_tls = names is None
        self._names = frozenset({_LOOPBACK, *(name.lower().rstrip(".") for name in names or ())})
        # There are few callers, and each sends one host.
        self._is_ours = lru_cache(maxsize=64)(self._is_known)

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Why the request is refused; empty if it is not."""
        host = origin = b""
        seen = set()
        for name, value in headers:
            if name == b"host":
                host = value
                if not (self._is_tls or self._is_ours(host)):
                    return (
                        f"host {shown(host.decode('latin-1'))} is not known here: use an address, "
                        "or add the name to server.allowedHosts"
                    )
            elif name == b"origin":
                origin = value
            elif name.startswith(b"sec-fetch-"):
                seen.add((name, value))
        sites = {value for name, value in seen if name == b"sec-fetch-site"} - _SITES
        if sites and not (method in _SAFE and seen >= _FOLLOWED):
            return f"requests of other web sites are refused (Sec-Fetch-Site: {shown(sites.pop().decode('latin-1'))})"
        if origin and (method not in _SAFE or origin.lower() != self._scheme + host.lower()):
            return f"requests of web pages are refused (Origin: {shown(origin.decode('latin-1'))})"
        return ""

    def _is_known(self, host: bytes) -> bool:
        found = _HOST.fullmatch(host.decode("latin-1"))
        if found is None:
            return False
        name = (found["name"] or "").lower()
        return name.removesuffix(".") in self._names if name else _is_address(found["v4"], found["v6"])


def _is_address(v4: str | None, v6: str | None) -> bool:
    try:
        IPv4Address(v4) if v4 else IPv6Address(v6 or "")
    except ValueError:
        return False
    return True
