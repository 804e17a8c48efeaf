"""The API server of a simulated world: objects in memory behind paths, with lists in pages, watches and a history."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from operator import itemgetter
from typing import Final

import orjson

from extender.kube.api import ApiError, Event, ObjectKey, RawObject, revision_of
from extender.kube.connection.transport import HttpReply, HttpRequest
from extender.kube.encoding import dumps
from extender.kube.resources import PODS, RESOURCES, Resource
from extender.lab.api import MemoryApi
from tests.kit.servers.raw import Call, discovery
from tests.kit.servers.writable import written

_BOOKMARK_SECONDS: Final = 60.0
_EXPIRED: Final = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


@dataclass(slots=True)
class _History:
    """The changes of one kind.

    Attributes:
        lines: revision and line of each change, ascending.
        forgotten: the revision of the latest change that the history has no more.
        changed: is set at the next change.
    """

    lines: list[tuple[int, bytes]] = field(default_factory=list)
    forgotten: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class SimulatedServer:
    """Answers requests at once; who asks decides how long a request and its answer take.

    Args:
        api: has the objects and the rules.
        evicts: is told of each pod that a client is about to delete.
    """

    def __init__(self, api: MemoryApi, evicts: Callable[[ObjectKey], None]) -> None:
        self.api = api
        self._evicts = evicts
        self.revision = 0
        self._histories = {kind: _History() for kind in RESOURCES}
        self._discovery = discovery()
        api.follow(self)

    def compact(self) -> None:
        """Forget the history: watches from an older revision have to list again."""
        for history in self._histories.values():
            if history.lines:
                history.forgotten = history.lines[-1][0]
                history.lines.clear()

    # --- what the objects tell --------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """An object has changed."""
        self.revision = revision_of(event.object)
        history = self._histories[event.resource.kind]
        history.lines.append((self.revision, _line(event.type.value, event.object)))
        history.changed.set()
        history.changed = asyncio.Event()

    def replace(self, _resource: Resource, _objects: Iterable[RawObject], at: int) -> bool:
        """The objects at the start."""
        self.revision = at
        return True

    # --- requests -----------------------------------------------------------------------------------------------

    async def answer(self, request: HttpRequest) -> HttpReply:
        """Do what a request asks for."""
        if request.path in self._discovery:
            return HttpReply(HTTPStatus.OK, self._discovery[request.path])
        call = Call.of_path(request.method, request.path, dict(request.query), request.body or b"")
        if call.resource is None:
            return _refusal(ApiError(HTTPStatus.NOT_FOUND, "NotFound", f"no {request.path}"))
        try:
            return HttpReply(HTTPStatus.OK, dumps(await self._done(call, call.resource)))
        except ApiError as error:
            return _refusal(error)

    async def _done(self, call: Call, resource: Resource) -> RawObject:
        if call.method == "DELETE" and resource == PODS:
            self._evicts(call.key)
        if call.method != "GET":
            return await written(self.api, call, resource)
        if call.key.name:
            return await self.api.get(resource, call.key)
        if "fieldSelector" in call.query:
            asked = dict(part.split("=", 1) for part in call.query["fieldSelector"].split(","))
            return {"items": list(await self.api.select(resource, call.key.namespace, asked))}
        return await self._page(call, resource)

    async def _page(self, call: Call, resource: Resource) -> RawObject:
        """A page of a list. A later page comes from the objects of now, so the list expires at a change in between."""
        listing = await self.api.list(resource)
        start, _, at = call.query.get("continue", f"0@{listing.revision}").partition("@")
        if int(at) != listing.revision:
            raise ApiError(HTTPStatus.GONE, "Expired", "the continue token is too old")
        end = int(start) + int(call.query["limit"])
        more = {"continue": f"{end}@{at}"} if end < len(listing.items) else {}
        return {"metadata": {"resourceVersion": at, **more}, "items": listing.items[int(start) : end]}

    async def watch(self, request: HttpRequest) -> AsyncIterator[bytes]:
        """The lines of a watch, until its time is over."""
        call = Call.of_path(request.method, request.path, dict(request.query), b"")
        assert call.resource is not None, request.path
        loop, history = asyncio.get_running_loop(), self._histories[call.resource.kind]
        deadline = loop.time() + float(call.query["timeoutSeconds"])
        since = int(call.query.get("resourceVersion", self.revision))
        if "sendInitialEvents" in call.query:
            listing = await self.api.list(call.resource)
            since = max(listing.revision, self.revision)
            for each in listing.items:
                yield _line("ADDED", each)
            yield _bookmark(call.resource, since, {"k8s.io/initial-events-end": "true"})
        bookmark_at = loop.time() + _BOOKMARK_SECONDS
        while loop.time() < deadline:
            if since < history.forgotten:
                yield orjson.dumps({"type": "ERROR", "object": _EXPIRED}) + b"\n"
                return
            news = history.lines[bisect_right(history.lines, since, key=itemgetter(0)) :]
            for at, line in news:
                since = at
                yield line
            if news:
                continue  # while they were on their way, others may have come
            if loop.time() >= bookmark_at:
                since, bookmark_at = self.revision, loop.time() + _BOOKMARK_SECONDS
                yield _bookmark(call.resource, since, {})
            else:
                await _until(history.changed, min(deadline, bookmark_at))


async def _until(changed: asyncio.Event, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await changed.wait()
    except TimeoutError:
        return


def _line(kind: str, obj: RawObject) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), dumps(obj))


def _bookmark(resource: Resource, at: int, annotations: dict[str, str]) -> bytes:
    metadata = {"resourceVersion": str(at), "annotations": annotations}
    return _line("BOOKMARK", {"kind": resource.kind, "metadata": metadata})


def _refusal(error: ApiError) -> HttpReply:
    status = {"kind": "Status", "code": error.status, "reason": error.reason, "message": error.message}
    return HttpReply(error.status, orjson.dumps(status))
