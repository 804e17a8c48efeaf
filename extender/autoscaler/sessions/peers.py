"""The other replicas: which of them has a session, and calls that are passed on to it.

A session lives in the memory of one replica. Its id names that replica, by the name of the pod. Ids come from callers,
so an id names no address: the API server tells the address of the pod. A pod gets calls only if it runs under our own
service account: such a pod has our rights anyway, so our token gives it nothing new.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

import structlog

from allocator.tools import Recent, dns_subdomain, printable, shown
from extender.autoscaler.sessions.sessions import UnknownSessionError
from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import PODS
from extender.tools.faults import RefusedError

SESSION: Final = "session"
"""The header that names the session. Traces leave it out: who knows the id may use the session."""

FORWARDED: Final = "dra-extender-forwarded"
"""The header of a call that was passed on once. It is not passed on again."""

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

_KNOWN: Final = 16
"""Replicas whose addresses are remembered."""

_FRESH_SECONDS: Final = 10.0
"""How long an address counts."""

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_SHOWN_BYTES: Final = 200

logger = structlog.get_logger()


class PeerUnreachableError(Exception):
    """A replica cannot be reached, or has ended the connection without an answer."""


@dataclass(frozen=True, slots=True)
class PeerReply:
    """The answer of a replica: HTTP status and body."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class PassedCall:
    """A call of an autoscaler, as it came: its verb, the session's id, and the body."""

    verb: str
    session_id: str
    body: bytes


class WayToPeers(Protocol):
    """The way to other replicas."""

    async def send(self, address: str, call: PassedCall) -> PeerReply:
        """The answer of the replica at an IP address. Raises PeerUnreachableError."""
        ...


@dataclass(frozen=True, slots=True)
class _Address:
    """The address of a replica, and until when it counts."""

    address: str
    until: float


class Peers:
    """The replicas of this service.

    Args:
        own: namespace and name of this replica's pod.
        clock: seconds, from any point.
    """

    def __init__(self, api: Api, own: ObjectKey, connection: WayToPeers, clock: Callable[[], float]) -> None:
        self._api = api
        self._own = own
        self._connection = connection
        self._clock = clock
        self._account = ""
        self._asking = asyncio.Lock()
        self._known: Recent[_Address] = Recent(_KNOWN)

    def named(self, secret: str) -> str:
        """The id of a session of this replica; the secret keeps others from guessing it."""
        return f"{secret}@{self._own.name}"

    def owner(self, session_id: str) -> str:
        """The other replica that a session's id names; empty if it names this one, or none."""
        secret, _, name = session_id.rpartition("@")
        is_named = bool(_SECRET.fullmatch(secret)) and not dns_subdomain(name)
        return name if is_named and name != self._own.name else ""

    async def answer(self, call: PassedCall) -> bytes:
        """The answer of the replica that has the session.

        Raises:
            UnknownSessionError: the replica is gone.
            RefusedError: it is not known where the replica is, or the replica refuses this one.
        """
        replica = self.owner(call.session_id)
        address = await self._address(replica)
        try:
            reply = await self._connection.send(address, call)
        except PeerUnreachableError as error:
            self._known.forget(replica)
            logger.warning("replica not reached", replica=replica, address=address, error=str(error))
            raise _gone(replica, f"does not answer ({error})") from error
        if reply.status != HTTPStatus.OK:
            text = printable(reply.body[:_SHOWN_BYTES].decode(errors="replace").strip())
            raise RefusedError(f"replica {replica}, which has the session, answers with status {reply.status}: {text}")
        return reply.body

    async def _address(self, replica: str) -> str:
        known = self._known.find(replica)
        if known is not None and self._clock() < known.until:
            return known.address
        async with self._asking:  # Ids come from callers: the API server gets one question at a time.
            pod = await self._pod(replica)
        if pod is None:
            raise _gone(replica, "is gone")
        status = pod.get("status") or {}
        address = str(status.get("podIP") or "")
        if not address or status.get("phase") in _ENDED:
            raise _gone(replica, "does not run")
        return self._known.keep(replica, _Address(address, self._clock() + _FRESH_SECONDS)).address

    async def _pod(self, name: str) -> RawObject | None:
        """The pod of a replica; None if there is no such pod, or if it is not one of this service."""
        try:
            if not self._account:
                self._account = _account_of(await self._api.get(PODS, self._own))
            pod = await self._api.get(PODS, ObjectKey(self._own.namespace, name))
        except (ApiError, OutcomeUnknownError) as error:
            if isinstance(error, ApiError) and error.is_missing and self._account:
                return None
            raise RefusedError(f"the session is at replica {name}, and its address can't be found: {error}") from error
        return pod if _account_of(pod) == self._account else None


def _gone(replica: str, why: str) -> UnknownSessionError:
    return UnknownSessionError(f"no such session: replica {shown(replica)}, which had it, {why}; start another one")


def _account_of(pod: RawObject) -> str:
    return str((pod.get("spec") or {}).get("serviceAccountName") or "default")
