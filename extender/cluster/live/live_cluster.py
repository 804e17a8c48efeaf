"""A live cluster: its API server to write to, and the followers that keep a cache current."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live.follower import Follower, FollowTiming
from extender.kube.connection.connection import open_connection
from extender.kube.connection.credentials import Origin
from extender.kube.connection.transport import Transport
from extender.kube.discovery import discover, server_version
from extender.kube.encoding import RELEVANCE
from extender.kube.errors import ApiError, ConnectError, OutcomeUnknownError
from extender.kube.permissions import WRITES, Permission, denied, needed, to_list
from extender.kube.remote import RemoteApi, RequestTiming
from extender.kube.resources import RESOURCES, Resource
from extender.kube.watch import WatchSource, WatchTiming
from extender.tools.intake import Budget
from extender.tools.offload import Offload, in_thread

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
            relevance={} if cache.reads_all_pods else RELEVANCE,
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
    writes: Collection[Permission] = WRITES,
    budget: Budget | None = None,
) -> AsyncIterator[LiveCluster]:
    """A live cluster, checked: it can be reached, serves the kinds, and allows what the extender does.

    Args:
        origin: of address and credentials; see `extender.kube.connection.credentials.find_origin`.
        random: from 0 to 1; spreads retries and watches.
        timing: all times.
        around: wraps the transport.
        listing: only list these kinds; None: follow all kinds and write.
        writes: what must be allowed to write.
        budget: for the memory of objects.

    Raises:
        ConnectError: all problems.
    """
    async with open_connection(origin) as connection:
        transport = around(connection)
        api = await usable_api(
            transport, connection.url, random=random, timing=timing.requests, listing=listing, writes=writes
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
    writes: Collection[Permission] = WRITES,
) -> RemoteApi:
    """The API server behind a transport, checked; see `connect` for ``listing`` and ``writes``.

    Raises:
        ConnectError: it can't be reached, lacks kinds, or denies what the extender needs.
    """
    try:
        served = await discover(transport)
        missing = [resource for resource in served.missing if listing is None or resource in listing]
        if missing:
            raise ConnectError(*(_not_served(url, resource) for resource in missing))
        if listing is None:
            wanted = needed(served, await server_version(transport), writes)
        else:
            wanted = to_list(served, listing)
        lacking = await denied(transport, wanted)
    except (ApiError, OutcomeUnknownError) as error:
        raise ConnectError(f"{url}: {error}") from error
    if lacking:
        raise ConnectError(*(f"{url}: not allowed: {permission} (RBAC of our account)" for permission in lacking))
    return RemoteApi(transport, served, random=random, timing=timing)


def _not_served(url: str, resource: Resource) -> str:
    versions = " or ".join(resource.api_versions())
    return f"{url}: {resource.plural} are not served in {versions} (Kubernetes 1.32 or later, with DRA enabled)"
