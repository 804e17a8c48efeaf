"""The API server of a simulated world: objects in memory behind paths, with lists in pages, watches and a history."""

from collections.abc import AsyncIterator, Callable, Iterable
from http import HTTPStatus

import orjson

from extender.kube.api import ApiError, Event, ObjectKey, RawObject, revision_of
from extender.kube.connection.transport import HttpReply, HttpRequest
from extender.kube.encoding import dumps
from extender.kube.resources import PODS, RESOURCES, Resource
from extender.lab.api import MemoryApi
from tests.kit.servers.raw import Call, discovery
from tests.kit.servers.watches import Watch, WatchedChanges
from tests.kit.servers.writable import written


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
        self._changes = {kind: WatchedChanges() for kind in RESOURCES}
        self._discovery = discovery()
        api.follow(self)

    def compact(self) -> None:
        """Forget the history: watches from an older revision have to list again."""
        for each in self._changes.values():
            each.forget()

    # --- what the objects tell --------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """An object has changed."""
        self.revision = revision_of(event.object)
        self._changes[event.resource.kind].add(self.revision, event.type.value, event.object)

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

    def watch(self, request: HttpRequest) -> AsyncIterator[bytes]:
        """The lines of a watch, until its time is over."""
        call = Call.of_path(request.method, request.path, dict(request.query), b"")
        assert call.resource is not None, request.path
        resource = call.resource

        async def listed() -> Iterable[RawObject]:
            return (await self.api.list(resource)).items

        return Watch(resource, self._changes[resource.kind], lambda: self.revision, listed).lines(call.query)


def _refusal(error: ApiError) -> HttpReply:
    status = {"kind": "Status", "code": error.status, "reason": error.reason, "message": error.message}
    return HttpReply(error.status, orjson.dumps(status))
