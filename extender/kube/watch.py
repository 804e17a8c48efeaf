"""One connection for a kind of object: a list, in pages or in a stream, or a watch.

`extender.cluster.live.Follower` makes one connection after the other.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

import orjson

from extender.kube.api import ApiError, Event, EventType, OutcomeUnknownError, RawObject, UnreachableError, revision_of
from extender.kube.connection.transport import (
    MOST_BYTES,
    HttpReply,
    HttpRequest,
    NotSentError,
    Stream,
    TransportError,
    decoded,
)
from extender.kube.encoding import loads_aside
from extender.kube.plain_pods import PlainPod, plain_pod, plain_pod_of_event
from extender.kube.remote import RemoteApi, RoomFor, no_room, pages
from extender.kube.resources import PODS, Resource
from extender.tools.intake import Budget, Source, json_weight
from extender.tools.offload import Offload, in_thread, waited_for

_INITIAL_END: Final = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the list at the start of a stream."""

_LONGEST_TEXT: Final = 200
"""Characters of an invalid line that a message quotes."""

_LONG_BYTES: Final = 64 * 1024

_MOST_OF_REFUSAL: Final = 1024 * 1024
"""Bytes of an answer that refuses a watch: a Status has some hundreds."""

_LONGEST_REST: Final = 0.005
"""Seconds: time enough for the steps of a call. All that is known of the cluster waits meanwhile."""

_ADDED: Final = b'{"type":"ADDED"'
_EVENT_TYPES: Final = {each.value: each for each in EventType}


_UNKNOWN_OPTION: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Answers of servers that can't start a watch with a list."""


class ListAgainError(Exception):
    """A watch can't go on from its last revision: the kind has to be listed again."""


class BrokenWatchError(Exception):
    """A watch was cut, or fell silent; another can go on from its last revision."""


class _SilentError(BrokenWatchError):
    """Nothing has come for too long, or the end of a list has not."""


class _NoStreamingListsError(Exception):
    """The server does not start a watch with a list."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object of a list whose end has not come yet."""

    object: RawObject | PlainPod


@dataclass(frozen=True, slots=True)
class ListEnd:
    """The list is complete: all objects of the kind, as of a revision, have come before this."""

    at: int


@dataclass(frozen=True, slots=True)
class Bookmark:
    """All changes up to a revision have come; ``ends_list``: also the list at the start of the stream."""

    at: int
    ends_list: bool = False


Change: TypeAlias = Event | PlainPod
"""What has happened to one object. Of a pod that uses no devices, only what counts is read."""

Signal: TypeAlias = ListedObject | ListEnd | Change | Bookmark


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """The times of a watch, in seconds.

    Watches are short, because only their end is a reliable sign of life: an API server sends bookmarks of a kind only
    after changes of that kind, or if its etcd reports progress.

    Attributes:
        answer: until the head of the answer.
        shortest, longest: bounds for the random time after which the server is asked to end a watch; random, so that
            not all watches start again at once.
        silence: without a byte, until a connection counts as dead; more than a watch may last.
        list: for a list in a stream.
    """

    answer: float = 30.0
    shortest: float = 40.0
    longest: float = 55.0
    silence: float = 65.0
    list: float = 120.0


_LISTS_AT_ONCE: Final = 2
"""Lists that may be read at a time; bounds the memory for lists that are not decoded yet."""


class WatchSource:
    """Lists and watches of one API server.

    Args:
        off_loop: where objects are decoded that take long.
        decodes_all: pods that use no devices are decoded, too.
        budget: for the memory of objects.
    """

    def __init__(
        self,
        api: RemoteApi,
        *,
        random: Callable[[], float],
        timing: WatchTiming = WatchTiming(),
        off_loop: Offload = in_thread,
        decodes_all: bool = False,
        budget: Budget | None = None,
    ) -> None:
        self.api = api
        self._random = random
        self._timing = timing
        self._gate = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._streams_lists = True
        self._off_loop = waited_for(off_loop)
        self._decodes_all = decodes_all
        self._budget = budget or Budget()

    def signals(self, resource: Resource, since: int | None) -> AsyncGenerator[Signal, None]:
        """What one connection tells about a kind. The connection ends by itself after about a minute.

        Args:
            resource: the kind.
            since: watch from this revision; None asks for a list, after which changes may come.

        Raises:
            ListAgainError: the revision is too old, or the server sent something that is no event.
            BrokenWatchError, OutcomeUnknownError: the connection or the server failed.
            UnreachableError: no connection could be made.
            ApiError: the server refused.
        """
        if since is not None:
            return self._watched(resource, since)
        return self._listed(resource) if self._streams_lists else self._paged(resource)

    async def _listed(self, resource: Resource) -> AsyncGenerator[Signal, None]:
        """A list in a stream; in pages if the server does not start a watch with a list."""
        try:
            async with aclosing(self._streamed(resource)) as signals:
                async for signal in signals:
                    yield signal
        except _NoStreamingListsError:
            self._streams_lists = False
            async with aclosing(self._paged(resource)) as signals:
                async for signal in signals:
                    yield signal

    async def _paged(self, resource: Resource) -> AsyncGenerator[Signal, None]:
        """A list in pages."""
        of_plain_pods = self._of_plain_pods(resource)
        at = 0
        async with self._gate, aclosing(pages(self.api, resource)) as read:
            async for page in read:
                at = page.revision
                for item in page.items:
                    text = bytes(item)
                    async with self._room(text):
                        plain = plain_pod(item) if of_plain_pods else None
                        yield ListedObject(plain or await page.decoded(text, self._off_loop))
        yield ListEnd(at)

    async def _watched(self, resource: Resource, since: int) -> AsyncGenerator[Signal, None]:
        """A watch from a revision on."""
        timing = self._timing
        seconds = timing.shortest + (timing.longest - timing.shortest) * self._random()
        query = {"resourceVersion": str(since), "timeoutSeconds": str(int(seconds))}
        newest, of_plain_pods = since, self._of_plain_pods(resource)
        async with self._lines(resource, query) as lines:
            async for line in lines:
                async with self._room(line):
                    plain = plain_pod_of_event(line) if of_plain_pods else None
                    signal = plain or await _signal(resource, line, self._off_loop)
                    newest = _newest(signal, newest)
                    yield signal
                    del signal  # the next event may be long in coming

    async def _streamed(self, resource: Resource) -> AsyncGenerator[Signal, None]:
        """The list at the start of a watch; the rest of the watch is not read.

        Changes may come before the bookmark that ends the list: they are yielded after the end of the list, in order.
        """
        query = {
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            # Longer than our own limit, after which we ask for pages.
            "timeoutSeconds": str(int(2 * self._timing.list)),
        }
        deadline = asyncio.get_running_loop().time() + self._timing.list
        try:
            async with (
                self._gate,
                self._lines(resource, query) as lines,
                aclosing(
                    _until_listed(
                        resource,
                        lines,
                        deadline,
                        self._off_loop,
                        self._room,
                        of_plain_pods=self._of_plain_pods(resource),
                    )
                ) as signals,
            ):
                async for signal in signals:
                    yield signal
        except _SilentError as error:
            self._streams_lists = False
            raise ListAgainError(f"a list in a stream: {error}") from error
        except ApiError as error:
            if error.status in _UNKNOWN_OPTION:
                raise _NoStreamingListsError from error
            raise

    def _of_plain_pods(self, resource: Resource) -> bool:
        """Whether only what counts is read of pods that use no devices."""
        return resource == PODS and not self._decodes_all

    def _room(self, text: bytes) -> AbstractAsyncContextManager[None]:
        """Room for the memory of an object, while it is decoded and taken in; short ones need none."""
        return no_room(text) if len(text) <= _LONG_BYTES else self._room_for_long(text)

    @asynccontextmanager
    async def _room_for_long(self, text: bytes) -> AsyncIterator[None]:
        """Wait for a turn: one long object of all kinds is worked on at a time, in turns with other long input.

        To decode 600 KB of labels, and to take them in, keeps the event loop for 8 ms. An API server sends such objects
        as fast as they are read.
        """
        decoding = self._budget.decoding.turn(Source.API_SERVER.label, partial(min, _LONGEST_REST))
        async with decoding, self._budget.waiting(Source.API_SERVER, json_weight(text)):
            yield

    @asynccontextmanager
    async def _lines(self, resource: Resource, query: dict[str, str]) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """The lines of a watch."""
        timing = self._timing
        query = {"watch": "true", "allowWatchBookmarks": "true", **query}
        request = HttpRequest("GET", self.api.served.path(resource), query)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timing.answer):
                    stream = await stack.enter_async_context(self.api.transport.stream(request))
                    if stream.status != HTTPStatus.OK:
                        await _refuse(request, stream)
            except TimeoutError as error:
                raise OutcomeUnknownError(str(request), f"no answer within {timing.answer:g} s") from error
            except NotSentError as error:
                raise UnreachableError(str(request), str(error)) from error
            except TransportError as error:
                raise OutcomeUnknownError(str(request), str(error)) from error
            async with aclosing(_split(stream.chunks(), timing.silence)) as lines:
                yield lines


async def _refuse(request: HttpRequest, stream: Stream) -> None:
    """Raise the error for an answer that is no watch."""
    pieces, size = list[bytes](), 0
    async for chunk in stream.chunks():
        pieces.append(chunk)
        size += len(chunk)
        if size > _MOST_OF_REFUSAL:
            raise OutcomeUnknownError(str(request), f"HTTP {stream.status} with more than {_MOST_OF_REFUSAL} bytes")
    try:
        decoded(request, HttpReply(stream.status, b"".join(pieces), stream.retry_after))
    except ApiError as error:
        if error.status == HTTPStatus.GONE:
            raise ListAgainError(error.message) from error
        raise
    raise OutcomeUnknownError(str(request), f"HTTP {stream.status} is no watch")


async def _split(chunks: AsyncIterator[bytes], silence: float) -> AsyncGenerator[bytes, None]:
    """The lines of a body that comes in chunks."""
    rest: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            raise _SilentError(f"silent for {silence:g} s") from error
        except TransportError as error:
            raise BrokenWatchError(str(error)) from error
        if chunk is None:
            break
        size += len(chunk)
        if b"\n" in chunk:
            *lines, end = b"".join([*rest, chunk]).split(b"\n")
            rest, size = [end], len(end)
            for line in lines:
                if line:
                    yield line
        else:
            rest.append(chunk)
            if size > MOST_BYTES:
                raise BrokenWatchError(f"an event has more than {MOST_BYTES} bytes")
    if size:
        raise BrokenWatchError(f"cut within an event, after {size} bytes of it")


async def _until_listed(
    resource: Resource,
    lines: AsyncIterator[bytes],
    deadline: float,
    off_loop: Offload,
    room: RoomFor,
    *,
    of_plain_pods: bool,
) -> AsyncGenerator[Signal, None]:
    """The list at the start of a stream, then the changes that came before the end of the list."""
    clock = asyncio.get_running_loop().time
    changes: list[Signal] = []
    async for line in lines:
        if clock() > deadline:
            raise _SilentError("no end in time")
        if not changes and line.startswith(_ADDED):
            async with room(line):
                plain = plain_pod_of_event(line) if of_plain_pods else None
                yield ListedObject(plain or (await _event(line, off_loop))[1])
            continue
        plain = plain_pod_of_event(line) if of_plain_pods else None
        signal = plain or await _signal(resource, line, off_loop)
        if isinstance(signal, Bookmark) and signal.ends_list and signal.at:
            yield ListEnd(signal.at)
            for change in changes:
                yield change
            return
        changes.append(signal)
    raise BrokenWatchError("the stream ended before its list did")


def _later(at: int, newest: int) -> int:
    """The newest revision, after an event of some revision; 0: it is not known."""
    if 0 < at < newest:
        raise ListAgainError(f"an event of revision {at}, though {newest} was seen")
    return max(newest, at)


def _newest(signal: Change | Bookmark, newest: int) -> int:
    """The newest revision, after what a line of a watch tells."""
    return max(newest, signal.at) if isinstance(signal, Bookmark) else _later(signal.revision, newest)


async def _signal(resource: Resource, line: bytes, off_loop: Offload) -> Event | Bookmark:
    """The event or bookmark of one line of a watch."""
    kind, obj = await _event(line, off_loop)
    if kind in _EVENT_TYPES:
        return Event(_EVENT_TYPES[kind], resource, obj)
    if kind == "BOOKMARK":
        return _bookmark(obj)
    reason, message = (text if isinstance(text, str) else "" for text in (obj.get("reason"), obj.get("message")))
    text = f"{reason}: {message}"
    if kind == "ERROR" and obj.get("code") == HTTPStatus.GONE:
        raise ListAgainError(text)
    raise ListAgainError(f"{kind} {text}"[:_LONGEST_TEXT])


def _bookmark(obj: RawObject) -> Bookmark:
    at = revision_of(obj)
    if not at:
        raise ListAgainError("a bookmark without a revision")
    annotations = obj["metadata"].get("annotations")
    return Bookmark(at, ends_list=isinstance(annotations, dict) and annotations.get(_INITIAL_END) == "true")


async def _event(line: bytes, off_loop: Offload) -> tuple[str, RawObject]:
    """Type and object of a line."""
    try:
        event = await loads_aside(line, off_loop)
        kind, obj = event["type"], event["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ListAgainError(f"not an event: {line[:_LONGEST_TEXT]!r}") from error
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise ListAgainError(f"not an event: {line[:_LONGEST_TEXT]!r}")
    return kind, obj
