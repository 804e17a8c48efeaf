"""An API server on HTTP whose objects are bytes that it never decodes: deep, huge or no JSON at all."""

import asyncio
import ssl
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final
from urllib.parse import parse_qsl

import orjson

from extender.kube.api import ObjectKey, RawObject, key_of
from extender.kube.resources import EVENTS, LEASES, RESOURCES, Resource

_RESOURCES: Final = {resource.plural: resource for resource in (*RESOURCES.values(), EVENTS, LEASES)}
_STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_INITIAL_END: Final = b'"annotations":{"k8s.io/initial-events-end":"true"}'
_GONE: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
_CONFLICT: Final = b'{"kind":"Status","code":409,"reason":"Conflict","message":"nothing can be written here"}'
_MISSING: Final = b'{"kind":"Status","code":404,"reason":"NotFound","message":"not found"}'
_ALLOWED: Final = b'{"status":{"allowed":true}}'
_NOBODY: Final = b'{"status":{"authenticated":false}}'
_LAST_CHUNK: Final = b"0\r\n\r\n"
_HIGH_WATER: Final = 1 << 20
_LONGEST_HEAD: Final = 64 * 1024 * 1024
"""The service passes on huge names."""

Reply = tuple[int, bytes]
"""Status and body."""


def discovery() -> dict[str, bytes]:
    """Path to answer: every kind in its first version."""
    found: dict[str, object] = {"/api": {"versions": ["v1"]}, "/version": {"major": "1", "minor": "36"}}
    for resource in _RESOURCES.values():
        version = resource.versions[0]
        root = f"/apis/{resource.group}" if resource.group else "/api"
        if resource.group:
            found[root] = {"versions": [{"version": version}]}
        known: dict[str, list[object]] = found.setdefault(f"{root}/{version}", {"resources": []})  # type: ignore[assignment]
        known["resources"].append({"name": resource.plural})
    return {path: orjson.dumps(answer) for path, answer in found.items()}


@dataclass(frozen=True, slots=True)
class Call:
    """One request, taken apart; ``key`` is empty for a whole kind, without a name for a namespace."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    resource: Resource | None
    key: ObjectKey
    subresource: str

    @classmethod
    def of(cls, head: str, body: bytes) -> "Call":
        """From the head of a request."""
        method, target, _ = head.split(" ", 2)
        path, _, text = target.partition("?")
        return cls.of_path(method, path, dict(parse_qsl(text)), body)

    @classmethod
    def of_path(cls, method: str, path: str, query: dict[str, str], body: bytes) -> "Call":
        """From the path of a request."""
        parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
        namespace = parts[1] if len(parts) > 2 and parts[0] == "namespaces" else ""
        plural, name, subresource = [*parts[2 if namespace else 0 :], "", "", ""][:3]
        key = ObjectKey(namespace, name)
        return cls(method, path, query, body, _RESOURCES.get(plural), key, subresource)


@dataclass(slots=True)
class _Kind:
    """The objects of one kind.

    Attributes:
        objects: by namespace and name.
        told: changes with their revisions, ascending, for watches that begin after them.
        followed: the revision from which the latest watch goes on.
    """

    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    told: list[tuple[int, bytes]] = field(default_factory=list)
    watchers: set[asyncio.StreamWriter] = field(default_factory=set)
    followed: int = 0


@dataclass(slots=True)
class RawApiServer:
    """Lists, watches and single objects; writes are refused as conflicts.

    Attributes:
        streams: lists come in streams, if asked for; else in pages.
        revision: of the latest change.
        port: where it listens, once it does.
        tls: for HTTPS; None: HTTP.
    """

    streams: bool = True
    revision: int = 1000
    port: int = 0
    tls: ssl.SSLContext | None = None
    _kinds: defaultdict[str, _Kind] = field(default_factory=lambda: defaultdict(_Kind))
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _discovery: dict[str, bytes] = field(default_factory=discovery)

    def load(self, resource: Resource, key: tuple[str, str], text: bytes) -> None:
        """An object exists, and no watch tells."""
        self._kinds[resource.plural].objects[key] = text

    def unload(self, resource: Resource, key: tuple[str, str]) -> None:
        """An object does not exist any more, and no watch tells."""
        self._kinds[resource.plural].objects.pop(key, None)

    def tell(self, resource: Resource, event: str, text: bytes, revision: int = 0) -> None:
        """Watches tell a change.

        Args:
            revision: of the change; 0: the next one.
        """
        kind = self._kinds[resource.plural]
        self.revision = revision or self.revision + 1
        line = b'{"type":"%b","object":%b}\n' % (event.encode(), text)
        self._tell(kind, line)

    def bookmark(self, resource: Resource) -> None:
        """Watches tell a revision, after which they know everything."""
        self.tell(resource, "BOOKMARK", b'{"metadata":{"resourceVersion":"%d"}}' % (self.revision + 1))

    def expire(self, resource: Resource) -> int:
        """Watches of a kind can't go on: it is to be listed again. Answers the revision that the list has at least."""
        kind = self._kinds[resource.plural]
        self.revision += 1
        kind.told.clear()
        self._tell(kind, _GONE)
        return self.revision

    async def followed(self, resource: Resource, revision: int, seconds: float) -> bool:
        """Wait until a watch goes on from a list of that revision or later; False: in time none did."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._kinds[resource.plural].followed >= revision)
        except TimeoutError:
            return False
        return True

    def _tell(self, kind: _Kind, line: bytes) -> None:
        kind.told.append((self.revision, line))
        for watcher in kind.watchers:
            if not watcher.is_closing():  # else its client has left, and is not discarded yet
                watcher.write(_chunk(line))

    # --- HTTP -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Within, it listens on a port of this machine."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LONGEST_HEAD, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def serve(self) -> None:
        """Listen, print the port, and never return."""
        async with self.listening():
            print(self.port, flush=True)
            await asyncio.Event().wait()

    async def write(self, call: Call) -> Reply:
        """Answer a request that is no GET."""
        if "tokenreviews" in call.path:
            return 201, _NOBODY
        return (200, _ALLOWED) if "accessreviews" in call.path else (409, _CONFLICT)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = head.lower().partition("content-length:")[2].partition("\r\n")[0]
                await self._answer(Call.of(head, await reader.readexactly(int(length or 0))), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            for kind in self._kinds.values():
                kind.watchers.discard(writer)
            writer.close()

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> None:
        if call.method == "GET" and call.resource is not None and "watch" in call.query:
            await self._watch(self._kinds[call.resource.plural], call.query, writer)
            return
        status, body = await self.write(call) if call.method != "GET" else self.read(call)
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    def read(self, call: Call) -> Reply:
        """Answer a GET that is no watch."""
        if call.path in self._discovery:
            return 200, self._discovery[call.path]
        if call.resource is None:
            return 404, _MISSING
        kind = self._kinds[call.resource.plural]
        if not call.key.name:
            return 200, self._page(kind, call.query)
        found = kind.objects.get((call.key.namespace, call.key.name))
        return (404, _MISSING) if found is None else (200, found)

    def _page(self, kind: _Kind, query: dict[str, str]) -> bytes:
        """A page of a list; the token is the place at which the next one starts."""
        items = list(kind.objects.values())
        start, size = int(query.get("continue", "0")), int(query.get("limit", "1000000"))
        token = b',"continue":"%d"' % (start + size) if start + size < len(items) else b""
        metadata = b'{"resourceVersion":"%d"%b}' % (self.revision, token)
        return b'{"metadata":%b,"items":[%b]}' % (metadata, b",".join(items[start : start + size]))

    async def _watch(self, kind: _Kind, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        """Begin a watch, which ends when it was asked to. A list at its start is never followed: it is read alone."""
        if "sendInitialEvents" in query:
            await self._stream(kind, writer)
            return
        since = int(query["resourceVersion"])
        writer.write(_STREAM_HEAD)
        for _, line in kind.told[bisect_right(kind.told, since, key=itemgetter(0)) :]:
            writer.write(_chunk(line))
        kind.watchers.add(writer)
        asyncio.get_running_loop().call_later(float(query["timeoutSeconds"]), self._end, kind, writer)
        async with self._changed:
            if since <= self.revision:  # else the service has been told of a revision that never was
                kind.followed = since
                self._changed.notify_all()

    async def _stream(self, kind: _Kind, writer: asyncio.StreamWriter) -> None:
        if not self.streams:
            writer.write(b"HTTP/1.1 422 X\r\nContent-Length: 2\r\n\r\n{}")
            return
        writer.write(_STREAM_HEAD)
        at = self.revision
        for each in list(kind.objects.values()):
            writer.write(_chunk(b'{"type":"ADDED","object":%b}\n' % each))
            if writer.transport.get_write_buffer_size() > _HIGH_WATER:
                await writer.drain()
        end = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d",%b}}}\n' % (at, _INITIAL_END)
        writer.write(_chunk(end))

    def _end(self, kind: _Kind, writer: asyncio.StreamWriter) -> None:
        if writer in kind.watchers:
            kind.watchers.discard(writer)
            writer.write(_LAST_CHUNK)


def _chunk(data: bytes) -> bytes:
    """A piece of a body that comes bit by bit."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def load_all(server: RawApiServer, objects: Iterable[RawObject]) -> RawApiServer:
    """The server, with valid objects."""
    for each in objects:
        key = key_of(each)
        server.load(RESOURCES[str(each["kind"])], (key.namespace, key.name), orjson.dumps(each))
    return server
