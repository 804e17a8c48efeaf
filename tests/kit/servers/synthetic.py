"""An API server that only reads, as fast as it can, from what it has serialised beforehand.

``python -m tests.kit.servers.synthetic --nodes 5000 --claims 20000 --pods 50000`` prints the port that it listens on.
Lists come in a stream, or with ``--pages`` in pages; ``--events`` a second flow once ``/start`` was asked for.
Watches never end.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Final
from urllib.parse import parse_qsl

import orjson
import uvloop

from tests.kit.objects import synthetic
from tests.kit.objects.synthetic import RawObject

_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "/api/v1": ("nodes", "pods"),
    "/apis/policy/v1": ("poddisruptionbudgets",),
    "/apis/resource.k8s.io/v1": ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"),
}
DISCOVERY: Final[Mapping[str, RawObject]] = {
    "/api": {"versions": ["v1"]},
    "/apis/policy": {"versions": [{"version": "v1"}]},
    "/apis/resource.k8s.io": {"versions": [{"version": "v1"}]},
    **{path: {"resources": [{"name": name} for name in names]} for path, names in _GROUPS.items()},
}
STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_TICKS: Final = 50
"""In which the events of a second come."""

_HIGH_WATER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many objects of a kind."""

    nodes: int
    claims: int
    pods: int
    pods_with_claims: int
    events: int
    pages: bool


@dataclass(slots=True)
class Cluster:
    """The objects as lines of a watch, and who watches."""

    lines: Mapping[str, list[bytes]]
    revision: int
    watchers: dict[str, asyncio.StreamWriter] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Sizes) -> "Cluster":
        """Make everything up."""
        revisions = count(1000)
        made: dict[str, list[bytes]] = {plural: [] for names in _GROUPS.values() for plural in names}
        for plural, number, make in _makers(sizes):
            made[plural] = [event_line("ADDED", make(index, next(revisions))) for index in range(number)]
        return cls(made, next(revisions))

    def events(self, sizes: Sizes) -> Iterator[tuple[str, bytes]]:
        """Changes without end, of 20: 10 of pods (2 with claims), 5 of nodes, 4 of claims, 1 of a slice."""
        makers = {plural: (number, make) for plural, number, make in _makers(sizes)}
        order = ("pods", "nodes", "pods", "resourceclaims") * 4 + ("pods", "nodes", "pods", "resourceslices")
        for step, plural in enumerate(cycle(order)):
            number, make = makers[plural]
            self.revision += 1
            yield plural, event_line("MODIFIED", make(step * 7919 % number, self.revision))


def _makers(sizes: Sizes) -> list[tuple[str, int, Callable[[int, int], RawObject]]]:
    def make_pod(index: int, revision: int) -> RawObject:
        every = max(1, sizes.pods // max(1, sizes.pods_with_claims))
        return synthetic.pod(index, revision, claims=index % every == 0)

    return [
        ("nodes", sizes.nodes, synthetic.node),
        ("resourceslices", sizes.nodes, synthetic.resource_slice),
        ("deviceclasses", 10, synthetic.device_class),
        ("resourceclaims", sizes.claims, synthetic.claim),
        ("pods", sizes.pods, make_pod),
    ]


def event_line(kind: str, obj: RawObject) -> bytes:
    """An event, as a watch tells it."""
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def chunk(data: bytes) -> bytes:
    """A piece of a body that comes bit by bit."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _answer(cluster: Cluster, sizes: Sizes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection until it ends."""
    tasks = []
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = head.lower().partition("content-length:")[2].partition("\r\n")[0]
            await reader.readexactly(int(length or 0))
            path, _, text = head.split(" ")[1].partition("?")
            query = dict(parse_qsl(text))
            plural = path.rpartition("/")[2]
            if path == "/start":
                tasks.append(asyncio.create_task(_flow(cluster, sizes)))
            if "sendInitialEvents" in query and sizes.pages:
                writer.write(b"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n")
            elif "sendInitialEvents" in query:
                writer.write(STREAM_HEAD)
                await listed(writer, cluster.lines[plural], cluster.revision)
            elif "watch" in query:
                writer.write(STREAM_HEAD)
                cluster.watchers[plural] = writer
            elif "limit" in query:
                _write(writer, _page(cluster, plural, int(query.get("continue", "0")), int(query["limit"])))
            else:
                _write(writer, orjson.dumps(DISCOVERY.get(path, {"status": {"allowed": True}})))
    except (asyncio.IncompleteReadError, ConnectionError):
        for task in tasks:
            task.cancel()
        for plural in [plural for plural, watcher in cluster.watchers.items() if watcher is writer]:
            del cluster.watchers[plural]
        writer.close()


def _write(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def _page(cluster: Cluster, plural: str, start: int, limit: int) -> bytes:
    """A page of a list; the token is where the next one starts."""
    lines = cluster.lines[plural]
    items = [line.partition(b'"object":')[2][:-2] for line in lines[start : start + limit]]
    token = {"continue": str(start + limit)} if start + limit < len(lines) else {}
    metadata = orjson.dumps({"resourceVersion": str(cluster.revision), **token})
    return b'{"metadata":%b,"items":[%b]}' % (metadata, b",".join(items))


async def listed(writer: asyncio.StreamWriter, lines: Iterable[bytes], revision: int) -> None:
    """The list at the start of a watch."""
    for each in lines:
        writer.write(chunk(each))
        if writer.transport.get_write_buffer_size() > _HIGH_WATER:
            await writer.drain()
    metadata = {"resourceVersion": str(revision), "annotations": {"k8s.io/initial-events-end": "true"}}
    writer.write(chunk(event_line("BOOKMARK", {"metadata": metadata})))
    await writer.drain()


async def _flow(cluster: Cluster, sizes: Sizes) -> None:
    """So many events a second, to whoever watches."""
    events = cluster.events(sizes)
    clock = asyncio.get_running_loop().time
    due = clock()
    while True:
        for _ in range(sizes.events // _TICKS):
            plural, line = next(events)
            watcher = cluster.watchers.get(plural)
            if watcher is not None and not watcher.is_closing():
                watcher.write(chunk(line))
        due += 1 / _TICKS
        await asyncio.sleep(due - clock())


async def _serve(sizes: Sizes) -> None:
    cluster = Cluster.of(sizes)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer(cluster, sizes, reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("nodes", "claims", "pods", "pods-with-claims", "events"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--pages", action="store_true", help="lists come in pages only")
    uvloop.run(_serve(Sizes(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
