"""Bodies of requests: how long one may be, how many values it may have, and what all of them may take together."""

from types import TracebackType
from typing import Final, Self

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from extender.verbs.body import WireError

FREE_BYTES: Final = 256 * 1024
"""Of each body, which do not count: the names of 5,000 nodes are half of it. 256 connections hold 64 MiB of them."""

BYTES_A_VALUE: Final = 8
"""In a body longer than `FREE_BYTES`, at least, on average. What kube-scheduler sends has 13 to 20. A value takes 60
bytes and more once it is decoded: 45 MB of ``[]`` would be a gigabyte, and would stop everything for seconds."""

SMALL_BYTES: Final = 64 * 1024
"""Longest body of a verb that is sent a few names: four names of the longest, written as escapes, are 6 KiB."""


class TooLargeError(Exception):
    """A body over the limit."""


class BusyError(Exception):
    """The bodies of other requests take all there is for bodies."""


class Bodies:
    """What the bodies that are being read or worked on take.

    Args:
        limit: longest body, in bytes; all of them together may take as much, what is free apart.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0

    @property
    def taken(self) -> int:
        """Bytes."""
        return self._taken

    def take(self, size: int) -> bool:
        """Take so much more; False: there is not so much left."""
        is_left = self._taken + size <= self.limit
        self._taken += size if is_left else 0
        return is_left

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self._taken -= size


class Body:
    """The body of one request; what it takes is given back when the context is left.

    Args:
        bodies: all of them.
        limit: longest body, in bytes, if that is shorter than that of all.
    """

    def __init__(self, bodies: Bodies, limit: int | None = None) -> None:
        self._bodies = bodies
        self._limit = bodies.limit if limit is None else min(limit, bodies.limit)
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._give_back()

    async def read(self, receive: Receive) -> bytes:
        """The whole body. One that is refused is read to its end and not kept, so that the client gets to our answer.

        Raises:
            ClientDisconnect: the client is gone.
            TooLargeError: the body is over the limit.
            BusyError: there is no room for it.
            WireError: it has too many values for its length.
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
            if size > FREE_BYTES:  # chunk by chunk: to count those of a long body at once would keep others waiting
                values += _values(chunk)
            if refusal is None:
                refusal = self._grow(size)
                chunks.append(chunk)
            else:
                chunks.clear()
        if refusal is not None:
            raise refusal
        if values * BYTES_A_VALUE > size:
            raise WireError("", f"the body has about {values} values in {size} bytes: neither Pods, Nodes nor names")
        return b"".join(chunks)

    def _grow(self, size: int) -> Exception | None:
        """Take what a body of this size takes, or say why not."""
        if size > self._limit:
            return TooLargeError(f"the body is longer than the limit of {self._limit} bytes")
        if size > FREE_BYTES:
            more = size - FREE_BYTES - self._taken
            if not self._bodies.take(more):
                self._give_back()
                others = f"{self._bodies.taken} of {self._bodies.limit} bytes"
                return BusyError(f"the bodies of other requests take {others}; try again")
            self._taken += more
        return None

    def _give_back(self) -> None:
        self._bodies.give_back(self._taken)
        self._taken = 0


def _values(json: bytes) -> int:
    """About how many values there are: each but the outermost comes after one of these."""
    return json.count(b",") + json.count(b"[") + json.count(b"{")
