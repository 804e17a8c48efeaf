"""The sessions of autoscalers: those that this replica keeps, and calls for those of other replicas.

A session is a world that is remembered from call to call. Nobody ends a session: a "stop" could get lost. Over a limit,
the owner that has most makes room: its session that was not used for longest goes. So no owner ends a session of
another that has less. No session lives for ever. What is not kept is told by an error, and the autoscaler starts again.

A session lives in the memory of one replica. Its id names that replica, by the name of the pod. Ids come from callers,
so an id names no address: the API server tells the address of the pod. A pod gets calls only if it runs under our own
service account: such a pod has our rights anyway, so our token gives it nothing new. Calls of other replicas come over
HTTPS, with a certificate for the name that all replicas share.
"""

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Final, Protocol

import aiohttp
import structlog

from allocator.tools import Recent, dns_subdomain, printable, shown
from extender.autoscaler.scale_up.plan import NodeGroup, ScaleUpPlan
from extender.autoscaler.simulated_cluster import World
from extender.cluster.snapshot import Snapshot
from extender.config.settings import AUTOSCALER_PREFIX
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.certificates import trusting
from extender.kube.resources import PODS
from extender.tools.faults import RefusedError
from extender.tools.files import UnreadableError, read_bytes
from extender.tools.intake import Budget, Source

OBJECT_BYTES: Final = 4_000
"""What an object of the cluster takes, about; an old one that only a session still knows is on its account."""


class UnknownSessionError(RefusedError):
    """There is no session of this id, or no longer."""

    code: ClassVar[str] = "UnknownSession"


class SessionTooLargeError(RefusedError):
    """A session takes more than all sessions may."""

    code: ClassVar[str] = "SessionTooLarge"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The bounds of what is kept: sessions, seconds since the start of one, bytes of all of them together (about)."""

    count: int = 8
    seconds: float = 600.0
    size: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Planned:
    """The latest plan that was made in a session. Nothing of it is booked."""

    plan: ScaleUpPlan
    groups: Sequence[NodeGroup]

    @property
    def weight(self) -> int:
        """An estimate of its bytes."""
        pods = sum(len(node) for group in self.plan.groups for node in group.nodes) + len(self.plan.failed)
        return OBJECT_BYTES * pods


@dataclass(slots=True, eq=False)
class Session:
    """One autoscaler's cycle.

    Attributes:
        world: what has happened in it so far.
        began: the time of the start.
        caller: who started it, as far as that is known, for people.
        owner: who started it, by what it cannot choose: its user, or its address.
        planned: the latest plan; None if there is none.
        turn: held during a call, so that calls of one session follow each other.
    """

    id: str
    world: World
    began: float
    caller: str = ""
    owner: str = ""
    planned: Planned | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def weight(self, now: Snapshot) -> int:
        """An estimate of the bytes that only this session keeps: its own, and objects that have changed meanwhile."""
        start = self.world.supply.snapshot
        objects = len(start.nodes) + len(start.inventory.slices) + len(start.claims) + len(start.pods)
        planned = 0 if self.planned is None else self.planned.weight
        return self.world.weight + planned + OBJECT_BYTES * min(now.version - start.version, objects)


class Sessions:
    """The sessions that are kept, the least recently used one first; each owner has a share.

    Args:
        clock: seconds, from any point.
        new_id: makes an id that can't be guessed.

    Attributes:
        changes: counts the changes of sessions; their ends by age do not count.
    """

    def __init__(self, limits: SessionLimits, *, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        self._limits = limits
        self._clock = clock
        self._new_id = new_id
        self._kept: OrderedDict[str, Session] = OrderedDict()
        self.changes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def listed(self) -> tuple[tuple[Session, float], ...]:
        """The sessions that are kept, the newest first, each with its age in seconds. None of them counts as used."""
        self._drop_expired()
        now = self._clock()
        found = sorted(self._kept.values(), key=lambda each: each.began, reverse=True)
        return tuple((each, now - each.began) for each in found)

    def start(self, world: World, caller: str = "", owner: str = "") -> Session:
        """A new session that begins with this world, as it is in the cluster now.

        Args:
            world: what it begins with.
            caller: who starts it, for people.
            owner: who starts it: all sessions of one owner have one share of what is kept.
        """
        self._drop_expired()
        self.changes += 1
        session = Session(self._new_id(), world, self._clock(), caller, owner)
        self._kept[session.id] = session
        while len(self._kept) > self._limits.count:
            self._drop_of(self._greatest(lambda _: 1))
        self._fit(world.snapshot)
        return session

    def find(self, session_id: str) -> Session:
        """A session that is kept; it counts as used.

        Raises:
            UnknownSessionError: it is not, and why that may be.
        """
        self._drop_expired()
        session = self._kept.get(session_id)
        if session is None:
            raise UnknownSessionError(
                f"no session {_shown(session_id)}: it has expired or made room for others, or the service was started "
                "again since; start another one"
            )
        self._kept.move_to_end(session_id)
        return session

    def keep(self, session: Session, world: World, now: Snapshot) -> None:
        """Keep the latest world of a session. If need be, the owner that has most makes room.

        Args:
            session: one that was found.
            world: what it is now.
            now: the cluster as it is now.

        Raises:
            SessionTooLargeError: it takes more than all sessions may, or more than its owner's share while others need
                theirs. It is dropped.
        """
        session.world = world
        self.changes += 1
        was_kept = session.id in self._kept
        self._fit(now)
        is_over = session.weight(now) > self._limits.size
        share = "" if is_over else "its share of "
        if is_over or (was_kept and session.id not in self._kept):
            self._kept.pop(session.id, None)
            raise SessionTooLargeError(
                f"the session takes more than {share}the limit of {self._limits.size} bytes "
                "(autoscaler.sessionBytes) and was dropped; start another one and ask it for less"
            )

    def note(self, session_id: str, planned: Planned, now: Snapshot) -> None:
        """Remember the latest plan of a session, unless it is too large, or the session has ended while it was made."""
        session = self._kept.get(session_id)
        if session is None:
            return
        session.planned = planned
        self.changes += 1
        if self.weight(now) > self._limits.size:
            session.planned = None

    def weight(self, now: Snapshot) -> int:
        """The bytes of all sessions, about."""
        return sum(session.weight(now) for session in self._kept.values())

    def _fit(self, now: Snapshot) -> None:
        """Drop sessions of the owner that has most, but for the last one, until the rest fit."""
        while len(self._kept) > 1 and self.weight(now) > self._limits.size:
            self._drop_of(self._greatest(lambda session: session.weight(now)))

    def _greatest(self, weigh: Callable[[Session], int]) -> str:
        """The owner whose sessions weigh most; of equal ones, the one that has used none for longest."""
        weights: dict[str, int] = {}
        for session in self._kept.values():
            weights[session.owner] = weights.get(session.owner, 0) + weigh(session)
        latest = {session.owner: place for place, session in enumerate(self._kept.values())}
        return max(weights, key=lambda owner: (weights[owner], -latest[owner]))

    def _drop_of(self, owner: str) -> None:
        """Drop the least recently used session of an owner."""
        del self._kept[next(session.id for session in self._kept.values() if session.owner == owner)]

    def _drop_expired(self) -> None:
        oldest = self._clock() - self._limits.seconds
        for session in [each for each in self._kept.values() if each.began < oldest]:
            del self._kept[session.id]


def _shown(session_id: str) -> str:
    """An id as it was sent, cut where it is long."""
    return repr(session_id if len(session_id) <= 64 else f"{session_id[:64]}...")


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


_CONNECTING_SECONDS: Final = 5.0
"""A replica whose node is gone does not refuse a connection: it stays silent. A busy replica needs time."""


_COPIES: Final = 2
"""Of an answer in memory: its pieces, and the whole."""


@dataclass(frozen=True, slots=True)
class PeerConnection:
    """Calls to other replicas over TLS 1.3, each on a connection of its own.

    The files are read for each call. What their authorities come to for TLS is made once, until they change.

    Attributes:
        server_name: the name in the replicas' certificates.
        port: of their listener for callers off the node.
        ca: file of the authorities that issue the replicas' certificates, in PEM.
        token: file of a token of our service account.
        deadline_seconds: for one call.
        budget: for the memory of answers.
    """

    server_name: str
    port: int
    ca: Path
    token: Path
    deadline_seconds: float
    budget: Budget
    _trusted: dict[bytes, ssl.SSLContext] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The authorities of the latest call, and TLS with them."""

    async def send(self, address: str, call: PassedCall) -> PeerReply:
        """The answer of the replica at an address.

        Raises:
            PeerUnreachableError: there is none, or the files of this replica can't be used.
        """
        token = _content(self.token).decode("ascii", errors="replace").strip()
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            SESSION: call.session_id,
            FORWARDED: "1",
        }
        host = f"[{address}]" if ":" in address else address
        url = f"https://{host}:{self.port}{AUTOSCALER_PREFIX}/{call.verb}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECTING_SECONDS, sock_read=self.deadline_seconds)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.post(
                    url,
                    data=call.body,
                    headers=headers,
                    ssl=self._trust(),
                    server_hostname=self.server_name,  # the certificate is not for the address of a pod
                    allow_redirects=False,
                ) as found,
            ):
                return await self._answer(found)
        except aiohttp.ClientConnectorError as error:  # its text shows the context of TLS
            raise PeerUnreachableError(str(error.__cause__ or error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise PeerUnreachableError(str(error) or type(error).__name__) from error

    async def _answer(self, found: aiohttp.ClientResponse) -> PeerReply:
        pieces: list[bytes] = []
        with self.budget.room(Source.REPLICAS) as room:
            async for piece in found.content.iter_any():
                if not room.grow(_COPIES * len(piece)):
                    raise PeerUnreachableError("its answer is too long for the memory that is left")
                pieces.append(piece)
        return PeerReply(found.status, b"".join(pieces))

    def _trust(self) -> ssl.SSLContext:
        pem = _content(self.ca)
        known = self._trusted.get(pem)
        if known is None:
            known = self._made(pem)
            self._trusted.clear()
            self._trusted[pem] = known
        return known

    def _made(self, pem: bytes) -> ssl.SSLContext:
        try:
            context = trusting(pem=pem.decode("ascii", errors="replace"))
        except ssl.SSLError as error:
            raise PeerUnreachableError(f"{self.ca}: there is no certificate in PEM") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except UnreadableError as error:
        raise PeerUnreachableError(f"{path}: {error}") from error
