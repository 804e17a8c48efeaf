"""The listeners of the service: their sockets and certificates, and the servers on them."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from extender.config.settings import ApiSettings, OperationsSettings, ServerSettings, Settings
from extender.faces.http.callers import Refusals, SecureConfig, end_trust
from extender.faces.http.connections import (
    OTHER_DESCRIPTORS,
    VERBS,
    BoundedConfig,
    BoundedServer,
    ListenerLimits,
)
from extender.kube.certificates import CertificateError, CertificateFiles, Certificates
from extender.tools.user_error import UserError

_ENDS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end the service."""


RECEIVED_BYTES: Final = 64 * 1024
"""What the kernel keeps of a request until it is read; Linux doubles it. By default that is up to 6 MB of each
connection. To take 256 KB from each of 200 connections at once would keep other calls waiting for 30 ms."""


class ListenError(UserError):
    """We cannot listen on the address, or not with these certificates."""


@dataclass(frozen=True, slots=True)
class Port:
    """A socket that listens.

    Attributes:
        certificates: for TLS; None: without TLS.
    """

    socket: socket.socket
    certificates: Certificates | None = None

    @property
    def url(self) -> str:
        """The URL at which the listener can be reached, without a path."""
        host, port = self.socket.getsockname()[:2]
        return f"{'https' if self.certificates else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@dataclass(frozen=True, slots=True)
class Ports:
    """All ports of the service; None: there is no such port."""

    server: Port
    operations: Port | None = None
    api: Port | None = None


@contextlib.contextmanager
def open_ports(settings: Settings) -> Iterator[Ports]:
    """The ports of the settings, closed in the end.

    Raises:
        ListenError: we cannot listen on host and port, or a file of certificates cannot be used.
    """
    operations, api = settings.operations, settings.api
    server_files = _files(settings.server, required=True)
    with contextlib.ExitStack() as stack:
        yield Ports(
            _open(stack, "server", settings.server, server_files),
            _open(stack, "operations", operations) if operations.port else None,
            _open(stack, "api", api, _files(api, required=False)) if api.port else None,
        )


def _files(settings: ServerSettings | ApiSettings, *, required: bool) -> CertificateFiles | None:
    if not settings.certificate:
        return None
    authorities = Path(settings.client_ca) if settings.client_ca else None
    return CertificateFiles(Path(settings.certificate), Path(settings.key), authorities, required)


def _open(
    stack: contextlib.ExitStack,
    name: str,
    settings: ServerSettings | OperationsSettings | ApiSettings,
    files: CertificateFiles | None = None,
) -> Port:
    try:
        certificates = Certificates(files) if files else None
    except CertificateError as error:
        raise ListenError(f"{name}: {error}") from error
    return Port(stack.enter_context(_listen(settings.host, settings.port)), certificates)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.create_server((host, port), family=family, backlog=1024)
    except UnicodeError as error:
        raise ListenError(f"cannot listen on {host}:{port}: not the name of a host") from error
    except OSError as error:
        # For an unknown name Python adds to the text what it was doing.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror).partition(" (")[0]
        raise ListenError(f"cannot listen on {host}:{port}: {reason}") from error
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)  # the connections have the same
    return found


def allowed_descriptors() -> int:
    """The number of descriptors that this process may have: as many as the verbs need, if the system allows that."""
    needed, (soft, hard) = VERBS.connections + OTHER_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def server_config(
    app: ASGIApp,
    settings: Settings,
    limits: ListenerLimits,
    certificates: Certificates | None = None,
    refusals: Refusals | None = None,
) -> BoundedConfig:
    """The configuration of uvicorn for an application on a listening socket, with TLS if there are certificates."""
    options = {
        "loop": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,  # the client's address is that of the connection
        "timeout_keep_alive": settings.server.keep_alive_seconds,
        "timeout_graceful_shutdown": settings.server.stop_seconds,
    }
    if certificates is None:
        return BoundedConfig(app, limits, **options)
    return SecureConfig(app, limits, certificates, refusals or Refusals(), **options)


@contextlib.asynccontextmanager
async def following(server: BoundedServer, port: Port) -> AsyncIterator[None]:
    """Within the context, the server takes new certificates from the port's files."""
    if port.certificates is None:
        yield
        return
    connections = server.server_state.connections
    task = asyncio.create_task(port.certificates.follow(lambda: end_trust(connections)))
    try:
        yield
    finally:
        task.cancel()


@contextlib.asynccontextmanager
async def beside(server: BoundedServer | None, port: Port | None) -> AsyncIterator[None]:
    """Within the context, a further server runs on its port, if there is one."""
    if server is None or port is None:
        yield
        return
    task = asyncio.create_task(server.serve(sockets=[port.socket]))
    try:
        async with following(server, port):
            yield
    finally:
        server.should_exit = True
        await task


class FurtherServer(BoundedServer):
    """A server that does not handle signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the main server."""
        yield


class MainServer(BoundedServer):
    """A server that ends with status 0 on a signal.

    Args:
        stop: called before.
    """

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Within the context, a signal ends the server."""
        # If SIGHUP has its usual meaning, it says that the terminal of the service is gone.
        ends = [number for number in _ENDS if number != signal.SIGHUP or signal.getsignal(number) is signal.SIG_DFL]
        before = {number: signal.signal(number, self._end) for number in ends}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._stop()
        self.handle_exit(number, frame)
