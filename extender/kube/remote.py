"""An API server behind HTTP; implements `extender.kube.api.Api`. All objects of a kind are read in pages.

All writes share the connections to the API server. A write that a webhook is slow to admit keeps its connection, so
each namespace has its share of them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec
import orjson

from extender.kube.api import (
    AnswerTooLongError,
    ApiError,
    Listing,
    ObjectKey,
    OutcomeUnknownError,
    RawObject,
    UnreachableError,
    key_of,
    revision,
)
from extender.kube.connection.transport import (
    JSON_TYPE,
    MERGE_PATCH_TYPE,
    MOST_BYTES,
    CountingTransport,
    HttpReply,
    HttpRequest,
    RequestCounts,
    TooManyRequestsError,
    Transport,
    decoded,
    send,
    succeeded,
)
from extender.kube.discovery import Served, discover
from extender.kube.encoding import dumps, loads, loads_aside
from extender.kube.resources import PODS, Resource
from extender.tools.offload import Offload, at_once, in_thread

_T = TypeVar("_T")

_TRIES: Final = 3
"""Tries to read a list whose pages expire while they are read."""

_NO_LIST: Final = "the answer is not a list of objects with a revision"


RoomFor: TypeAlias = Callable[[bytes], AbstractAsyncContextManager[None]]
"""Waits for room for an object, by its JSON; the room is given back when the context is left."""

_NOTHING: Final = nullcontext()


def no_room(_text: bytes) -> AbstractAsyncContextManager[None]:
    """A `RoomFor` where nothing is counted."""
    return _NOTHING


class _Metadata(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "token": "continue"}):
    resource_version: str
    token: str | None = None


class _List(msgspec.Struct, frozen=True):
    """A list of the API whose items are not decoded."""

    metadata: _Metadata
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some objects of a list.

    Attributes:
        items: JSON of the objects.
        kind: ``apiVersion`` and ``kind`` of all objects.
        revision: of the whole list: all pages have the revision of the first.
        token: asks for the next page; empty on the last page.
    """

    request: HttpRequest
    items: tuple[msgspec.Raw, ...]
    kind: Mapping[str, str]
    revision: int
    token: str

    async def decoded(self, item: bytes, off_loop: Offload) -> RawObject:
        """The object of an item.

        Args:
            item: JSON of the object.
            off_loop: where objects are decoded that take long.

        Raises:
            OutcomeUnknownError: the item is no object.
        """
        try:
            obj = await loads_aside(item, off_loop)
        except orjson.JSONDecodeError as error:
            raise OutcomeUnknownError(str(self.request), f"{_NO_LIST}: {error}") from error
        if not isinstance(obj, dict):
            raise OutcomeUnknownError(str(self.request), _NO_LIST)
        # An API server leaves apiVersion and kind out of the items of a list.
        return {**self.kind, **obj}


class PageReader(Protocol):
    """Reads pages; `extender.kube.remote.RemoteApi` implements it."""

    @property
    def served(self) -> Served:
        """The API of the objects."""
        ...

    async def read_page(
        self, path: str, query: Mapping[str, str], decode: Callable[[HttpRequest, HttpReply], _T]
    ) -> _T:
        """A page of a list, decoded; raises ApiError or OutcomeUnknownError."""
        ...


async def pages(reader: PageReader, resource: Resource, fields: str = "") -> AsyncGenerator[ListPage, None]:
    """The pages of a list, at least one; each page is requested when the caller has handled the one before.

    Args:
        reader: of the API server.
        resource: the kind.
        fields: a field selector; empty: all objects.

    Raises:
        ApiError: a refusal; Gone if the list has expired while it was read.
        OutcomeUnknownError: no answer.
    """
    path = reader.served.path(resource)
    kind = {"apiVersion": reader.served.api_version(resource), "kind": resource.kind}
    query = {"fieldSelector": fields} if fields else {}
    while True:
        page = await reader.read_page(path, query, lambda request, reply: _page(request, reply, kind))
        yield page
        if not page.token:
            return
        query["continue"] = page.token


async def list_all(reader: PageReader, resource: Resource) -> Listing:
    """All objects at once; an expired list is read again.

    Raises:
        ApiError: a refusal; Gone if the list expired again and again while it was read.
        OutcomeUnknownError: no answer.
    """
    for _ in range(_TRIES - 1):
        try:
            return await _list_once(reader, resource)
        except ApiError as error:
            if error.status != HTTPStatus.GONE:
                raise
    return await _list_once(reader, resource)


async def _list_once(reader: PageReader, resource: Resource) -> Listing:
    items: list[RawObject] = []
    at = 0
    async with aclosing(pages(reader, resource)) as read:
        async for page in read:
            items += [await page.decoded(bytes(item), at_once) for item in page.items]
            at = page.revision
    return Listing(tuple(items), at)


def _page(request: HttpRequest, reply: HttpReply, kind: Mapping[str, str]) -> ListPage:
    body = succeeded(request, reply)
    try:
        page = _taken_apart(body)
    except (msgspec.DecodeError, orjson.JSONDecodeError) as error:
        raise OutcomeUnknownError(str(request), f"{_NO_LIST}: {error}") from error
    at = revision(page.metadata.resource_version)
    if not at:
        raise OutcomeUnknownError(str(request), _NO_LIST)
    return ListPage(request, tuple(page.items or ()), kind, at, page.metadata.token or "")


def _taken_apart(body: bytes) -> _List:
    """The list in a body; raises msgspec.DecodeError or orjson.JSONDecodeError if it is none."""
    try:
        return msgspec.json.decode(body, type=_List)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        # Some items can be decoded by `loads` only.
        whole = loads(body)
        items = whole.get("items") if isinstance(whole, dict) else None
        if isinstance(items, list):
            whole["items"] = [msgspec.Raw(dumps(item)) for item in items]
        return msgspec.convert(whole, type=_List)


MOST_WRITES: Final = 32
"""Of one namespace. A write takes milliseconds, so this is enough for thousands in a second."""

WAITING_SECONDS: Final = 30.0
"""The longest wait of a write. Those before it have an answer, or none, within 10 s each."""

_NAMESPACES: Final = "/namespaces/"


class WriteShares:
    """Has the writes of a namespace wait for each other, if there are too many."""

    def __init__(self) -> None:
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    def of(self, request: HttpRequest) -> "_Share":
        """A context in which a write has its share. One of an object without a namespace is free.

        Entering raises UnreachableError: the other writes of the namespace have left it no share in time. It was not
        sent.
        """
        return _Share(self._limits, self._users, request)


class _Share:
    """The share of one write."""

    def __init__(self, limits: dict[str, asyncio.Semaphore], users: Counter[str], request: HttpRequest) -> None:
        self._limits = limits
        self._users = users
        self._request = request
        self._namespace = request.path.partition(_NAMESPACES)[2].partition("/")[0]

    async def __aenter__(self) -> None:
        namespace, limit = self._namespace, self._limits.get(self._namespace)
        if not namespace:
            return
        if limit is None:
            limit = self._limits[namespace] = asyncio.Semaphore(MOST_WRITES)
        self._users[namespace] += 1
        try:
            if limit.locked():
                await _acquired(limit, self._request, namespace)
            else:
                await limit.acquire()  # at once
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        if self._namespace:
            self._limits[self._namespace].release()
            self._leave()

    def _leave(self) -> None:
        namespace = self._namespace
        self._users[namespace] -= 1
        if not self._users[namespace]:
            del self._users[namespace], self._limits[namespace]


async def _acquired(limit: asyncio.Semaphore, request: HttpRequest, namespace: str) -> None:
    try:
        async with asyncio.timeout(WAITING_SECONDS):
            await limit.acquire()
    except TimeoutError as error:
        cause = f"not sent within {WAITING_SECONDS:g} s: other writes of namespace {namespace} are slow"
        raise UnreachableError(str(request), cause) from error


PAGE_BYTES: Final = 8 * 1024 * 1024
"""The longest page of a list, unless it has one object. 500 pods are a third of this."""

_LONG_BYTES: Final = 64 * 1024
"""A longer answer is decoded off the loop."""


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """The times to wait for an API server, and how often to repeat a read.

    Attributes:
        call_seconds: for one answer about one object.
        page_seconds: for one page of a list.
        page_size: objects on a page.
        tries: of a read.
        pause_seconds: before a read is repeated, doubled each time, unless the server says when.
        longest_pause_seconds: longest pause that the server may ask for.
    """

    call_seconds: float = 10.0
    page_seconds: float = 60.0
    page_size: int = 500
    tries: int = 4
    pause_seconds: float = 0.1
    longest_pause_seconds: float = 5.0


class RemoteApi:
    """The objects of a cluster, as its API server has them.

    Writes are sent once. Reads are repeated when the server is busy, fails, or does not answer.

    Attributes:
        served: the versions in use; `rediscover` renews it.
        request_counts: of all requests.
        repeats: how often a read was repeated.
    """

    def __init__(
        self,
        transport: Transport,
        served: Served,
        *,
        random: Callable[[], float],
        timing: RequestTiming = RequestTiming(),
        off_loop: Offload = in_thread,
    ) -> None:
        self.request_counts = RequestCounts()
        self.transport: Transport = CountingTransport(transport, self.request_counts, time.perf_counter)
        self.repeats = 0
        self.served = served
        self._shares = WriteShares()
        self._random = random
        self._timing = timing
        self._off_loop = off_loop
        self._page_sizes: dict[str, int] = {}
        """By path, where pages have fewer objects than usual."""

    async def rediscover(self) -> None:
        """Ask again which versions are served: the server may have been upgraded."""
        self.served = await discover(self.transport)

    # --- Api ------------------------------------------------------------------------------------------------

    def api_version(self, resource: Resource) -> str:
        """The version of a kind that was discovered."""
        return self.served.api_version(resource)

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        """One object, current: without a resourceVersion the server reads its storage."""
        return await self._read(HttpRequest("GET", self.served.path(resource, key)), self._timing.call_seconds, decoded)

    async def list(self, resource: Resource) -> Listing:
        """All objects of a kind, page by page."""
        return await list_all(self, resource)

    async def select(self, resource: Resource, namespace: str, fields: Mapping[str, str]) -> tuple[RawObject, ...]:
        """Objects of a namespace by a field selector: the first page."""
        path = self.served.path(resource, ObjectKey(namespace, ""))
        selector = ",".join(f"{name}={value}" for name, value in fields.items())
        found = await self.read_page(path, {"fieldSelector": selector}, decoded)
        return tuple(found.get("items") or ())

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        """Make an object."""
        return await self._write("POST", self.served.path(resource, ObjectKey(key_of(obj).namespace, "")), obj)

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace all but the status."""
        return await self._write("PUT", self.served.path(resource, key_of(obj)), obj)

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace the status."""
        return await self._write("PUT", self.served.path(resource, key_of(obj), "status"), obj)

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge into all but the status."""
        return await self._write("PATCH", self.served.path(resource, key), patch)

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge into the status."""
        return await self._write("PATCH", self.served.path(resource, key, "status"), patch)

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        """Delete, or mark deleted while there are finalizers."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        given = {name: value for name, value in preconditions.items() if value}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **({"preconditions": given} if given else {})}
        await self._write("DELETE", self.served.path(resource, key), options)

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        """Post a Binding, whose metadata has the uid and version of the pod."""
        metadata = {"namespace": key.namespace, "name": key.name, "uid": uid, "resourceVersion": resource_version}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {name: value for name, value in metadata.items() if value},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._write("POST", self.served.path(PODS, key, "binding"), binding)

    async def read_page(
        self, path: str, query: Mapping[str, str], decode: Callable[[HttpRequest, HttpReply], _T]
    ) -> _T:
        """A page of a list, decoded. Where objects are long, pages have fewer of them."""
        while True:
            size = self._page_sizes.get(path, self._timing.page_size)
            most = PAGE_BYTES if size > 1 else MOST_BYTES
            request = HttpRequest("GET", path, {"limit": str(size), **query}, most_bytes=most)
            length = 0

            def measured(request: HttpRequest, reply: HttpReply) -> _T:
                nonlocal length
                length = len(reply.body)
                return decode(request, reply)

            try:
                page = await self._read(request, self._timing.page_seconds, measured)
            except AnswerTooLongError:
                if size == 1:
                    raise
                self._page_sizes[path] = max(1, size // 2)
                continue
            if length < PAGE_BYTES // 4 and path in self._page_sizes:
                self._page_sizes[path] = 2 * size
                if 2 * size >= self._timing.page_size:
                    del self._page_sizes[path]
            return page

    # --- calls ----------------------------------------------------------------------------------------------

    async def _write(self, method: str, path: str, body: RawObject) -> RawObject:
        media_type = MERGE_PATCH_TYPE if method == "PATCH" else JSON_TYPE
        request = HttpRequest(method, path, body=dumps(body), media_type=media_type)
        async with self._shares.of(request):
            return await self._once(request, self._timing.call_seconds, decoded)

    async def _read(self, request: HttpRequest, seconds: float, decode: Callable[[HttpRequest, HttpReply], _T]) -> _T:
        for attempt in range(self._timing.tries - 1):
            pause = self._timing.pause_seconds * 2**attempt * (0.5 + self._random())
            try:
                return await self._once(request, seconds, decode)
            except AnswerTooLongError:
                raise
            except TooManyRequestsError as error:
                pause = max(pause, min(error.retry_after, self._timing.longest_pause_seconds))
            except (OutcomeUnknownError, UnreachableError):
                # A read that failed has changed nothing.
                pass
            self.repeats += 1
            await asyncio.sleep(pause)
        return await self._once(request, seconds, decode)

    async def _once(self, request: HttpRequest, seconds: float, decode: Callable[[HttpRequest, HttpReply], _T]) -> _T:
        reply = await send(self.transport, request, seconds)
        if len(reply.body) > _LONG_BYTES:
            return await self._off_loop(lambda: decode(request, reply))
        return decode(request, reply)
