"""A live cluster: its API server to write to, and the followers that keep a cache of each kind of object current.

A follower lists, watches, watches again, and lists again where needed. After a failure it tries again, each time after
a longer pause. If nothing was heard for too long, the kind is in doubt.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NoReturn

import structlog

from extender.cluster.cluster_state import NOT_SYNCED, ClusterState
from extender.cluster.snapshot import EMPTY
from extender.cluster.snapshot_edit import Relist
from extender.kube.api import ApiError, ConnectError, Event, OutcomeUnknownError, UnreachableError, key_of
from extender.kube.connection.connection import open_connection
from extender.kube.connection.credentials import Origin
from extender.kube.connection.transport import TooManyRequestsError, Transport
from extender.kube.discovery import NotServedError, discover, server_version
from extender.kube.permissions import USE, Use, denied, needed, to_list
from extender.kube.plain_pods import PlainPod
from extender.kube.remote import RemoteApi, RequestTiming
from extender.kube.resources import RESOURCES, Resource
from extender.kube.watch import (
    Bookmark,
    BrokenWatchError,
    Change,
    ListAgainError,
    ListedObject,
    ListEnd,
    WatchSource,
    WatchTiming,
)
from extender.tools.intake import Budget
from extender.tools.offload import Offload, in_thread

_log = structlog.get_logger()

_FAILURES: Final = (ListAgainError, BrokenWatchError, ApiError, OutcomeUnknownError)


@dataclass(frozen=True, slots=True)
class FollowTiming:
    """The times of following, in seconds: when to try again, and what counts as too old.

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

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.perf_counter()
        self._worked = 0.0

    def begin(self) -> None:
        """Call this before each piece of work: the time until then was spent on waiting, or is forgiven."""
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """Let other tasks run if the work has taken long. Call this after each piece of work."""
        self._worked += time.perf_counter() - self._began
        if self._worked >= self._seconds:
            await asyncio.sleep(0)
            self._worked = 0.0


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
        self._reached, self._forgotten = True, 0
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
                        self._yielder.begin()
                        if isinstance(signal, ListedObject):
                            relist = relist or self._cache.relist(self.resource)
                            if isinstance(signal.object, PlainPod):
                                relist.count_pod(signal.object)
                            else:
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

    def _take_change(self, signal: Change | Bookmark) -> None:
        # A list is no success yet: if no watch can go on from it, lists would follow each other without a pause.
        self._failures = self._forgotten = 0
        if isinstance(signal, PlainPod):
            self._cache.count_pod(signal)
            self.events += 1
            self._passed(signal.revision)
        elif isinstance(signal, Event):
            self._cache.apply(signal)
            self.events += 1
            self._passed(signal.revision)
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
        if forgot := isinstance(error, ListAgainError):
            self._since = None
            self._forgotten += 1
        if isinstance(error, ApiError):
            await self._recover_from_refusal(error)
        reached = not isinstance(error, UnreachableError)
        if (reached and not self._reached) or (forgot and self._forgotten == 1):
            self._failures = 1  # the server is there again, or has only forgotten the history: that may be over at once
        self._reached = reached
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


_CHECKS_PER_STALE = 10
"""Checks for staleness per stale time."""


@dataclass(frozen=True, slots=True)
class Timing:
    """All times of a live cluster."""

    requests: RequestTiming = field(default_factory=RequestTiming)
    watch: WatchTiming = field(default_factory=WatchTiming)
    follow: FollowTiming = field(default_factory=FollowTiming)


class LiveCluster:
    """A cluster behind an API server.

    Args:
        off_loop: where objects are decoded that take long.
        budget: for the memory of objects.

    Attributes:
        api: implements `extender.kube.api.Api`.
        followers: one per kind, once it runs.
    """

    def __init__(
        self,
        api: RemoteApi,
        *,
        random: Callable[[], float],
        timing: Timing = Timing(),
        off_loop: Offload = in_thread,
        budget: Budget | None = None,
    ) -> None:
        self.api = api
        self._off_loop = off_loop
        self._budget = budget
        self._random = random
        self._timing = timing
        self.followers: tuple[Follower, ...] = ()

    async def run(self, cache: ClusterState, kinds: Collection[Resource] = tuple(RESOURCES.values())) -> None:
        """List and watch kinds, and tell the cache which of them are in doubt. Run it once, until cancelled."""
        source = WatchSource(
            self.api,
            random=self._random,
            timing=self._timing.watch,
            off_loop=self._off_loop,
            decodes_all=cache.reads_all_pods,
            budget=self._budget,
        )
        self.followers = tuple(
            Follower(resource, source, cache, random=self._random, timing=self._timing.follow) for resource in kinds
        )
        async with asyncio.TaskGroup() as tasks:
            for follower in self.followers:
                tasks.create_task(follower.run(), name=f"follow {follower.resource}")
            tasks.create_task(self._check(), name="check for staleness")

    def ages(self) -> Mapping[str, float | None]:
        """By kind: seconds since the last sign of life of its watch; None if it is not synced."""
        now = asyncio.get_running_loop().time()
        return {follower.resource.kind: follower.age(now) for follower in self.followers}

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self._timing.follow.stale / _CHECKS_PER_STALE)
            now = asyncio.get_running_loop().time()
            for follower in self.followers:
                follower.check(now)


@asynccontextmanager
async def connect(
    origin: Origin,
    *,
    random: Callable[[], float],
    timing: Timing = Timing(),
    around: Callable[[Transport], Transport] = lambda transport: transport,
    listing: Collection[Resource] | None = None,
    use: Use = USE,
    budget: Budget | None = None,
) -> AsyncIterator[LiveCluster]:
    """A live cluster, checked: it can be reached, serves the kinds, and allows what the extender does.

    Args:
        origin: of address and credentials; see `extender.kube.connection.credentials.find_origin`.
        random: from 0 to 1; spreads retries and watches.
        timing: all times.
        around: wraps the transport.
        listing: only list these kinds; None: follow kinds and write.
        use: the kinds that are followed, and what must be allowed to write.
        budget: for the memory of objects.

    Raises:
        ConnectError: all problems.
    """
    async with open_connection(origin) as connection:
        transport = around(connection)
        api = await usable_api(
            transport, connection.url, random=random, timing=timing.requests, listing=listing, use=use
        )
        fresh = asyncio.create_task(connection.keep_fresh(), name="keep credentials fresh")
        try:
            yield LiveCluster(api, random=random, timing=timing, budget=budget)
        finally:
            fresh.cancel()


async def usable_api(
    transport: Transport,
    url: str,
    *,
    random: Callable[[], float],
    timing: RequestTiming,
    listing: Collection[Resource] | None = None,
    use: Use = USE,
) -> RemoteApi:
    """The API server behind a transport, checked; see `connect` for ``listing`` and ``use``.

    Raises:
        ConnectError: it can't be reached, lacks kinds, or denies what the extender needs.
    """
    try:
        served = await discover(transport)
        missing = [resource for resource in served.missing if listing is None or resource in listing]
        if missing:
            raise ConnectError(*(_not_served(url, resource) for resource in missing))
        version = await server_version(transport) if listing is None else (0, 0)
        wanted = needed(served, version, use) if listing is None else to_list(served, listing)
        lacking = await denied(transport, wanted)
    except (ApiError, OutcomeUnknownError) as error:
        raise ConnectError(f"{url}: {error}") from error
    if lacking:
        raise ConnectError(*(f"{url}: not allowed: {permission} (RBAC of our account)" for permission in lacking))
    return RemoteApi(transport, served, random=random, timing=timing)


def _not_served(url: str, resource: Resource) -> str:
    versions = " or ".join(resource.api_versions())
    return f"{url}: {resource.plural} are not served in {versions} (Kubernetes 1.32 or later, with DRA enabled)"
