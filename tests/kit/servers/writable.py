"""`MemoryApi` on HTTP: an API server to read, watch and write, with the rules that clients run into.

``python -m tests.kit.servers.writable OBJECTS`` reads a file with one JSON object a line, and prints its port.
"""

import argparse
import asyncio
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

import orjson
import uvloop

from extender.fakekube.api import MemoryApi
from extender.kube.api import EVENTS, PODS, RESOURCES, ApiError, ObjectKey, RawObject, Resource
from extender.kube.raw import Event, revision_of
from tests.kit.servers.synthetic import DISCOVERY, STREAM_HEAD, chunk, event_line, listed

_RESOURCES: Final = {resource.plural: resource for resource in (*RESOURCES.values(), EVENTS)}
_LAST_CHUNK: Final = b"0\r\n\r\n"


@dataclass(slots=True)
class History:
    """What has happened to objects since the start, kind by kind, and who watches.

    Attributes:
        revisions: of the changes, ascending.
        lines: the changes, as watches tell them.
    """

    revisions: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    lines: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    watchers: defaultdict[str, set[asyncio.StreamWriter]] = field(default_factory=lambda: defaultdict(set))

    def apply(self, event: Event) -> None:
        """Something happened."""
        plural, told = event.resource.plural, event_line(event.type.value, event.object)
        self.revisions[plural].append(revision_of(event.object))
        self.lines[plural].append(told)
        for watcher in self.watchers[plural]:
            watcher.write(chunk(told))

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """What there was before the start is listed, not told."""
        del resource, objects, at
        return True

    def since(self, plural: str, revision: int) -> list[bytes]:
        """What has happened after a revision."""
        return self.lines[plural][bisect_right(self.revisions[plural], revision) :]


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
        parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
        namespace = parts[1] if len(parts) > 2 and parts[0] == "namespaces" else ""
        plural, name, subresource = [*parts[2 if namespace else 0 :], "", "", ""][:3]
        key = ObjectKey(namespace, name)
        return cls(method, path, dict(parse_qsl(text)), body, _RESOURCES.get(plural), key, subresource)


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Answers requests about the objects of an API in memory."""

    api: MemoryApi
    history: History

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = head.lower().partition("content-length:")[2].partition("\r\n")[0]
                call = Call.of(head, await reader.readexactly(int(length or 0)))
                if call.resource is not None and "watch" in call.query:
                    await self._watch(call.resource.plural, call.query, writer)
                else:
                    await self._answer(call, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            for watchers in self.history.watchers.values():
                watchers.discard(writer)
            writer.close()

    async def _watch(self, plural: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        """Begin a watch, which ends when it was asked to. A list at its start is never followed: it is read alone."""
        writer.write(STREAM_HEAD)
        if "sendInitialEvents" in query:
            listing = await self.api.list(_RESOURCES[plural])
            await listed(writer, (event_line("ADDED", item) for item in listing.items), listing.revision)
            return
        for told in self.history.since(plural, int(query["resourceVersion"])):
            writer.write(chunk(told))
        self.history.watchers[plural].add(writer)
        asyncio.get_running_loop().call_later(float(query["timeoutSeconds"]), self._end, plural, writer)

    def _end(self, plural: str, writer: asyncio.StreamWriter) -> None:
        if writer in self.history.watchers[plural]:
            self.history.watchers[plural].discard(writer)
            writer.write(_LAST_CHUNK)

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> None:
        status = 200
        try:
            answer = await self._object(call, call.resource) if call.resource else DISCOVERY.get(call.path, _ALLOWED)
        except ApiError as error:
            status = error.status
            answer = {"kind": "Status", "code": status, "reason": error.reason, "message": error.message}
        body = orjson.dumps(answer)
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    async def _object(self, call: Call, resource: Resource) -> RawObject:
        api, key = self.api, call.key
        sent = orjson.loads(call.body) if call.body else {}
        match call.method, call.subresource:
            case "GET", _ if not key.name:
                listing = await api.list(resource)
                return {"metadata": {"resourceVersion": str(listing.revision)}, "items": listing.items}
            case "GET", _:
                return await api.get(resource, key)
            case "PUT", "status":
                return await api.update_status(resource, sent)
            case "PUT", _:
                return await api.update(resource, sent)
            case "PATCH", "status":
                return await api.patch_status(resource, key, sent)
            case "PATCH", _:
                return await api.patch(resource, key, sent)
            case "POST", "binding" if resource == PODS:
                metadata = sent["metadata"]
                version = metadata.get("resourceVersion", "")
                await api.bind_pod(key, sent["target"]["name"], uid=metadata.get("uid", ""), resource_version=version)
                return {"kind": "Status", "status": "Success"}
            case "POST", _:
                return await api.create(resource, sent)
        raise ApiError(405, "MethodNotAllowed", f"{call.method} {call.path}")


_ALLOWED: Final[RawObject] = {"status": {"allowed": True}}


async def _run(file: Path) -> None:
    api = MemoryApi(now=lambda: datetime.now(UTC), new_uid=lambda: str(uuid.uuid4()))
    with file.open("rb") as lines:
        for each in map(orjson.loads, lines):
            api.load(RESOURCES[each["kind"]], each)
    history = History()
    api.follow(history)
    server = await asyncio.start_server(partial(ApiServer.serve, ApiServer(api, history)), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("objects", type=Path)
    uvloop.run(_run(parser.parse_args().objects))


if __name__ == "__main__":
    main()
