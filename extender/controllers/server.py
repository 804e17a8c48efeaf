"""A controller on HTTP: one process, one question at a time.

Of several processes of a controller, on several nodes, one at a time serves. A Lease says which one. A leader that
could not renew its lease ends before another process takes it. A leader that was suspended looks at its clock before
the next question, and ends if its time is up. What it has not finished is left as after a crash.
"""

import asyncio
import fcntl
import hmac
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NoReturn

from anyio.from_thread import start_blocking_portal

from allocator.tools import dns_label, dns_subdomain, shown
from extender.cluster.live import connect
from extender.cluster.writes.lease import LONG, SharedLease
from extender.controllers.controller import Controller, Responder
from extender.controllers.store import Store, dumps, loads
from extender.kube.api import ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.kube.certificates import Certificates
from extender.kube.connection.credentials import Origin, find_origin
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    UNSUITABLE_NODES,
    NegotiatedQuestion,
    Object,
    ProtocolError,
    question_of,
)
from extender.tools.files import UnreadableError, read_bytes

_TURN_SECONDS: Final = 1.0
"""Between two looks at the lease."""

SURE_SECONDS: Final = float(LONG.lasts - LONG.renewal)
"""If a look finds that this process has the lease, no other process can take the lease for this time."""


@dataclass(slots=True)
class Leadership:
    """Whether this process leads.

    Attributes:
        lease: is taken and renewed.
        clock: measures durations, in seconds.
        end: ends the process, because it leads no longer.
        problem: why the lease cannot be had now; empty if it can, or if another process has it.
    """

    lease: SharedLease
    clock: Callable[[], float]
    end: Callable[[], NoReturn]
    problem: str = ""
    _until: float = field(default=0.0, init=False)
    _has_led: bool = field(default=False, init=False)

    @property
    def is_sure(self) -> bool:
        """Whether no other process leads."""
        return self._has_led and self.clock() < self._until

    async def turn(self) -> None:
        """Take the lease, or renew it. Once it was lost, the process ends."""
        began, is_held, self.problem = self.clock(), False, ""
        try:
            async with asyncio.timeout(SURE_SECONDS):
                is_held = await self.lease.take()
        except (WriteRefusedError, OutcomeUnknownError, TimeoutError) as error:
            self.problem = str(error) or "the API server does not answer"
        if is_held:
            self._has_led, self._until = True, began + SURE_SECONDS
        elif self._has_led:
            self.check()

    def check(self) -> None:
        """End the process, unless it leads."""
        if not self.is_sure:
            self.end()


@dataclass(slots=True)
class LedResponder(Responder):
    """Answers questions while this process leads.

    Attributes:
        leadership: of this process.
    """

    leadership: Leadership

    def answer(self, question: NegotiatedQuestion) -> Object:
        """Like `Responder.answer`."""
        self.leadership.check()
        return Responder.answer(self, question)


def responder_of(controller: Controller, store: Store, leadership: Leadership | None) -> Responder:
    """The responder of a process that leads, or that needs no lease."""
    return Responder(controller, store) if leadership is None else LedResponder(controller, store, leadership)


@contextmanager
def led(lease: str, kubeconfig: Path | None) -> Iterator[Leadership | None]:
    """Lead in the body, which begins once this process has the lease; an empty lease: at once, without one.

    The lease is renewed by a thread, whatever the body does.

    Args:
        lease: ``NAMESPACE/NAME`` of the Lease, which is made if it does not exist.
        kubeconfig: the file of the API server; None: KUBECONFIG, the pod that we run in, or ``~/.kube/config``.

    Raises:
        ValueError: this is no name of a Lease.
        ConnectError: there is no API server that we can work with.
    """
    if not lease:
        yield None
        return
    leading = _led(_key(lease), find_origin(kubeconfig, "", os.environ))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(leading) as leadership:
        yield leadership


@asynccontextmanager
async def _led(key: ObjectKey, origin: Origin) -> AsyncIterator[Leadership]:
    async with connect(origin, random=random.random, listing=()) as live:
        holder = f"{socket.gethostname()}_{secrets.token_hex(8)}"
        lease = SharedLease(live.api, key, holder, lambda: datetime.now(UTC), _clock, LONG)
        leadership = Leadership(lease, _clock, partial(_end, key))
        said = None
        while not leadership.is_sure:
            await leadership.turn()
            if said != leadership.problem:
                said = leadership.problem
                _say(f"lease {key}: waiting until this process leads{f' ({said})' if said else ''}")
            await asyncio.sleep(_TURN_SECONDS)
        _say(f"lease {key}: this process leads")
        async with renewed(leadership):
            yield leadership


@asynccontextmanager
async def renewed(leadership: Leadership) -> AsyncIterator[None]:
    """Within, a process that leads renews its lease; at the end, it gives the lease back.

    A renewal that is under way ends first: its answer says whether this process has a lease to give back.
    """
    ended = asyncio.Event()

    async def renew() -> None:
        while not ended.is_set():
            await leadership.turn()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _TURN_SECONDS)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        ended.set()
        await asyncio.gather(renewing, return_exceptions=True)
        with suppress(WriteRefusedError, OutcomeUnknownError):  # it expires otherwise
            await leadership.lease.release()


def _clock() -> float:
    """Seconds that also pass while the machine is suspended, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _key(lease: str) -> ObjectKey:
    namespace, _, name = lease.partition("/")
    if wrong := dns_label(namespace) or dns_subdomain(name):
        raise ValueError(f"lease: {shown(lease)} is not NAMESPACE/NAME of a Lease: {wrong}")
    return ObjectKey(namespace, name)


def _end(key: ObjectKey) -> NoReturn:
    _say(f"lease {key}: it was not renewed in time, so another process may lead; this one ends")
    os._exit(1)  # a thread that is deciding must not go on


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


_MOST_BYTES: Final = 16 * 1024 * 1024
_IDLE_SECONDS: Final = 120
_HANDSHAKE_SECONDS: Final = 10
_QUESTIONS: Final = frozenset({UNSUITABLE_NODES, ALLOCATE, DEALLOCATE})


@dataclass(frozen=True, slots=True)
class Listening:
    """The address at which a controller listens, and whom it answers.

    Attributes:
        host: address to listen on.
        port: to listen on.
        certificates: for TLS, also the authorities for the certificates of clients; read again when the files change.
            None: no TLS.
        token: file with the token that each question brings, read for each question; None: none.
    """

    host: str = "127.0.0.1"
    port: int = 9377
    certificates: Certificates | None = None
    token: Path | None = None

    def __post_init__(self) -> None:
        if self.token is not None and self.certificates is None:
            raise ValueError("token: a token without TLS can be read by others; give certificates")


_LOOPBACK: Final = Listening()


def serve(
    controller: Controller,
    store: Path | str,
    listening: Listening = _LOOPBACK,
    *,
    lease: str = "",
    kubeconfig: Path | None = None,
) -> None:
    """Serve a controller until SIGTERM or SIGINT comes. A question that is being answered is finished then.

    Args:
        controller: decides.
        store: the file that remembers what is allocated. One process uses it at a time; another one waits, and does
            not listen until then.
        listening: where, and to whom.
        lease: ``NAMESPACE/NAME`` of a Lease: of several processes, the one that has the lease listens. Empty: none.
        kubeconfig: the file of the API server with the lease; None: KUBECONFIG, the pod that we run in, or
            ``~/.kube/config``.

    Raises:
        ValueError: the file is not a file of a store, or the lease has no such name.
        OSError: the file cannot be read, or the address cannot be listened on.
        ConnectError: there is no API server with the lease that we can work with.
    """
    path = Path(store)
    with (
        _until_a_signal(),
        led(lease, kubeconfig) as leadership,
        sole_user(path),
        new_server(responder_of(controller, Store.open(path), leadership), listening) as server,
    ):
        _serve(server)


def _serve(server: "Server") -> None:
    """Accept connections until a signal comes. It interrupts this thread, which does nothing that could be lost."""
    accepting = threading.Thread(target=server.serve_forever)
    accepting.start()
    try:
        accepting.join()
    finally:
        server.shutdown()
        accepting.join()


def new_server(responder: Responder, listening: Listening = _LOOPBACK) -> "Server":
    """A server that listens and does not answer yet."""
    return Server((listening.host, listening.port), responder, listening)


class Server(ThreadingHTTPServer):
    """Passes questions to a responder, one at a time."""

    def __init__(self, address: tuple[str, int], responder: Responder, listening: Listening) -> None:
        self.responder = responder
        self.listening = listening
        self.turn = threading.Lock()
        self.is_closed = False
        super().__init__(address, _Handler)

    def server_close(self) -> None:
        """Listen no longer. A question that is being answered is finished; later ones are refused.

        Connections outlive the server, and another process may serve from the same store by then.
        """
        super().server_close()
        with self.turn:
            self.is_closed = True

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer on a connection, in a thread of its own."""
        certificates = self.listening.certificates
        if certificates is None or not isinstance(request, socket.socket):
            super().finish_request(request, client_address)
            return
        with self.turn:
            certificates.look()
        request.settimeout(_HANDSHAKE_SECONDS)
        with certificates.context.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as in the library
        """Say why a connection has ended. Others go on."""
        error = sys.exc_info()[1]
        sys.stderr.write(f"connection of {client_address}: {type(error).__name__}: {error}\n")


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    wbufsize = -1  # head and body in one segment: a second one waits for the caller's system, 40 ms on Linux

    def handle_expect_100(self) -> bool:
        """Ask for the body of a caller that waits until it is asked."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self.close_connection = True
            self._reply(HTTPStatus.BAD_REQUEST, "a question has a Content-Length of at most 16 MiB")
            return
        self._reply(*self._answer(self.path.rpartition("/")[2], self.rfile.read(int(length))))

    def _answer(self, kind: str, body: bytes) -> tuple[HTTPStatus, str | bytes]:
        if problem := self._refusal():
            return HTTPStatus.UNAUTHORIZED, problem
        if kind not in _QUESTIONS:
            return HTTPStatus.NOT_FOUND, f"there is no question {kind}"
        try:
            question = question_of(kind, loads(body))
        except (ProtocolError, ValueError) as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        try:
            with self.server.turn:
                if self.server.is_closed:
                    self.close_connection = True
                    return HTTPStatus.SERVICE_UNAVAILABLE, "this process serves no longer"
                return HTTPStatus.OK, dumps(self.server.responder.answer(question))
        except Exception as error:  # noqa: BLE001 - a fault in the controller fails one question
            self.log_error("fault: %s: %s", type(error).__name__, error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"

    def _refusal(self) -> str:
        """Why the caller gets no answer; empty if it gets one."""
        file = self.server.listening.token
        if file is None:
            return ""
        try:
            token = read_bytes(file).strip()
        except UnreadableError as error:
            self.log_error("%s: %s", file, error)
            return "the token of this controller cannot be read"
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ").encode(errors="replace")
        return "" if token and hmac.compare_digest(shown, token) else "the token is not that of this controller"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Answers are not logged."""

    def _reply(self, status: HTTPStatus, text: str | bytes) -> None:
        body = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status is HTTPStatus.OK else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def sole_user(path: Path) -> Iterator[None]:
    """Hold the lock of a store, which ends with its process, whatever the end is."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"{path}: waiting until another process uses this file no longer\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _SignalError(Exception):
    """A signal asks us to stop."""


@contextmanager
def _until_a_signal() -> Iterator[None]:
    """End the body without an error on SIGTERM and SIGINT."""

    def stop(*_: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)  # the next one ends the process at once
        raise _SignalError

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    try:
        yield
    except _SignalError:
        return
