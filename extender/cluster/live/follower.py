"""Keeps the cache of a kind of object current: lists, watches, watches again, and lists again where needed.

After a failure it tries again, each time after a longer pause. If nothing was heard for too long, the kind is in doubt.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NoReturn

import structlog

from extender.cluster.cluster_state import NOT_SYNCED, ClusterState
from extender.cluster.relist import Relist
from extender.cluster.snapshot import EMPTY
from extender.kube.connection.transport import TooManyRequestsError
from extender.kube.discovery import NotServedError
from extender.kube.errors import ApiError, OutcomeUnknownError, UnreachableError
from extender.kube.raw import Event, key_of, revision_of
from extender.kube.resources import Resource
from extender.kube.watch import Bookmark, BrokenWatchError, ListAgainError, ListedObject, ListEnd, WatchSource

_log = structlog.get_logger()

_FAILURES: Final = (ListAgainError, BrokenWatchError, ApiError, OutcomeUnknownError)


@dataclass(frozen=True, slots=True)
class FollowTiming:
    """When to try again, and what counts as too old; in seconds.

    Attributes:
        first: pause after a failure; doubled after each further failure in a row.
        longest: longest pause, unless the server asks for more.
        unreached: longest pause after a connection that could not be made. The next try costs the server nothing, and
            pods wait for it to come back.
        longest_asked: longest pause that a server may ask for; shorter than `stale`.
        stale: age of the last sign of life after which the kind is in doubt; the end of a watch is a sign of life.
        brief: a watch that ends sooner is a failure and no sign of life.
        absent: between two looks for an optional kind that the server lacks.
        yield_seconds: of work without a pause, after which other tasks on the event loop run. All kinds may be listed
            at the same time, and then that many such spans follow each other.
    """

    first: float = 0.25
    longest: float = 10.0
    unreached: float = 2.0
    longest_asked: float = 30.0
    stale: float = 90.0
    brief: float = 1.0
    absent: float = 60.0
    yield_seconds: float = 0.001

    def pause(self, failures: int, random: float, *, reached: bool = True) -> float:
        """Seconds to wait after some failures in a row.

        Args:
            failures: how many.
            random: from 0 to 1.
            reached: whether the last failure had a connection.
        """
        if failures == 0:
            return 0.0
        longest = self.longest if reached else self.unreached
        return min(longest, self.first * 2.0 ** min(failures - 1, 30)) * (0.5 + random / 2)


class Yielder:
    """Lets other tasks on the event loop run in between, however long the work is."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began = clock()

    async def pause(self) -> None:
        """Let other tasks run if the work has been going on for long. Call this after each piece of work."""
        if self._clock() - self._began >= self._seconds:
            await asyncio.sleep(0)
            self._began = self._clock()


def _now() -> float:
    return asyncio.get_running_loop().time()


class Follower:
    """Keeps a cache up to date about one kind.

    Attributes:
        lists: how many lists were taken in so far.
        events: how many events were taken in so far.
        failures: how many connections have failed so far.
    """

    def __init__(
        self,
        resource: Resource,
        source: WatchSource,
        cache: ClusterState,
        *,
        random: Callable[[], float],
        timing: FollowTiming = FollowTiming(),
    ) -> None:
        self.resource = resource
        self._source = source
        self._cache = cache
        self._random = random
        self._timing = timing
        self._yielder = Yielder(timing.yield_seconds)
        self._since: int | None = None
        self._version: str | None = None
        self._newest = 0
        self._heard_at: float | None = None
        self._doubted = True
        self._absent = self._listed = False
        self.lists = self.events = self.failures = 0
        self._failures = 0
        self._brought = 0
        self._connected: asyncio.Timeout | None = None
        self._problems = EMPTY.problems

    async def run(self) -> NoReturn:
        """Follow until cancelled."""
        while True:
            try:
                pause = await self._connect()
            except Exception:  # noqa: BLE001 - it is logged, and the other kinds are followed as before
                pause = self._doubt_all()
            await asyncio.sleep(pause)

    def age(self, now: float) -> float | None:
        """Seconds since the last sign of life, by the event loop's clock; None if there was none yet."""
        if self._heard_at is None:
            return None
        return 0.0 if self._absent else now - self._heard_at

    def check(self, now: float) -> None:
        """Put the kind in doubt if the last sign of life was too long ago; it is listed again then."""
        age = self.age(now)
        if age is not None and age > self._timing.stale and not self._doubted:
            self._doubted = True
            self._cache.doubt(self.resource, f"nothing heard for more than {self._timing.stale:g} s")
            _log.warning("stale", resource=str(self.resource), seconds=round(age))
            if self._connected is not None and self._since is not None:
                self._connected.reschedule(_now())

    # --- one connection -------------------------------------------------------------------------------------

    async def _connect(self) -> float:
        """Take in what one connection tells; returns the seconds to wait until the next one."""
        version = self._source.api.served.versions.get(self.resource.kind)
        if self._doubted or version != self._version:
            self._since = None
        self._version = version
        self._brought = 0
        began, is_watch = _now(), self._since is not None
        try:
            ended_by_itself = await self._take_all()
        except _FAILURES as error:
            return await self._recover(error)
        if is_watch and ended_by_itself and _now() - began >= self._timing.brief:
            self._heard_at, self._failures = _now(), 0
        elif not self._brought:
            self._failures += 1
        return self._timing.pause(self._failures, self._random())

    async def _take_all(self) -> bool:
        """Take in what a connection tells until it ends by itself; False if the kind was put in doubt before.

        Events of a watch may be old then; only a list shows how far behind the watch is.
        """
        relist: Relist | None = None
        try:
            async with asyncio.timeout(None) as self._connected:
                async with aclosing(self._source.signals(self.resource, self._since)) as signals:
                    async for signal in signals:
                        if isinstance(signal, ListedObject):
                            relist = relist or self._cache.relist(self.resource)
                            relist.add(key_of(signal.object), signal.object)
                        elif isinstance(signal, ListEnd):
                            self._take_list(relist or self._cache.relist(self.resource), signal.at)
                            relist = None
                        elif self._doubted:
                            return False
                        else:
                            self._take_change(signal)
                        del signal  # the next one may be long in coming
                        await self._yielder.pause()
        except TimeoutError:
            return False
        finally:
            self._connected = None
        return True

    def _take_list(self, relist: Relist, at: int) -> None:
        if not self._cache.take(relist, at):
            raise ListAgainError(f"a list as of {at}, though {self._newest} was seen")
        self._doubted, self._listed = False, True
        self.lists += 1
        self._passed(at)
        self._tell_problems()

    def _take_change(self, signal: Event | Bookmark) -> None:
        # A list is no success yet: if no watch can go on from it, lists would follow each other without a pause.
        self._failures = 0
        if isinstance(signal, Event):
            self._cache.apply(signal)
            self.events += 1
            self._passed(revision_of(signal.object))
        else:
            self._cache.bookmark(self.resource, signal.at)
            self._passed(signal.at)
        self._tell_problems()

    def _tell_problems(self) -> None:
        """Log why objects can't be read: they count as absent.

        A driver may publish the same mistake again in new revisions: it is logged once.
        """
        before, self._problems = self._problems, self._cache.snapshot.problems
        if self._problems is before:
            return
        for (kind, key), problem in self._problems.items():
            if kind == self.resource.kind and before.get((kind, key)) != problem:
                _log.warning("object can't be read", resource=str(self.resource), object=str(key), problem=str(problem))

    def _passed(self, at: int) -> None:
        self._since = self._newest = max(self._newest, at)
        self._brought += 1
        self._heard_at = _now()

    # --- failures -------------------------------------------------------------------------------------------

    async def _recover(self, error: Exception) -> float:
        """React to a failure; returns the seconds to wait until the next try."""
        self.failures += 1
        self._failures += 1
        if isinstance(error, NotServedError) and self.resource.optional:
            return await self._without()
        if isinstance(error, ListAgainError):
            self._since = None
        if isinstance(error, ApiError):
            await self._recover_from_refusal(error)
        reached = not isinstance(error, UnreachableError)
        pause = self._timing.pause(self._failures, self._random(), reached=reached)
        if isinstance(error, TooManyRequestsError):
            pause = max(pause, min(error.retry_after, self._timing.longest_asked))
        _log.warning("watch failed", resource=str(self.resource), error=str(error), again_in=round(pause, 3))
        return pause

    def _doubt_all(self) -> float:
        """Note that an error in our code may have lost events; returns the seconds until the kind is listed again."""
        self.failures += 1
        self._failures += 1
        self._doubted = True
        self._cache.doubt(self.resource, "following it failed, see the log")
        pause = self._timing.pause(self._failures, self._random())
        _log.exception("following failed", resource=str(self.resource), again_in=round(pause, 3))
        return pause

    async def _recover_from_refusal(self, error: ApiError) -> None:
        # The definition of an optional kind may come before the right to list its objects: their content is not known.
        is_denied = error.status == HTTPStatus.FORBIDDEN and not self._listed
        if is_denied or (self._heard_at is None and not isinstance(error, UnreachableError)):
            # It stays until it works, and tells users why nothing is decided.
            self._doubted = True
            self._cache.doubt(self.resource, f"{NOT_SYNCED}: {error.message}")
        # A server denies before it looks whether it has the kind: the definition may be gone.
        if error.is_missing or (is_denied and self.resource.optional):
            await self._rediscover()

    async def _without(self) -> float:
        """The server lacks the kind, so there are no such objects. It may have the kind later."""
        self._failures, self._since = 0, None
        self._absent = True
        self._listed = self._doubted = False
        self._heard_at = _now()
        self._cache.replace(self.resource, (), self._newest)
        await asyncio.sleep(self._timing.absent * (0.5 + self._random() / 2))
        await self._rediscover()
        self._absent, self._heard_at = False, _now()
        return 0.0

    async def _rediscover(self) -> None:
        try:
            await self._source.api.rediscover()
        except (ApiError, OutcomeUnknownError) as error:
            _log.warning("discovery failed", error=str(error))
