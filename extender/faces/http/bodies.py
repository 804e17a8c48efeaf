"""Bodies of requests: limits on the length of one, on its number of values, and on all bodies together.

What a body takes when it is decoded is counted before, and taken from the budget of memory. Callers have shares of
this memory and of the time for decoding.

A body may be YAML, as people write Pods: it becomes the JSON that the same readers and limits take.
"""

import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from allocator import InvalidObjectError
from allocator.tools import shown
from extender.framework.wire import WireError
from extender.kube.encoding import dumps
from extender.tools.fairness import Places
from extender.tools.intake import Budget, Room, Source, json_weight, marks_of
from extender.tools.offload import Offload, frameless, in_thread, to_the_end
from extender.tools.yamltext import SyntaxProblem, documents

_Decoded = TypeVar("_Decoded")

FREE_BYTES: Final = 256 * 1024
"""A body of this length is decoded on the event loop, one at a time, unless it has many objects. The names of 5,000
nodes are half of this."""

LOOKED_BYTES: Final = 16 * 1024
"""A body of this length is decoded in less than half a millisecond, whatever it has."""

MOST_OBJECTS: Final = 2_000
"""Objects and lists of a body that is decoded on the event loop: 0.3 ms. A Pod has some hundreds. With 32,000, which
256 KiB may have, one body takes 5 ms, and those of 200 connections a second."""

SHORT_PAUSE: Final = 3
"""The pause after a body of up to `FREE_BYTES` that was decoded in a thread, in times of its duration."""

TEXT_BYTES: Final = 2 * 1024 * 1024
"""The longest stretch of a body without a quotation mark. An API server stores no object of this length. One emoji
makes each character of its text take four bytes: to decode 20 MB would keep the interpreter busy for 0.2 s."""

TOO_DEEP: Final = "the body is nested too deeply"

_OF_CALLER: Final = 0.8
"""The share of one caller of the memory for requests."""

UNCOUNTED_BYTES: Final = 48 * 1024
"""Bytes of each body that do not count as those of all bodies together; 1,280 connections hold 60 MiB."""

HEAD_BYTES: Final = 1024
"""Within these first bytes, kube-scheduler names the namespace of its pod."""

_NAMESPACE: Final = re.compile(rb'"namespace"\s*:\s*"([a-z0-9-]{1,63})"')

BYTES_A_VALUE: Final = 8
"""The smallest average in a body longer than `FREE_BYTES`. Bodies of kube-scheduler have 13 to 20. A decoded value
takes 60 bytes or more: 45 MB of ``[]`` would take a gigabyte, and would stop everything for seconds."""

SMALL_BYTES: Final = 64 * 1024
"""Longest body of a verb that is sent only names: four names of the greatest length, written as escapes, take 6 KiB."""


class TooLargeError(Exception):
    """A body is over the limit."""


class BusyError(Exception):
    """The bodies of other requests leave no room for this one."""


class Bodies:
    """The room that bodies in use take, and the turns in which they are decoded.

    Args:
        limit: bytes of the longest body, and of all bodies together; `UNCOUNTED_BYTES` of each body do not count.
        budget: of memory.
        source: whose part of it. Schedulers are one caller, which may have all of theirs.
        clock: measures how long callers have a place for decoding, in seconds.
        off_loop: where bodies are decoded.

    Attributes:
        most: bytes of the budget that the bodies of one caller take.
    """

    def __init__(
        self,
        limit: int,
        budget: Budget,
        source: Source = Source.REQUESTS,
        clock: Callable[[], float] = time.monotonic,
        off_loop: Offload = in_thread,
    ) -> None:
        self.limit = limit
        self.budget = budget
        self.source = source
        share = budget.share(source)
        self.most = share if source is Source.SCHEDULERS else int(share * _OF_CALLER)
        self._taken = 0
        self._of_callers: Counter[str] = Counter()
        self._places = Places(1, 1, clock)
        self._decoding = frameless(off_loop, WireError, InvalidObjectError, TooLargeError)

    @property
    def taken(self) -> int:
        """Bytes of all bodies in use."""
        return self._taken

    def take(self, size: int) -> bool:
        """Take more bytes; False if they are not left."""
        is_left = self._taken + size <= self.limit
        self._taken += size if is_left else 0
        return is_left

    def give_back(self, size: int) -> None:
        """Give back bytes that were taken."""
        self._taken -= size

    def weigh(self, caller: str, room: Room, weight: int) -> bool:
        """Let a room of the caller grow; False, and nothing is taken, if there is no memory left."""
        has_room = self._of_callers[caller] + weight <= self.most and room.grow(weight)
        if has_room:
            self._of_callers[caller] += weight
        return has_room

    def close(self, caller: str, room: Room) -> None:
        """Give back what a room of the caller takes."""
        if room.size:
            self._of_callers[caller] -= room.size
            if not self._of_callers[caller]:
                del self._of_callers[caller]
        room.close()

    def whose_turn(self, caller: str, head: bytes) -> str:
        """The turn in which a body is read and decoded: the caller's; in a scheduler's call, the pod's namespace's.

        A scheduler asks for all tenants. So long pods of one namespace delay those of others by one piece, or one body.

        Args:
            caller: who sends it.
            head: the beginning of the body.
        """
        found = _NAMESPACE.search(head, 0, HEAD_BYTES) if self.source is Source.SCHEDULERS else None
        return caller if found is None else f"{caller} {found[1].decode()}"

    async def turn(self, caller: str) -> None:
        """Wait for a turn to look at a piece of a long body: one in a cycle of the loop, in turns by `whose_turn`.

        To look at the bytes of 200 connections at once would keep other calls waiting for 0.1 s. Of what waits for its
        turn, the rest stays at the client.
        """
        await self.budget.pieces.turn(f"{self.source.label} {caller}")

    async def decoded(self, caller: str, decode: Callable[..., _Decoded], body: bytes, *args: object) -> _Decoded:
        """What a function decodes in a thread, or its error. One body at a time, in fair turns of the callers.

        The turns are those of all sources (`DecodingTurns`); up to `LOOKED_BYTES` need none. After a short body,
        nothing is decoded for three times as long as it took: nobody whom we know sends short bodies that take long. A
        scheduler sends its next body after our answer, so its bodies need no pause as long as nothing waits.

        A caller that is cancelled waits: its body is in use. An error about the body comes without its traceback.

        Raises:
            CrowdedError: the bodies of others take long.
        """
        work = partial(_readable, decode, (body, *args))
        with await self._places.take(caller):
            if len(body) <= LOOKED_BYTES:
                return await to_the_end(self._decoding(work))
            async with self.budget.decoding.turn(self.source.label, partial(self._pause, len(body))):
                return await to_the_end(self._decoding(work))

    def _pause(self, size: int, took: float) -> float:
        """Seconds in which nothing is decoded after a body of a size."""
        if self.source is Source.SCHEDULERS and not (self._places.waiting or self.budget.decoding):
            return 0.0
        return took if size > FREE_BYTES else SHORT_PAUSE * took


def is_costly(body: bytes) -> bool:
    """Whether a body of more than `LOOKED_BYTES` takes long to decode, so that it is not decoded on the event loop."""
    if len(body) > FREE_BYTES:
        return True
    marks = marks_of(body[: max(body.rfind(b"["), body.rfind(b"{")) + 1])  # thousands of names follow the last one
    return len(marks) - marks.count(b",") > MOST_OBJECTS


def _readable(decode: Callable[..., _Decoded], args: tuple[object, ...]) -> _Decoded:
    try:
        return decode(*args)
    except RecursionError:
        raise WireError("", TOO_DEEP) from None


class Body:
    """The body of one request, which gives back its room when the context is left.

    Args:
        bodies: of all requests.
        limit: bytes of the longest body, if less than the limit of all requests.
        free: bytes for which no memory is counted. Bodies that are decoded on the event loop are decoded one at a time.
        caller: whose share of the memory it takes.
    """

    def __init__(self, bodies: Bodies, limit: int | None = None, free: int = 0, caller: str = "") -> None:
        self._bodies = bodies
        self._caller = caller
        self._limit = bodies.limit if limit is None else min(limit, bodies.limit)
        self._free = free
        self._taken = 0
        self._room = Room(bodies.budget, bodies.source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._taken or self._room.size:
            self._give_back()

    async def read(self, receive: Receive) -> bytes:
        """The whole body. A refused body is read to its end and not kept: only then does the client read our answer.

        Raises:
            ClientDisconnect: the client is gone.
            TooLargeError: the body is over the limit.
            BusyError: there is no room for the body.
            WireError: the body has too many values for its length, or a text that no Pod or Node has.
        """
        chunks: list[bytes] = []
        size, values, unquoted, more = 0, 0, 0, True
        refusal: Exception | None = None
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if refusal is not None:
                continue
            if size > UNCOUNTED_BYTES:
                head = chunks[0] if chunks else chunk
                await self._bodies.turn(self._bodies.whose_turn(self._caller, head))
            if size > FREE_BYTES:  # chunk by chunk: to count a long body at once would keep other requests waiting
                values += len(marks_of(chunk))
            end = chunk.rfind(b'"')
            unquoted = len(chunk) - end - 1 if end >= 0 else unquoted + len(chunk)
            refusal = self._grow(size) or _too_long(unquoted) or self._weigh(chunk, size)
            chunks.append(chunk)
            if refusal is not None:
                chunks.clear()
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # this frame, with its chunks, is in the error's traceback from now on
        if values * BYTES_A_VALUE > size:
            raise WireError("", f"the body has about {values} values in {size} bytes: neither Pods, Nodes nor names")
        return b"".join(chunks)

    def _grow(self, size: int) -> Exception | None:
        """Take room for a body of this size, or return why there is none."""
        if size > self._limit:
            return TooLargeError(f"the body is longer than the limit of {self._limit} bytes")
        if size > UNCOUNTED_BYTES:
            more = size - UNCOUNTED_BYTES - self._taken
            if not self._bodies.take(more):
                self._give_back()
                others = f"{self._bodies.taken} of {self._bodies.limit} bytes"
                return BusyError(f"the bodies of other requests take {others}; try again")
            self._taken += more
        return None

    def _weigh(self, chunk: bytes, size: int) -> Exception | None:
        """Take memory for a chunk and its values, or return why there is none."""
        if size <= self._free or self._bodies.weigh(self._caller, self._room, json_weight(chunk)):
            return None
        most = self._bodies.most
        is_too_large = self._room.size + json_weight(chunk) > most
        self._give_back()
        if is_too_large:
            return TooLargeError(f"the body takes more than {most} bytes of memory when it is read (memory.limitBytes)")
        return BusyError("other requests leave no memory for the body; try again")

    def _give_back(self) -> None:
        self._bodies.give_back(self._taken)
        self._taken = 0
        self._bodies.close(self._caller, self._room)


def _too_long(unquoted: int) -> Exception | None:
    """Why the last bytes of a body, none of which is a quotation mark, are too many; None if they are not."""
    if unquoted <= TEXT_BYTES:
        return None
    return WireError("", f"the body has a text of more than {TEXT_BYTES} bytes: no Pod, Node or name is as long")


MOST_BYTES: Final = FREE_BYTES
"""The longest body in YAML: a Pod with its managed fields is far shorter. The parser is in C and keeps other threads
waiting, for 65 ms in the worst text of this length that was tried."""

YAML_TYPES: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
"""Media types (RFC 9512, with its older aliases)."""

_SNIFFED: Final = 1024
_JSON_TYPE: Final = "application/json"
_FORM_TYPE: Final = "application/x-www-form-urlencoded"


def is_yaml(body: bytes, content_type: str) -> bool:
    """Whether a body is YAML: by its content type if that says so, else by its first character.

    curl sends the type of a form, or none, whatever the file is. JSON objects and lists begin with a bracket.
    """
    media_type = _media_type(content_type)
    if media_type in YAML_TYPES:
        return True
    return media_type != _JSON_TYPE and body[:_SNIFFED].lstrip()[:1] not in (b"", b"{", b"[")


def from_yaml(body: bytes, content_type: str) -> bytes:
    """The JSON of a body in YAML with one document.

    Raises:
        TooLargeError: the body is longer than `MOST_BYTES`.
        WireError: the body is not YAML, or has more than one document.
    """
    if len(body) > MOST_BYTES:
        raise TooLargeError(f"the body is YAML, and longer than the limit of {MOST_BYTES} bytes for YAML; send JSON")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WireError("", "the body is neither JSON nor YAML: it is not text in UTF-8") from error
    found = [each for each in documents(text) if each is not None]
    problem = next((each for each in found if isinstance(each, SyntaxProblem)), None)
    if problem is not None or (found and not isinstance(found[0], dict)):
        why = problem or f"expected keys and values at the top, not {shown(found[0])}"
        raise WireError("", f"the body is neither JSON nor YAML: {why}{_hint(body, content_type)}")
    if len(found) != 1:
        hint = "" if found else _hint(body, content_type)
        raise WireError("", f"the body has {len(found) or 'no'} YAML documents: expected one, with a Pod{hint}")
    return dumps(found[0])


def _hint(body: bytes, content_type: str) -> str:
    """``curl --data @FILE`` joins the lines of a file, which is a usual mistake with YAML."""
    is_joined = _media_type(content_type) == _FORM_TYPE and b"\n" not in body
    return "; curl --data removes line breaks: use --data-binary" if is_joined else ""


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
