"""An API server whose objects are bytes that it never decodes: deep, huge or no JSON at all."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

import orjson

from extender.kube.api import EVENTS, RESOURCES, Resource
from tests.kit.servers.synthetic import STREAM_HEAD, chunk

_INITIAL_END: Final = b'"annotations":{"k8s.io/initial-events-end":"true"}'
_GONE: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
_CONFLICT: Final = b'{"kind":"Status","code":409,"reason":"Conflict","message":"nothing can be written here"}'
_MISSING: Final = b'{"kind":"Status","code":404,"reason":"NotFound","message":"not found"}'
_ALLOWED: Final = b'{"status":{"allowed":true}}'
_LAST_CHUNK: Final = b"0\r\n\r\n"
_HIGH_WATER: Final = 1 << 20


def _discovery() -> dict[str, bytes]:
    """Path to answer: every kind in its first version."""
    found: dict[str, object] = {"/api": {"versions": ["v1"]}, "/version": {"major": "1", "minor": "36"}}
    for resource in (*RESOURCES.values(), EVENTS):
        version = resource.versions[0]
        root = f"/apis/{resource.group}" if resource.group else "/api"
        if resource.group:
            found[root] = {"versions": [{"version": version}]}
        known: dict[str, list[object]] = found.setdefault(f"{root}/{version}", {"resources": []})  # type: ignore[assignment]
        known["resources"].append({"name": resource.plural})
    return {path: orjson.dumps(answer) for path, answer in found.items()}


@dataclass(slots=True)
class _Kind:
    """What is there of one kind.

    Attributes:
        objects: by namespace and name.
        told: changes and their revisions, for watches that begin after them.
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
        port: where it listens, once it does.
    """

    streams: bool = True
    port: int = 0
    _revision: int = 1000
    _kinds: defaultdict[str, _Kind] = field(default_factory=lambda: defaultdict(_Kind))
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _discovery: dict[str, bytes] = field(default_factory=_discovery)

    def load(self, resource: Resource, key: tuple[str, str], text: bytes) -> None:
        """An object is there, and no watch tells."""
        self._kinds[resource.plural].objects[key] = text

    def unload(self, resource: Resource, key: tuple[str, str]) -> None:
        """An object is not there any more, and no watch tells."""
        self._kinds[resource.plural].objects.pop(key, None)

    def tell(self, resource: Resource, event: str, text: bytes) -> None:
        """Watches tell a change."""
        kind = self._kinds[resource.plural]
        self._revision += 1
        line = b'{"type":"%b","object":%b}\n' % (event.encode(), text)
        kind.told.append((self._revision, line))
        for watcher in kind.watchers:
            watcher.write(chunk(line))

    def bookmark(self, resource: Resource) -> None:
        """Watches tell a revision, after which they know everything."""
        self.tell(resource, "BOOKMARK", b'{"metadata":{"resourceVersion":"%d"}}' % (self._revision + 1))

    def expire(self, resource: Resource) -> int:
        """Watches of a kind can't go on: it is to be listed again. Answers the revision that the list has at least."""
        kind = self._kinds[resource.plural]
        self._revision += 1
        kind.told.clear()
        kind.told.append((self._revision, _GONE))
        for watcher in kind.watchers:
            watcher.write(chunk(_GONE))
        return self._revision

    async def followed(self, resource: Resource, revision: int, seconds: float) -> bool:
        """Wait until a watch goes on from a list of that revision or later; False: in time none did."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._kinds[resource.plural].followed >= revision)
        except TimeoutError:
            return False
        return True

    # --- HTTP -----------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = head.lower().partition("content-length:")[2].partition("\r\n")[0]
                await reader.readexactly(int(length or 0))
                method, target, _ = head.split(" ", 2)
                path, _, text = target.partition("?")
                await self._answer(method, path, dict(parse_qsl(text)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            for kind in self._kinds.values():
                kind.watchers.discard(writer)
            writer.close()

    async def _answer(self, method: str, path: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
        namespace = parts[1] if len(parts) > 2 and parts[0] == "namespaces" else ""
        plural, name, *_ = [*parts[2 if namespace else 0 :], "", ""]
        if method != "GET":
            _write(writer, *((200, _ALLOWED) if "accessreviews" in path else (409, _CONFLICT)))
        elif path in self._discovery:
            _write(writer, 200, self._discovery[path])
        elif "sendInitialEvents" in query and not self.streams:
            _write(writer, 422, b"{}")
        elif "sendInitialEvents" in query:
            await self._stream(plural, writer)
        elif "watch" in query:
            await self._watch(plural, int(query["resourceVersion"]), float(query["timeoutSeconds"]), writer)
        elif name:
            found = self._kinds[plural].objects.get((namespace, name))
            _write(writer, *((404, _MISSING) if found is None else (200, found)))
        else:
            self._page(plural, query, writer)
        await writer.drain()

    async def _stream(self, plural: str, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        kind, at = self._kinds[plural], self._revision
        for each in list(kind.objects.values()):
            writer.write(chunk(b'{"type":"ADDED","object":%b}\n' % each))
            if writer.transport.get_write_buffer_size() > _HIGH_WATER:
                await writer.drain()
        end = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d",%b}}}\n' % (at, _INITIAL_END)
        writer.write(chunk(end))

    def _page(self, plural: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        items = list(self._kinds[plural].objects.values())
        start, size = int(query.get("continue", "0")), int(query.get("limit", "1000000"))
        token = b',"continue":"%d"' % (start + size) if start + size < len(items) else b""
        metadata = b'{"resourceVersion":"%d"%b}' % (self._revision, token)
        _write(writer, 200, b'{"metadata":%b,"items":[%b]}' % (metadata, b",".join(items[start : start + size])))

    async def _watch(self, plural: str, since: int, seconds: float, writer: asyncio.StreamWriter) -> None:
        kind = self._kinds[plural]
        writer.write(STREAM_HEAD)
        for revision, line in kind.told:
            if revision > since:
                writer.write(chunk(line))
        kind.watchers.add(writer)
        asyncio.get_running_loop().call_later(seconds, self._end, kind, writer)
        async with self._changed:
            if since <= self._revision:  # else the service has been told of a revision that never was
                kind.followed = since
                self._changed.notify_all()

    def _end(self, kind: _Kind, writer: asyncio.StreamWriter) -> None:
        if writer in kind.watchers:
            kind.watchers.discard(writer)
            writer.write(_LAST_CHUNK)


def _write(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))


def loaded(objects: Iterable[dict[str, object]]) -> RawApiServer:
    """A server with valid objects."""
    server = RawApiServer()
    for each in objects:
        metadata: dict[str, str] = each["metadata"]  # type: ignore[assignment]
        key = metadata.get("namespace", ""), metadata["name"]
        server.load(RESOURCES[str(each["kind"])], key, orjson.dumps(each))
    return server
