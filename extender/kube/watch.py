"""One connection's worth of what happens to a kind of object: a list, in pages or in a stream, or a watch.

`Follower` strings such connections together.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

import orjson

from extender.kube.api import ApiError, OutcomeUnknownError, RawObject, Resource
from extender.kube.encoding import loads_aside
from extender.kube.list import pages
from extender.kube.raw import Event, EventType, revision_of
from extender.kube.relevance import RELEVANCE, passed_revision
from extender.kube.remote import RemoteApi
from extender.kube.transport import Reply, Request, Stream, TransportError, decoded
from extender.offload import Offload, in_thread

_INITIAL_END: Final = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the list at the start of a stream."""

_LONGEST_TEXT: Final = 200
"""Of a line that is no event, in messages."""

_ADDED: Final = b'{"type":"ADDED"'
_EVENT_TYPES: Final = {each.value: each for each in EventType}


_UNKNOWN_OPTION: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
"""What servers answer that can't start a watch with a list."""


class ListAgainError(Exception):
    """A watch can't go on from where it was."""


class ExpiredError(ListAgainError):
    """The server no longer has what happened since the revision that was asked for."""


class NotUnderstoodError(ListAgainError):
    """A watch has brought something that is no event: nobody can tell what was missed."""


class BrokenWatchError(Exception):
    """A watch was cut, or fell silent; another can go on from where it was."""


class SilentError(BrokenWatchError):
    """Nothing has come for too long: the connection is dead, or the server."""


class OldNewsError(ListAgainError):
    """A watch has brought an event from before its beginning, or from before another one of its events."""


class UnendingListError(ListAgainError):
    """A list in a stream has not come to its end: from now on we ask for pages."""


class _NoStreamingListsError(Exception):
    """The server does not start a watch with a list."""


@dataclass(frozen=True, slots=True)
class Item:
    """An object of a list that has not come to its end yet."""

    object: RawObject


@dataclass(frozen=True, slots=True)
class Listed:
    """The list is complete: there was nothing of the kind but the items before this, as of a revision."""

    at: int


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to a revision has been told; ``ends_list``: the list at the start of the stream included."""

    at: int
    ends_list: bool = False


Signal: TypeAlias = Item | Listed | Event | Bookmark


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The times of a watch, in seconds.

    Watches are short, because their end is the one sign of life that can be relied on: an API server sends bookmarks
    of a kind only where something happened to it, or where its etcd reports progress, and not all do.

    Attributes:
        answer: until the server has begun to answer.
        shortest, longest: after which the server is asked to end a watch, drawn between the two so that not all
            watches begin anew at once.
        silence: without a byte, after which a connection counts as dead; more than any watch may last.
        list: for a list in a stream.
    """

    answer: float = 30.0
    shortest: float = 40.0
    longest: float = 55.0
    silence: float = 65.0
    list: float = 120.0


class Source:
    """Lists and watches of one API server.

    Args:
        lists_at_once: how many lists may be read at a time, which bounds what is in memory undecoded.
        off_loop: where objects are decoded that take long.
    """

    def __init__(
        self,
        api: RemoteApi,
        *,
        random: Callable[[], float],
        rhythm: Rhythm = Rhythm(),
        lists_at_once: int = 2,
        off_loop: Offload = in_thread,
    ) -> None:
        self.api = api
        self._random = random
        self._rhythm = rhythm
        self._gate = asyncio.Semaphore(lists_at_once)
        self._streams_lists = True
        self._off_loop = off_loop

    async def signals(self, resource: Resource, since: int | None) -> AsyncGenerator[Signal, None]:
        """What happens to a kind, for one connection, which ends by itself before long.

        Args:
            resource: the kind.
            since: the revision up to which all is known; None asks for a list, which may be followed by changes.

        Raises:
            ListAgainError: the revision is too old, or what came is no event.
            BrokenWatchError, OutcomeUnknownError: the connection or the server failed.
            ApiError: the server refused.
        """
        if since is not None:
            signals = self._watched(resource, since)
        elif self._streams_lists:
            signals = self._streamed(resource)
        else:
            signals = self._paged(resource)
        try:
            async with aclosing(signals):
                async for signal in signals:
                    yield signal
        except _NoStreamingListsError:
            self._streams_lists = False
            async with aclosing(self._paged(resource)) as signals:
                async for signal in signals:
                    yield signal

    async def _paged(self, resource: Resource) -> AsyncGenerator[Signal, None]:
        """A list in pages."""
        may_matter = RELEVANCE.get(resource.kind)
        at = 0
        async with self._gate, aclosing(pages(self.api, resource)) as read:
            async for page in read:
                at = page.revision
                async for obj in page.objects(may_matter, self._off_loop):
                    yield Item(obj)
        yield Listed(at)

    async def _watched(self, resource: Resource, since: int) -> AsyncGenerator[Signal, None]:
        """A watch from a revision on."""
        rhythm = self._rhythm
        seconds = rhythm.shortest + (rhythm.longest - rhythm.shortest) * self._random()
        query = {"resourceVersion": str(since), "timeoutSeconds": str(int(seconds))}
        newest = since
        async with aclosing(self._lines(resource, query)) as lines:
            async for line in lines:
                signal = await _signal(resource, line, self._off_loop)
                at = revision_of(signal.object) if isinstance(signal, Event) else signal.at
                if isinstance(signal, Event) and 0 < at < newest:
                    raise OldNewsError(f"an event of revision {at}, though {newest} was seen")
                newest = max(newest, at)
                yield signal

    async def _streamed(self, resource: Resource) -> AsyncGenerator[Signal, None]:
        """A list as the start of a watch, of which no more than the list is read.

        Before the bookmark that ends the list there may be changes already: they come after it, in their order.
        """
        query = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            # We give up first, and then ask for pages.
            "timeoutSeconds": str(int(2 * self._rhythm.list)),
        }
        deadline = asyncio.get_running_loop().time() + self._rhythm.list
        try:
            async with (
                self._gate,
                aclosing(self._lines(resource, query)) as lines,
                aclosing(_until_listed(resource, lines, deadline, self._off_loop)) as signals,
            ):
                async for signal in signals:
                    yield signal
        except (SilentError, UnendingListError) as error:
            self._streams_lists = False
            raise UnendingListError(f"a list in a stream: {error}") from error
        except ApiError as error:
            if error.status in _UNKNOWN_OPTION:
                raise _NoStreamingListsError from error
            raise

    async def _lines(self, resource: Resource, query: dict[str, str]) -> AsyncGenerator[bytes, None]:
        """The lines of a watch."""
        rhythm = self._rhythm
        query = {"watch": "true", "allowWatchBookmarks": "true", **query}
        request = Request("GET", self.api.served.path(resource), query)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(rhythm.answer):
                    stream = await stack.enter_async_context(self.api.transport.stream(request))
                    if stream.status != HTTPStatus.OK:
                        await _refuse(request, stream)
            except TimeoutError as error:
                raise OutcomeUnknownError(str(request), f"no answer within {rhythm.answer:g} s") from error
            except TransportError as error:
                raise OutcomeUnknownError(str(request), str(error)) from error
            async with aclosing(_split(stream.chunks(), rhythm.silence)) as lines:
                async for line in lines:
                    yield line


async def _refuse(request: Request, stream: Stream) -> None:
    """Raise what an answer means that is no watch."""
    body = b"".join([chunk async for chunk in stream.chunks()])
    try:
        decoded(request, Reply(stream.status, body, stream.retry_after))
    except ApiError as error:
        if error.status == HTTPStatus.GONE:
            raise ExpiredError(error.message) from error
        raise
    raise OutcomeUnknownError(str(request), f"HTTP {stream.status} is no watch")


async def _split(chunks: AsyncIterator[bytes], silence: float) -> AsyncGenerator[bytes, None]:
    """The lines of a body that comes in chunks."""
    rest = b""
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            raise SilentError(f"silent for {silence:g} s") from error
        except TransportError as error:
            raise BrokenWatchError(str(error)) from error
        if chunk is None:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
    if rest:
        raise BrokenWatchError(f"cut within an event, after {len(rest)} bytes of it")


async def _until_listed(
    resource: Resource, lines: AsyncIterator[bytes], deadline: float, off_loop: Offload
) -> AsyncGenerator[Signal, None]:
    """The list at the start of a stream, and after it the changes that came before its end."""
    clock = asyncio.get_running_loop().time
    may_matter = RELEVANCE.get(resource.kind)
    changes: list[Signal] = []
    async for line in lines:
        if clock() > deadline:
            raise UnendingListError("no end in time")
        if not changes and line.startswith(_ADDED):
            if may_matter is None or may_matter(line):
                yield Item((await _event(line, off_loop))[1])
            continue
        signal = await _signal(resource, line, off_loop)
        if isinstance(signal, Bookmark) and signal.ends_list and signal.at:
            yield Listed(signal.at)
            for change in changes:
                yield change
            return
        changes.append(signal)
    raise BrokenWatchError("the stream ended before its list did")


async def _signal(resource: Resource, line: bytes, off_loop: Offload) -> Event | Bookmark:
    """What one line of a watch says."""
    may_matter = RELEVANCE.get(resource.kind)
    passed = passed_revision(line, may_matter) if may_matter is not None else 0
    if passed:
        return Bookmark(passed)
    kind, obj = await _event(line, off_loop)
    if kind in _EVENT_TYPES:
        return Event(_EVENT_TYPES[kind], resource, obj)
    if kind == "BOOKMARK":
        return _bookmark(obj)
    reason, message = (text if isinstance(text, str) else "" for text in (obj.get("reason"), obj.get("message")))
    text = f"{reason}: {message}"
    if kind == "ERROR" and obj.get("code") == HTTPStatus.GONE:
        raise ExpiredError(text)
    raise NotUnderstoodError(f"{kind} {text}"[:_LONGEST_TEXT])


def _bookmark(obj: RawObject) -> Bookmark:
    at = revision_of(obj)
    if not at:
        raise NotUnderstoodError("a bookmark without a revision")
    annotations = obj["metadata"].get("annotations")
    return Bookmark(at, ends_list=isinstance(annotations, dict) and annotations.get(_INITIAL_END) == "true")


async def _event(line: bytes, off_loop: Offload) -> tuple[str, RawObject]:
    """Type and object of a line."""
    try:
        event = await loads_aside(line, off_loop)
        kind, obj = event["type"], event["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise NotUnderstoodError(f"not an event: {line[:_LONGEST_TEXT]!r}") from error
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise NotUnderstoodError(f"not an event: {line[:_LONGEST_TEXT]!r}")
    return kind, obj
