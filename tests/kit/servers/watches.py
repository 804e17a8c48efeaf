"""Watches of an API server for tests: the changes of a kind, and the lines that a watch gets of them."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from extender.kube.api import RawObject
from extender.kube.encoding import dumps
from extender.kube.resources import Resource

BOOKMARK_SECONDS: Final = 60.0
"""Between bookmarks; there is another one two seconds before a watch ends."""

_BEFORE_END_SECONDS: Final = 2.0
_EXPIRED: Final = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


@dataclass(slots=True)
class WatchedChanges:
    """The changes of one kind.

    Attributes:
        lines: revision and line of each change, ascending.
        forgotten: the revision of the latest change that is not known any more.
        changed: is set at the next change.
    """

    lines: list[tuple[int, bytes]] = field(default_factory=list)
    forgotten: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, revision: int, what: str, obj: RawObject) -> None:
        """Something has happened to an object."""
        self.lines.append((revision, line_of(what, obj)))
        self.changed.set()
        self.changed = asyncio.Event()

    def forget(self) -> None:
        """Forget all changes: a watch that has not seen them has to list again."""
        if self.lines:
            self.forgotten = self.lines[-1][0]
            self.lines.clear()

    def after(self, revision: int) -> list[tuple[int, bytes]]:
        """The changes after a revision."""
        return self.lines[bisect_right(self.lines, revision, key=itemgetter(0)) :]


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch of one kind.

    Attributes:
        resource: the kind.
        changes: of the kind.
        revision: the newest revision of the server.
        listed: all objects of the kind, for a watch that begins with them.
        has_bookmarks: whether the server sends bookmarks while nothing happens.
    """

    resource: Resource
    changes: WatchedChanges
    revision: Callable[[], int]
    listed: Callable[[], Awaitable[Iterable[RawObject]]]
    has_bookmarks: bool = True

    async def lines(self, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """What a request gets, until its time is over."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + float(query["timeoutSeconds"])
        since = int(query.get("resourceVersion", self.revision()))
        if "sendInitialEvents" in query:
            since, objects = self.revision(), await self.listed()
            for each in objects:
                yield line_of("ADDED", each)
            yield self._bookmark(since, {"k8s.io/initial-events-end": "true"})
        bookmark_at = min(clock() + BOOKMARK_SECONDS, deadline - _BEFORE_END_SECONDS)
        while clock() < deadline:
            if since < self.changes.forgotten:
                yield expired()
                return
            news = self.changes.after(since)
            for at, line in news:
                since = at
                yield line
            if news:
                continue  # while they were on their way, others may have come
            if self.has_bookmarks and clock() >= bookmark_at:
                since, bookmark_at = self.revision(), clock() + BOOKMARK_SECONDS
                yield self._bookmark(since, {})
            else:
                await _until(self.changes.changed, min(deadline, bookmark_at) if self.has_bookmarks else deadline)

    def _bookmark(self, at: int, annotations: Mapping[str, str]) -> bytes:
        metadata = {"resourceVersion": str(at), "annotations": dict(annotations)}
        return line_of("BOOKMARK", {"kind": self.resource.kind, "metadata": metadata})


async def _until(changed: asyncio.Event, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await changed.wait()
    except TimeoutError:
        return


def line_of(what: str, obj: RawObject) -> bytes:
    """The line of a watch that tells of an object."""
    return b'{"type":"%b","object":%b}\n' % (what.encode(), dumps(obj))


def expired() -> bytes:
    """The line of a watch that begins at a revision that is too old."""
    return line_of("ERROR", _EXPIRED)
