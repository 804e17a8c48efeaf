"""An API server at the transport's level: paths in, JSON out, with the failures that a test asks for.

It keeps a history per kind, lists in pages or in a stream, watches with bookmarks, and forgets what is compacted.
"""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from allocator import GATES, Features
from extender.kube.api import ObjectKey, RawObject, key_of
from extender.kube.connection.transport import HttpReply, HttpRequest, NotSentError, TransportError
from extender.kube.resources import NAMESPACES, RESOURCES, Resource
from tests.kit.servers.watches import Watch, WatchedChanges, expired, line_of

ALL_VERSIONS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "": {"v1": frozenset({"namespaces", "nodes", "pods", "pods/binding"})},
    "policy": {"v1": frozenset({"poddisruptionbudgets"})},
    "resource.k8s.io": {
        version: frozenset(
            {"resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "resourceslices", "deviceclasses"}
        )
        for version in ("v1", "v1beta2", "v1beta1")
    },
}
"""Group to version to what is in it: a server without taint rules."""


_KEPT = (*RESOURCES.values(), NAMESPACES)
"""The kinds of which there are objects."""

DEFAULT_GATES: dict[str, bool] = {gate: getattr(Features(), name) for gate, name in GATES.items()}


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request.

    Attributes:
        status: answered instead of what was asked for; 0: none.
        refused: the connection can't be made.
        hangs: there is no answer.
        cut_after: bytes of the body, after which the connection is cut.
        silent_after: bytes of the body, after which nothing comes any more.
        garbage_after: lines of a watch, after which there is one that is no JSON.
        error_after: lines of a watch, after which there is an ERROR event of `error_code`.
        ends_at_once: a watch ends by itself, with nothing.
        behind: revisions by which a list is too old.
    """

    status: int = 0
    retry_after: float = 0.0
    reason: str = ""
    message: str = "fault"
    refused: bool = False
    hangs: bool = False
    cut_after: int | None = None
    silent_after: int | None = None
    garbage_after: int | None = None
    error_after: int | None = None
    error_code: int = 500
    ends_at_once: bool = False
    behind: int = 0


HEALTHY = Fault()


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history."""

    revision: int
    type: str
    object: RawObject


@dataclass(slots=True)
class FakeStream:
    """An answer that comes bit by bit."""

    status: int
    retry_after: float
    body: AsyncIterator[bytes]

    def chunks(self) -> AsyncIterator[bytes]:
        return self.body


@dataclass(slots=True)
class FakeApi:
    """The server; implements `extender.kube.connection.transport.Transport`.

    Attributes:
        faults: of the requests to come, in their order; then there are none.
        fault_for: asked where `faults` has run out.
        chunk_sizes: into which bodies are cut, in turn.
        requests: that were made.
        denied: verb and plural (with subresource) that the account may not.
        version: what the server says of itself.
        metrics: what the server has at ``/metrics``.
    """

    served: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=lambda: ALL_VERSIONS)
    streams_lists: bool = True
    bookmarks: bool = True
    expired_as_event: bool = True
    faults: deque[Fault] = field(default_factory=deque)
    fault_for: Callable[[HttpRequest], Fault] = lambda _: HEALTHY
    chunk_sizes: tuple[int, ...] = (64 * 1024,)
    denied: frozenset[tuple[str, str]] = frozenset()
    version: RawObject = field(default_factory=lambda: {"major": "1", "minor": "36"})
    metrics: bytes = field(default_factory=lambda: gate_metrics(DEFAULT_GATES))
    requests: list[HttpRequest] = field(default_factory=list)
    revision: int = 100
    compacted: int = 0
    _history: dict[str, list[Change]] = field(default_factory=lambda: {resource.kind: [] for resource in _KEPT})
    _changes: dict[str, WatchedChanges] = field(default_factory=lambda: {each.kind: WatchedChanges() for each in _KEPT})

    # --- what happens in the cluster ------------------------------------------------------------------------

    def put(self, resource: Resource, obj: RawObject) -> RawObject:
        """Make an object, or replace it."""
        exists = key_of(obj) in self.objects(resource)
        return self._record(resource, "MODIFIED" if exists else "ADDED", obj)

    def delete(self, resource: Resource, key: ObjectKey) -> None:
        """Delete an object, if it is there."""
        obj = self.objects(resource).get(key)
        if obj is not None:
            self._record(resource, "DELETED", obj)

    def compact(self) -> None:
        """Forget all history; what is there stays."""
        self.compacted = self.revision

    def objects(self, resource: Resource, behind: int = 0) -> dict[ObjectKey, RawObject]:
        """What there is, or was some revisions ago."""
        found: dict[ObjectKey, RawObject] = {}
        for change in self._history[resource.kind]:
            if change.revision <= self.revision - behind:
                found.pop(key_of(change.object), None)
                if change.type != "DELETED":
                    found[key_of(change.object)] = change.object
        return found

    def watches(self, resource: Resource) -> list[HttpRequest]:
        """The watches that were asked for."""
        return [r for r in self.requests if r.path.endswith(f"/{resource.plural}") and "watch" in r.query]

    def lists(self, resource: Resource) -> list[HttpRequest]:
        """The pages that were asked for."""
        return [r for r in self.requests if r.path.endswith(f"/{resource.plural}") and "limit" in r.query]

    def _record(self, resource: Resource, kind: str, obj: RawObject) -> RawObject:
        self.revision += 1
        stored = copy.deepcopy(obj)
        stored["metadata"]["resourceVersion"] = str(self.revision)
        self._history[resource.kind].append(Change(self.revision, kind, stored))
        self._changes[resource.kind].add(self.revision, kind, stored)
        return stored

    # --- Transport ------------------------------------------------------------------------------------------

    async def call(self, request: HttpRequest) -> HttpReply:
        """Answer in one piece."""
        fault = await self._begin(request)
        if fault.status:
            return HttpReply(fault.status, _status(fault), fault.retry_after)
        reply = self._answer(request, fault)
        if fault.cut_after is not None:
            raise TransportError("cut")
        return reply

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[FakeStream]:
        """Answer bit by bit."""
        fault = await self._begin(request)
        if request.path == "/metrics" and not fault.status:
            yield FakeStream(200, 0.0, _cut(_chunks(_once(self.metrics), self.chunk_sizes), fault))
            return
        refused = self._refuse_watch(request)
        status = fault if fault.status else refused
        if status is not None:
            yield FakeStream(status.status, status.retry_after, _chunks(_once(_status(status)), (7,)))
            return
        resource = self._resource(request.path)
        lines = _once(b"") if fault.ends_at_once else _with_faults(self._watch(resource, request), fault)
        yield FakeStream(200, 0.0, _cut(_chunks(lines, self.chunk_sizes), fault))

    async def _begin(self, request: HttpRequest) -> Fault:
        self.requests.append(request)
        fault = self.faults.popleft() if self.faults else self.fault_for(request)
        if fault.refused:
            raise NotSentError("connection refused")
        if fault.hangs:
            await asyncio.Event().wait()
        return fault

    # --- answers --------------------------------------------------------------------------------------------

    def _answer(self, request: HttpRequest, fault: Fault) -> HttpReply:
        if request.path.endswith("/selfsubjectaccessreviews"):
            return _json(self._review(orjson.loads(request.body or b"")))
        if request.path == "/metrics":
            return HttpReply(200, self.metrics)
        discovered = self._discovery(request.path)
        if discovered is not None:
            return _json(discovered)
        if request.method != "GET":
            return HttpReply(201, request.body or b"{}")
        resource = self._resource(request.path)
        if resource is None:
            return HttpReply(404, _status(Fault(404, reason="NotFound", message=f"no {request.path}")))
        if request.path.endswith(resource.plural):
            return self._page(resource, request, fault)
        key = _key(request.path)
        found = self.objects(resource).get(key)
        return _json(found) if found else HttpReply(404, _status(Fault(404, reason="NotFound", message=f"no {key}")))

    def _discovery(self, path: str) -> RawObject | None:
        if path == "/version":
            return self.version
        if path == "/api":
            return {"kind": "APIVersions", "versions": list(self.served.get("", {}))}
        for group, versions in self.served.items():
            root = f"/apis/{group}" if group else "/api"
            if path == root:
                return {"kind": "APIGroup", "versions": [{"version": version} for version in versions]}
            for version, names in versions.items():
                if path == f"{root}/{version}":
                    return {"kind": "APIResourceList", "resources": [{"name": name} for name in sorted(names)]}
        return None

    def _review(self, review: RawObject) -> RawObject:
        asked = review["spec"]["resourceAttributes"]
        name = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        return {**review, "status": {"allowed": (asked["verb"], name) not in self.denied}}

    def _page(self, resource: Resource, request: HttpRequest, fault: Fault) -> HttpReply:
        """A page; the token says where it starts, and the revision of the list."""
        start, at = 0, self.revision - fault.behind
        if "continue" in request.query:
            start, at = map(int, request.query["continue"].split("@"))
            if at < self.compacted:
                return HttpReply(410, _status(Fault(410, reason="Expired", message="the continue token is too old")))
        limit = int(request.query["limit"])
        objects = list(self.objects(resource, self.revision - at).values())
        items = [{k: v for k, v in obj.items() if k not in {"kind", "apiVersion"}} for obj in objects]
        more = {"continue": f"{start + limit}@{at}"} if start + limit < len(items) else {}
        metadata = {"resourceVersion": str(at), **more}
        return _json({"kind": f"{resource.kind}List", "metadata": metadata, "items": items[start : start + limit]})

    def _resource(self, path: str) -> Any:
        return next((r for r in _KEPT if f"/{r.plural}" in path and self._serves(r, path)), None)

    def _serves(self, resource: Resource, path: str) -> bool:
        root = f"/apis/{resource.group}" if resource.group else "/api"
        versions = self.served.get(resource.group, {})
        return any(
            path.startswith(f"{root}/{version}/") and resource.plural in names for version, names in versions.items()
        )

    # --- watches --------------------------------------------------------------------------------------------

    def _refuse_watch(self, request: HttpRequest) -> Fault | None:
        if self._resource(request.path) is None:
            return Fault(404, reason="NotFound", message=f"no {request.path}")
        if "sendInitialEvents" in request.query and not self.streams_lists:
            return Fault(422, reason="Invalid", message="sendInitialEvents is forbidden")
        since = request.query.get("resourceVersion")
        if since is not None and int(since) < self.compacted and not self.expired_as_event:
            return Fault(410, reason="Expired", message="too old resource version")
        return None

    async def _watch(self, resource: Resource, request: HttpRequest) -> AsyncIterator[bytes]:
        """The lines of a watch, until its time is over."""
        if int(request.query.get("resourceVersion", self.revision)) < self.compacted:
            yield expired()
            return

        async def listed() -> Iterable[RawObject]:
            return list(self.objects(resource).values())

        watch = Watch(resource, self._changes[resource.kind], lambda: self.revision, listed, self.bookmarks)
        async for line in watch.lines(request.query):
            yield line


def gate_metrics(gates: Mapping[str, bool]) -> bytes:
    """Metrics of an API server: its feature gates, between other metrics."""
    told = [f'kubernetes_feature_enabled{{name="{name}",stage="BETA"}} {on:d}' for name, on in gates.items()]
    head = ["# HELP go_threads OS threads", "go_threads 12", "# TYPE kubernetes_feature_enabled gauge"]
    return "\n".join([*head, *told, "# TYPE process_open_fds gauge", "process_open_fds 40", ""]).encode()


def _status(fault: Fault) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status}
    return orjson.dumps({**body, "reason": fault.reason, "message": fault.message})


def _json(obj: RawObject) -> HttpReply:
    return HttpReply(200, orjson.dumps(obj))


def _key(path: str) -> ObjectKey:
    parts = [unquote(part) for part in path.split("/")]
    return ObjectKey(parts[-3] if "namespaces" in parts else "", parts[-1])


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _with_faults(lines: AsyncIterator[bytes], fault: Fault) -> AsyncIterator[bytes]:
    """The lines, with garbage or an error among them."""
    count = 0
    async for line in lines:
        if count == fault.garbage_after:
            yield b'{"type":"MODIF\n'
        if count == fault.error_after:
            yield line_of("ERROR", {"kind": "Status", "code": fault.error_code, "reason": "Oops", "message": "fault"})
            return
        yield line
        count += 1


async def _chunks(bodies: AsyncIterator[bytes], sizes: Iterable[int]) -> AsyncIterator[bytes]:
    """The same bytes, cut elsewhere; what is there is never held back."""
    turns = deque(sizes)
    async for body in bodies:
        rest = body
        while rest:
            yield rest[: turns[0]]
            rest = rest[turns[0] :]
            turns.rotate(-1)


async def _cut(chunks: AsyncIterator[bytes], fault: Fault) -> AsyncIterator[bytes]:
    """The chunks until the fault has its say."""
    limit = fault.cut_after if fault.cut_after is not None else fault.silent_after
    sent = 0
    async for chunk in chunks:
        if limit is not None and sent + len(chunk) > limit:
            yield chunk[: limit - sent]
            if fault.cut_after is not None:
                raise TransportError("connection reset by peer")
            await asyncio.Event().wait()
        sent += len(chunk)
        yield chunk
