"""The feed: what has changed, told to all open pages at once.

A few times a second, while a page is open, the feed looks at what has changed, and makes one message of it. All pages
get the same bytes. A page that asks for messages that are no longer kept is told to read everything again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple

import orjson
import structlog

from allocator.tools import JSON
from extender.answers.observe.fleet import Fleet
from extender.answers.observe.overview import Overview, decision_item
from extender.answers.observe.tables.pods import WaitingReasons, pod_item, waiting_reasons
from extender.cluster.kinds import Topic
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach
from extender.framework.decision_log import DecisionEntry
from extender.framework.pod_and_claim_states import PodState, state_of_pod
from extender.kube.api import ObjectKey

PERIOD: Final = 0.4
"""Seconds between two looks."""

_PAUSE: Final = 19
"""The pause after a look, in times of its duration: so the looks take at most a twentieth of the time."""

MOST_READERS: Final = 64
"""Pages that are open at the same time. Each takes a connection of the listener, and there are 128 at least."""

_READING_SECONDS: Final = 60.0
"""The longest time of one stream. The browser connects again at once, so a lost right ends the stream within it."""

_SILENCE: Final = 10.0
"""Seconds without a message after which the page is told that the connection lives."""

_ALIVE: Final = b"event: alive\ndata: {}\n\n"
"""Without a number: the page stays where it is."""

_MOST_DECISIONS: Final = 200
_MOST_ROWS: Final = 1000
"""The most pools and the most pods of one message; for more, it is quicker to read everything again."""

_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Of the latest messages together: pages that are slower than that read everything again."""

_ALL_POOLS: Final = frozenset({Topic.TAINT_RULE, Topic.CLASS})
"""Changes of these may concern any pool or the page itself. They are rare."""

logger = structlog.get_logger()


class _Message(NamedTuple):
    number: int
    data: bytes


class FullError(Exception):
    """Too many pages are open."""

    def __init__(self) -> None:
        super().__init__(f"{MOST_READERS} pages are open already; close one")


class Feed:
    """Messages for pages, in the format of Server-Sent Events.

    Args:
        overview: what has changed.
        fleet: makes the rows of pools.
        is_stopping: whether the service stops; all streams end then.
        first: the number of the first message. It has to be another one in each process: pages of another process,
            before a restart or behind the same address, have other numbers, so they read everything again.
    """

    def __init__(self, overview: Overview, fleet: Fleet, is_stopping: Callable[[], bool], first: int) -> None:
        self._overview = overview
        self._fleet = fleet
        self._is_stopping = is_stopping
        self._messages: deque[_Message] = deque()
        self._number = first
        self._version = self._decision = 0
        self._doubt = ""
        self._readers = 0
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._restart()

    def position(self) -> int:
        """The number of the latest message. A page that reads the cluster after this call follows from here."""
        if not self._readers:
            self._skip()
        return self._number

    def open(self, after: int) -> AsyncIterator[bytes]:
        """The messages after a number, as they come, for a minute.

        Raises:
            FullError: too many pages are open.
        """
        if self._readers >= MOST_READERS:
            raise FullError
        return self._follow(after)

    async def _follow(self, after: int) -> AsyncIterator[bytes]:
        self._readers += 1  # not before the first message is asked for: a stream that nobody reads has no end
        try:
            ends = asyncio.get_running_loop().time() + _READING_SECONDS
            yield b"retry: 500\n\n"
            while asyncio.get_running_loop().time() < ends and not self._is_stopping():
                if self._looking is None or self._looking.done():
                    self._looking = asyncio.create_task(self._follow_changes())
                news = self._news
                data = self._after(after)
                if data:
                    after = self._number
                    yield data
                    continue
                try:
                    async with asyncio.timeout(_SILENCE):
                        await news.wait()
                except TimeoutError:
                    yield _ALIVE
        finally:
            self._readers -= 1

    def _after(self, number: int) -> bytes:
        """All messages after one in a piece; empty if there are none."""
        if number == self._number:
            return b""
        if number > self._number or not self._messages or number < self._messages[0].number - 1:
            return _message(self._number, b"reset", b"{}")
        return b"".join(each.data for each in self._messages if each.number > number)

    async def _follow_changes(self) -> None:
        """Look for changes until no page is open."""
        loop = asyncio.get_running_loop()
        took = 0.0
        while self._readers:
            await asyncio.sleep(max(PERIOD, took * _PAUSE))
            if self._is_stopping():
                self._wake()
                return
            started = loop.time()
            try:
                await self._tell_changes()
            except Exception:  # a fault of one look must not end the others
                logger.exception("changes for the console failed")
                self._restart()
                self._wake()
            took = loop.time() - started

    async def _tell_changes(self) -> None:
        state, log, last = self._overview.state, self._overview.decision_log, self._decision
        snapshot = state.snapshot
        decisions = tuple(takewhile(lambda each: each.number > last, log.entries))
        doubt = state.not_ready
        if snapshot.version == self._version and doubt == self._doubt and not decisions:
            return
        reach, document = state.since(self._version), None
        if reach.changed is not None and reach.changed.keys().isdisjoint(_ALL_POOLS):
            document = await self._overview.off_loop(partial(self._document, snapshot, reach, decisions))
        self._version = snapshot.version
        self._decision = decisions[0].number if decisions else last
        if document is None:
            self._restart()
        elif document or doubt != self._doubt:
            document["doubt"] = self._doubt = doubt
            self._number += 1
            self._keep(_Message(self._number, _message(self._number, b"changes", orjson.dumps(document))))
        self._wake()

    def _document(
        self, snapshot: Snapshot, reach: Reach, decisions: tuple[DecisionEntry, ...]
    ) -> dict[str, JSON] | None:
        """What a message says; empty if nothing, None if it is too much for one message."""
        pools = reach.pools(snapshot) or ()
        pods = dict.fromkeys([*(reach.keys(Topic.POD) or ()), *(each.pod for each in decisions)])
        if self._overview.unasked is not None:  # what has changed may be why any pod waits
            pods |= dict.fromkeys(key for key, pod in snapshot.pods.items() if state_of_pod(pod) is PodState.PENDING)
        if len(pools) > _MOST_ROWS or len(pods) > _MOST_ROWS:
            return None
        found: dict[str, JSON] = {}
        if pools:
            found["pools"] = [{"driver": each.driver, "pool": each.pool} for each in pools]
            found.update(self._fleet.document(snapshot, pools))
        if pods:
            waiting = waiting_reasons(self._overview, snapshot)
            found["pods"] = [self._pod(key, snapshot, waiting) for key in pods]
        if decisions:
            found["decisions"] = [dict(decision_item(each)) for each in decisions[:_MOST_DECISIONS]]
            found["skipped"] = max(0, len(decisions) - _MOST_DECISIONS)
        return found

    def _pod(self, key: ObjectKey, snapshot: Snapshot, waiting: WaitingReasons) -> JSON:
        """The row of a pod; only its name if it is gone, or needs no devices."""
        pod = snapshot.pods.get(key)
        if pod is None:
            return {"namespace": key.namespace, "pod": key.name}
        return dict(pod_item(pod, snapshot, waiting, self._overview.now()))

    def _keep(self, message: _Message) -> None:
        self._messages.append(message)
        while sum(len(each.data) for each in self._messages) > _KEPT_BYTES:
            self._messages.popleft()

    def _skip(self) -> None:
        """Go on from the present if anything has changed that no page was told."""
        log, version = self._overview.decision_log, self._overview.state.snapshot.version
        if (version, next((each.number for each in log.entries), 0)) != (self._version, self._decision):
            self._restart()

    def _restart(self) -> None:
        """Go on from the present without telling what has changed: pages read everything again."""
        self._version = self._overview.state.snapshot.version
        self._decision = next((each.number for each in self._overview.decision_log.entries), 0)
        self._messages.clear()
        self._number += 1

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _message(number: int, event: bytes, data: bytes) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, event, data)
