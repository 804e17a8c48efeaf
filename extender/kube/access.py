"""Access: who a caller is, and whether it may send a request.

A caller proves who it is by a client certificate, which the handshake has checked, or by a token, which the API server
checks (TokenReview). The API server also says what the caller may do (SubjectAccessReview). Both is what API servers
call delegated authentication and authorization. Answers are remembered for seconds, and no caller makes us ask the API
server more often than its pace.
"""

import asyncio
import hashlib
import secrets
import ssl
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Generic, TypeAlias, TypeVar

import orjson
import structlog

from allocator.tools import Recent, shown
from extender.kube.api import ApiError, OutcomeUnknownError, RawObject
from extender.kube.connection.transport import HttpRequest, Transport, ask
from extender.kube.encoding import dumps
from extender.kube.permissions import Permission
from extender.kube.resources import Resource

AUTHENTICATED: Final = "system:authenticated"
"""The group of all users that are known. API servers add it; TokenReviews have it."""

PeerCertificate: TypeAlias = Mapping[str, Any]
"""A client's certificate as `ssl.SSLSocket.getpeercert` returns it: checked against the authorities already."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of the API server.

    Attributes:
        extra: further facts about the user, which an authorizer may look at.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


def user_of_certificate(certificate: PeerCertificate) -> User | None:
    """The user of a client certificate, as API servers read it: the common name, and organizations as groups.

    None if there is no common name.
    """
    pairs = [pair for names in certificate.get("subject", ()) for pair in names]
    name = next((value for key, value in pairs if key == "commonName"), "")
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return User(name, groups=(*groups, AUTHENTICATED)) if name else None


def end_of(certificate: PeerCertificate) -> float:
    """The end of a certificate, in seconds since 1970."""
    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))


def user_of_review(status: Mapping[str, Any]) -> User | None:
    """The user in the status of a TokenReview; None if the token is not valid."""
    user = status.get("user") or {}
    name = user.get("username")
    if status.get("authenticated") is not True or not isinstance(name, str) or not name:
        return None
    extra = user.get("extra") or {}
    return User(
        name,
        str(user.get("uid") or ""),
        _texts(user.get("groups")),
        tuple(sorted((str(key), _texts(values)) for key, values in extra.items())),
    )


def _texts(values: Sequence[object] | None) -> tuple[str, ...]:
    return tuple(map(str, values or ()))


TOKEN_REVIEWS: Final = Resource("TokenReview", "tokenreviews", "authentication.k8s.io", ("v1",), namespaced=False)
ACCESS_REVIEWS: Final = Resource(
    "SubjectAccessReview", "subjectaccessreviews", "authorization.k8s.io", ("v1",), namespaced=False
)
REVIEWS: Final = (Permission("create", TOKEN_REVIEWS), Permission("create", ACCESS_REVIEWS))
"""The rights of ours that reviews need; the ClusterRole ``system:auth-delegator`` has them."""

_SECONDS: Final = 5.0
"""For one answer. A caller waits as long."""


class ReviewError(Exception):
    """The API server did not answer a review."""


class Reviews:
    """Asks an API server.

    Args:
        transport: to the API server.
        audience: whom tokens must be meant for; empty: the API server.
    """

    def __init__(self, transport: Transport, audience: str = "") -> None:
        self._transport = transport
        self.audience = audience

    async def user_of(self, token: str) -> User | None:
        """Whose token it is; None if it is not valid, or meant for others.

        Raises:
            ReviewError: no answer.
        """
        audiences = {"audiences": [self.audience]} if self.audience else {}
        status = await self._review(TOKEN_REVIEWS, {"token": token, **audiences})
        # An API server that does not know of audiences names none, and has checked none.
        if self.audience and self.audience not in (status.get("audiences") or ()):
            return None
        return user_of_review(status)

    async def allows(self, user: User, verb: str, path: str) -> bool:
        """Whether a user may do something with a path that is no resource, e.g. ``get`` with ``/devices``.

        Raises:
            ReviewError: no answer.
        """
        who = {"user": user.name, "uid": user.uid, "groups": user.groups, "extra": dict(user.extra)}
        spec = {name: value for name, value in who.items() if value}
        status = await self._review(ACCESS_REVIEWS, {**spec, "nonResourceAttributes": {"path": path, "verb": verb}})
        return status.get("allowed") is True

    async def _review(self, resource: Resource, spec: RawObject) -> Mapping[str, Any]:
        version = resource.api_versions()[0]
        body = dumps({"apiVersion": version, "kind": resource.kind, "spec": spec})
        request = HttpRequest("POST", f"/apis/{version}/{resource.plural}", body=body)
        try:
            answer = await ask(self._transport, request, _SECONDS)
        except (ApiError, OutcomeUnknownError) as error:
            raise ReviewError(str(error)) from error
        status = answer.get("status")
        return status if isinstance(status, dict) else {}


T = TypeVar("T")


_GOOD_SECONDS: Final = 10.0
_BAD_SECONDS: Final = 2.0
"""For so long an answer that lets a caller in is remembered, and any other answer: a right may just have been given."""

_MOST_ANSWERS: Final = 1024
"""Of the good answers, and of the bad ones."""


class Answers(Generic[T]):
    """Answers by key.

    Good and bad answers have memories of their own: callers that are refused make nobody else forgotten.

    Args:
        is_good: whether an answer lets a caller in.
        clock: seconds, from any point.
    """

    def __init__(self, is_good: Callable[[T], bool], clock: Callable[[], float]) -> None:
        self._is_good = is_good
        self._clock = clock
        self._good: Recent[tuple[float, T]] = Recent(_MOST_ANSWERS)
        self._bad: Recent[tuple[float, T]] = Recent(_MOST_ANSWERS)
        self._asking: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]], may_ask: Callable[[], None]) -> T:
        """The answer for a key: remembered, or asked for.

        Args:
            key: what is asked; it should be short, because it is kept.
            ask: gets the answer; what it raises is raised here, and not remembered.
            may_ask: called before a new question is asked; it may raise an error instead. A question is not new
                if its latest answer was good.
        """
        for memory in (self._good, self._bad):
            found = memory.find(key)
            if found is not None and found[0] > self._clock():
                return found[1]
        asking = self._asking.get(key)
        if asking is None:
            if self._good.find(key) is None:
                may_ask()
            asking = asyncio.create_task(self._ask_and_remember(key, ask))
            self._asking[key] = asking
            asking.add_done_callback(lambda task: self._forget_question(key, task))
        # A caller that leaves takes nothing from others that wait for the same.
        return await asyncio.shield(asking)

    def _forget_question(self, key: Hashable, asking: asyncio.Task[T]) -> None:
        self._asking.pop(key, None)
        if not asking.cancelled():
            asking.exception()  # if all callers have left, nobody else looks at it

    async def _ask_and_remember(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        answer = await ask()
        is_good = self._is_good(answer)
        memory, seconds = (self._good, _GOOD_SECONDS) if is_good else (self._bad, _BAD_SECONDS)
        if not is_good:
            self._good.forget(key)
        memory.keep(key, (self._clock() + seconds, answer))
        return answer


_KEPT: Final = 4096
"""Callers whose pace is known. One that was forgotten begins anew with a full bucket."""


class Pace:
    """Lets each caller ask so often.

    Args:
        rate: questions a second, in the long run.
        burst: questions at once.
        clock: seconds, from any point.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left: Recent[tuple[float, float]] = Recent(_KEPT)

    def allows(self, caller: Hashable) -> bool:
        """Whether a caller may ask one question more now; if so, the question counts."""
        now = self._clock()
        left, at = self._left.find(caller) or (self._burst, now)
        left = min(self._burst, left + (now - at) * self._rate)
        may = left >= 1.0
        self._left.keep(caller, (left - may, now))
        return may


class RefusalReason(StrEnum):
    """Why a caller is refused."""

    HANDSHAKE = "handshake"
    """The TLS handshake has failed: the client certificate is not accepted, or the client speaks no TLS 1.3."""
    NO_CREDENTIAL = "no_credential"
    """There is no token and no client certificate with a common name, or the header is not understood."""
    TOKEN = "token"  # noqa: S105 - the name of a reason
    """The API server does not accept the token (TokenReview)."""
    CERTIFICATE = "certificate"
    """The client certificate has expired since the connection was made."""
    RIGHT = "right"
    """The user may not send the request (SubjectAccessReview)."""
    TOO_OFTEN = "too_often"
    """There were too many tokens that are not known, or too many new paths."""
    NO_REVIEW = "no_review"
    """The API server, which knows the callers, does not answer."""


logger = structlog.get_logger()

_CREDENTIALS: Final = 'a client certificate, or a header "Authorization: Bearer <token>"'
_SUBJECTS: Final = 1024
"""Users that were let in by tokens and are remembered, each with its address."""

_EVERYBODY: Final = ""
"""Instead of a caller: all callers together."""


class AccessError(Exception):
    """A request is refused.

    Attributes:
        why: for metrics.
        status: HTTP status: 401, 403, 429 or 503.
        reason: as in a Status object of Kubernetes.
    """

    def __init__(self, why: RefusalReason, message: str) -> None:
        self.why = why
        self.status, self.reason = _ANSWERS.get(why, _UNAUTHORIZED)
        super().__init__(message)


_UNAUTHORIZED: Final = (HTTPStatus.UNAUTHORIZED, "Unauthorized")
_ANSWERS: Final[Mapping[RefusalReason, tuple[HTTPStatus, str]]] = {
    RefusalReason.RIGHT: (HTTPStatus.FORBIDDEN, "Forbidden"),
    RefusalReason.TOO_OFTEN: (HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests"),
    RefusalReason.NO_REVIEW: (HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable"),
}


@dataclass(frozen=True, slots=True)
class Knock:
    """A request of a caller: the credentials that it shows, and what it wants.

    Attributes:
        address: of the caller; empty if it is not known.
        certificate: of the connection; None: there is none.
        authorization: the header's values.
        verb: the method, in lower case.
        path: of the request, without percent signs for characters.
    """

    address: str
    certificate: PeerCertificate | None
    authorization: tuple[str, ...]
    verb: str
    path: str


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds from any point, and seconds since 1970."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]


class Gate:
    """Lets requests through, or refuses them.

    Args:
        reviews: asks the API server.
        clocks: for what is remembered, and for the end of certificates.
    """

    def __init__(self, reviews: Reviews, clocks: Clocks) -> None:
        self._reviews = reviews
        self._clocks = clocks
        clock = clocks.monotonic
        self._users: Answers[User | None] = Answers(lambda user: user is not None, clock)
        self._rights: Answers[bool] = Answers(bool, clock)
        # Who sends tokens that nobody knows is slowed down by its address, and then all who do together.
        self._of_address = Pace(20.0, 40.0, clock)
        self._of_all = Pace(100.0, 200.0, clock)
        # A user that was let in lately has a pace of its own for new tokens, whatever others send from its address.
        self._of_subject = Pace(1.0, 5.0, clock)
        self._subjects: Recent[bool] = Recent(_SUBJECTS)
        # A known user that asks for ever new paths is slowed down alone.
        self._of_user = Pace(20.0, 100.0, clock)
        # Tokens are kept only as hashes, which nobody else can compute.
        self._salt = secrets.token_bytes(32)

    async def admit(self, knock: Knock) -> User:
        """The user that sends a request.

        Raises:
            AccessError: the request is refused.
        """
        try:
            user = await self._user(knock)
            await self._check(user, knock)
        except ReviewError as error:
            logger.warning("the API server did not review a caller", problem=str(error))
            message = "the API server, which knows the callers, does not answer; try again"
            raise AccessError(RefusalReason.NO_REVIEW, message) from error
        return user

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Whether a user that was admitted has a further right. False also if that is not known now."""
        key = hashlib.blake2b(repr((user, verb, path)).encode(), digest_size=32).digest()
        try:
            return await self._rights.get(
                key, lambda: self._reviews.allows(user, verb, path), lambda: self._ask_for_right(user)
            )
        except (AccessError, ReviewError):
            return False

    async def _user(self, knock: Knock) -> User:
        if knock.certificate is not None:
            if end_of(knock.certificate) < self._clocks.wall():
                message = "the client certificate has expired since the connection was made; connect again"
                raise AccessError(RefusalReason.CERTIFICATE, message)
            if user := user_of_certificate(knock.certificate):
                return user
        if not knock.authorization:
            nameless = "the client certificate has no common name; " if knock.certificate is not None else ""
            raise AccessError(RefusalReason.NO_CREDENTIAL, f"{nameless}give {_CREDENTIALS}")
        token = _token(knock.authorization)
        key = hashlib.blake2b(token.encode(), key=self._salt, digest_size=32).digest()
        found = await self._users.get(
            key, lambda: self._reviewed(knock.address, token), lambda: self._ask_for_token(knock.address, token)
        )
        if found is None:
            audience = f" for the audience {shown(self._reviews.audience)}" if self._reviews.audience else ""
            message = f"the API server does not accept the token{audience}: it is wrong, or it has expired"
            raise AccessError(RefusalReason.TOKEN, message)
        return found

    async def _reviewed(self, address: str, token: str) -> User | None:
        user = await self._reviews.user_of(token)
        if user is not None and (subject := self._subject(address, token)):
            self._subjects.keep(subject, value=True)
        return user

    async def _check(self, user: User, knock: Knock) -> None:
        key = hashlib.blake2b(repr((user, knock.verb, knock.path)).encode(), digest_size=32).digest()
        may = await self._rights.get(
            key, lambda: self._reviews.allows(user, knock.verb, knock.path), lambda: self._ask_for_right(user)
        )
        if not may:
            message = f"user {shown(user.name)} may not {knock.verb} path {shown(knock.path)}"
            raise AccessError(RefusalReason.RIGHT, message)

    def _ask_for_token(self, address: str, token: str) -> None:
        subject = self._subject(address, token)
        if subject and self._subjects.find(subject) and self._of_subject.allows(subject):
            return
        if not (self._of_address.allows(_network(address)) and self._of_all.allows(_EVERYBODY)):
            raise _too_many("too many tokens that are not known yet")

    def _subject(self, address: str, token: str) -> bytes:
        """Whose the token claims to be, and from where it comes, as a hash; empty if it does not say.

        Nobody has checked the claim: who makes it falsely takes only from the pace of this one user at this address.
        """
        claims = token.split(".")[1:2]
        try:
            found = orjson.loads(urlsafe_b64decode(f"{claims[0]}==")) if claims else None
        except ValueError:
            return b""
        if not isinstance(found, dict) or not found.get("sub"):
            return b""
        text = repr((_network(address), found.get("iss"), found["sub"]))
        return hashlib.blake2b(text.encode("utf-8", "replace"), key=self._salt, digest_size=32).digest()

    def _ask_for_right(self, user: User) -> None:
        if not self._of_user.allows(user.name):
            raise _too_many(f"user {shown(user.name)} asks for too many different paths")


def _token(values: tuple[str, ...]) -> str:
    scheme, _, token = values[0].strip().partition(" ")
    token = token.strip()
    if len(values) > 1 or scheme.lower() != "bearer" or not token or not token.isascii() or " " in token:
        message = f"the header Authorization is not understood; give {_CREDENTIALS}"
        raise AccessError(RefusalReason.NO_CREDENTIAL, message)
    return token


def _network(address: str) -> str:
    """The part of an address that a caller can't choose: hosts have 64 bits of IPv6 for themselves."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return str(int(found) >> 64) if isinstance(found, IPv6Address) and not found.ipv4_mapped else address


def _too_many(message: str) -> AccessError:
    return AccessError(RefusalReason.TOO_OFTEN, f"{message}; try again in a second")
