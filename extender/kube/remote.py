"""An API server behind HTTP; implements `extender.kube.api.Api`.

All writes share the connections to the API server. A write that a webhook is slow to admit keeps its connection, so
each namespace has its share of them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from extender.kube.api import Listing, ObjectKey, RawObject
from extender.kube.connection.request_counts import CountingTransport, RequestCounts
from extender.kube.connection.transport import (
    JSON_TYPE,
    MERGE_PATCH_TYPE,
    MOST_BYTES,
    HttpReply,
    HttpRequest,
    TooManyRequestsError,
    Transport,
    decoded,
    send,
)
from extender.kube.discovery import Served, discover
from extender.kube.encoding import dumps
from extender.kube.errors import AnswerTooLongError, OutcomeUnknownError, UnreachableError
from extender.kube.list import list_all
from extender.kube.raw import key_of
from extender.kube.resources import PODS, Resource
from extender.tools.offload import Offload, in_thread

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

    @asynccontextmanager
    async def of(self, request: HttpRequest) -> AsyncIterator[None]:
        """Within, a write has its share. One of an object without a namespace is free.

        Raises:
            UnreachableError: the other writes of the namespace have left it no share in time. It was not sent.
        """
        namespace = request.path.partition(_NAMESPACES)[2].partition("/")[0]
        if not namespace:
            yield
            return
        limit = self._limits.setdefault(namespace, asyncio.Semaphore(MOST_WRITES))
        self._users[namespace] += 1
        try:
            await _acquired(limit, request, namespace)
            try:
                yield
            finally:
                limit.release()
        finally:
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


_T = TypeVar("_T")

PAGE_BYTES: Final = 8 * 1024 * 1024
"""The longest page of a list, unless it has one object. 500 pods are a third of this."""

_LONG_BYTES: Final = 64 * 1024
"""A longer answer is decoded off the loop."""


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """How long to wait for an API server, and how often to repeat a read.

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
