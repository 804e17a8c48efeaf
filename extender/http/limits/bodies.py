"""Bodies of requests: limits on the length of one, on its number of values, and on all bodies together.

What a body takes when it is decoded is counted before, and taken from the budget of memory.
"""

from types import TracebackType
from typing import Final, Self

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from extender.tools.intake import Budget, Room, Source, json_weight
from extender.verbs.wire import WireError

FREE_BYTES: Final = 256 * 1024
"""A body of this length is decoded on the event loop, one at a time. The names of 5,000 nodes are half of this."""

UNCOUNTED_BYTES: Final = 48 * 1024
"""Bytes of each body that do not count as those of all bodies together; 1,280 connections hold 60 MiB."""

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
    """The room that bodies in use take.

    Args:
        limit: bytes of the longest body, and of all bodies together; `UNCOUNTED_BYTES` of each body do not count.
        budget: of memory.
    """

    def __init__(self, limit: int, budget: Budget) -> None:
        self.limit = limit
        self.budget = budget
        self._taken = 0

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


class Body:
    """The body of one request, which gives back its room when the context is left.

    Args:
        bodies: of all requests.
        limit: bytes of the longest body, if less than the limit of all requests.
        free: bytes for which no memory is counted. Bodies that are decoded on the event loop are decoded one at a time.
    """

    def __init__(self, bodies: Bodies, limit: int | None = None, free: int = 0) -> None:
        self._bodies = bodies
        self._limit = bodies.limit if limit is None else min(limit, bodies.limit)
        self._free = free
        self._taken = 0
        self._room = Room(bodies.budget, Source.REQUESTS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._give_back()

    async def read(self, receive: Receive) -> bytes:
        """The whole body. A refused body is read to its end and not kept: only then does the client read our answer.

        Raises:
            ClientDisconnect: the client is gone.
            TooLargeError: the body is over the limit.
            BusyError: there is no room for the body.
            WireError: the body has too many values for its length.
        """
        chunks: list[bytes] = []
        size, values, more = 0, 0, True
        refusal: Exception | None = None
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > FREE_BYTES:  # chunk by chunk: to count a long body at once would keep other requests waiting
                values += _values(chunk)
            if refusal is None:
                refusal = self._grow(size) or self._weigh(chunk, size)
                chunks.append(chunk)
            else:
                chunks.clear()
        if refusal is not None:
            raise refusal
        if not values and size > SMALL_BYTES:  # a quick look: names of nodes are no objects
            values = sum(chunk.count(b"{") + chunk.count(b"[") for chunk in chunks)
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
        if size <= self._free or self._room.grow(json_weight(chunk)):
            return None
        most = self._bodies.budget.share(Source.REQUESTS)
        is_too_large = self._room.size + json_weight(chunk) > most
        self._give_back()
        if is_too_large:
            return TooLargeError(f"the body takes more than {most} bytes of memory when it is read (memory.limitBytes)")
        return BusyError("other requests leave no memory for the body; try again")

    def _give_back(self) -> None:
        self._bodies.give_back(self._taken)
        self._taken = 0
        self._room.close()


def _values(json: bytes) -> int:
    """About how many values there are: one of these characters precedes each value but the outermost."""
    return json.count(b",") + json.count(b"[") + json.count(b"{")
