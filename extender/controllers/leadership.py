"""Leadership: of several processes of a controller, on several nodes, one at a time serves. A Lease says which one.

A leader that could not renew its lease ends before another process takes it. If the leader only slept, it looks at its
clock before the next question, and ends then. What it was deciding is as after a crash.
"""

import asyncio
import os
import random
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from anyio.from_thread import start_blocking_portal

from allocator.tools import dns_label, dns_subdomain, shown
from extender.cluster.live import connect
from extender.cluster.writes.lease import LONG, SharedLease
from extender.controllers.controller import Controller, Responder
from extender.controllers.store import Store
from extender.kube.api import ObjectKey, OutcomeUnknownError, WriteRefusedError
from extender.kube.connection.credentials import Origin, find_origin
from extender.plugins.negotiation.protocol import NegotiatedQuestion, Object

_TURN_SECONDS: Final = 1.0
"""Between two looks at the lease."""

SURE_SECONDS: Final = float(LONG.lasts - LONG.renewal)
"""After a look at a lease that we have, nobody else takes it for this time."""


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
