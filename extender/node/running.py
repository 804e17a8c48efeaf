"""Runs drivers on a node until a signal comes: the kubelet's plugins, and their slices.

The kubelet deletes slices: when it starts, and when a driver was away for 30 s. So a publisher looks at them each time
that the kubelet has accepted the driver, and from time to time. Source:
``k8s.io/dynamic-resource-allocation/resourceslice`` of Kubernetes 1.37.
"""

import asyncio
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from allocator import Quantity
from extender.cluster.live import connect
from extender.kube.api import Api, ApiError, ConnectError, ObjectKey, OutcomeUnknownError, RawObject, key_of
from extender.kube.connection.credentials import Origin
from extender.kube.permissions import Permission, denied
from extender.kube.resources import CLAIMS, NODES, SLICES
from extender.node.driver import Driver
from extender.node.plugin import Sockets, serving

logger = structlog.get_logger()

Spec = Mapping[str, Any]

VERSION: Final = "resource.k8s.io/v1"
"""The version of the API, and of the kubelet's protocol, that drivers here speak: Kubernetes 1.34 or later."""

PERMISSIONS: Final = (
    Permission("get", CLAIMS),
    Permission("get", NODES),
    Permission("create", SLICES),
    Permission("delete", SLICES),
)
"""Of a driver, besides the one to list slices."""


@dataclass(frozen=True, slots=True)
class PublishedDriver:
    """A driver, and the specs of the slices that it publishes, as `Publisher` takes them."""

    driver: Driver
    specs: Sequence[Spec]


@asynccontextmanager
async def open_api(origin: Origin, *more: Permission) -> AsyncIterator[Api]:
    """An API server that a driver can work with. ``more``: permissions that it needs besides `PERMISSIONS`.

    Raises:
        ConnectError: it cannot be reached, denies what a driver does, or is older than Kubernetes 1.34.
    """
    async with connect(origin, random=random.random, listing=(SLICES,)) as cluster:
        found = cluster.api.api_version(SLICES)
        if found != VERSION:
            raise ConnectError(f"{origin}: serves resource.k8s.io in {found}: drivers need {VERSION} (Kubernetes 1.34)")
        lacking = await denied(cluster.api.transport, (*PERMISSIONS, *more))
        if lacking:
            raise ConnectError(*(f"{origin}: not allowed: {each} (RBAC of our account)" for each in lacking))
        yield cluster.api


async def read_node(api: Api, name: str) -> RawObject:
    """The Node of this machine. Raises ConnectError: the API server does not give it."""
    try:
        return await api.get(NODES, ObjectKey("", name))
    except (ApiError, OutcomeUnknownError) as error:
        raise ConnectError(f"node {name}: {error}") from error


async def run(
    api: Api, node: str, drivers: Sequence[PublishedDriver], kubelet: Path, *beside: Coroutine[Any, Any, None]
) -> None:
    """Serve the kubelet, and publish, until SIGTERM or SIGINT. Slices stay; the kubelet deletes them after 30 s.

    Args:
        api: where slices are published, and claims are read.
        node: name of the node.
        drivers: what is served.
        kubelet: root directory of the kubelet.
        beside: what else runs until then.

    Raises:
        SocketError: a socket cannot be made, or another process serves a driver.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        publishers = []
        for each in drivers:
            publisher = Publisher(api, each.driver.name, node, each.specs)
            sockets = Sockets.of(each.driver.name, kubelet)
            await stack.enter_async_context(serving(each.driver, api, sockets, publisher.wake))
            publishers.append(publisher)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in (*beside, *(each.run() for each in publishers))]
            await stopping.wait()
            for task in running:
                task.cancel()
    logger.info("drivers stopped", drivers=[each.driver.name for each in drivers])


INTERVAL_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 2.0

_SINCE_START_SECONDS: Final = 1.0
"""A kubelet that starts deletes slices and finds drivers at the same time: one second later, it has done both."""

_PREFIX: Final = 60
"""Characters of the driver and of the node in the name of a slice, which is for people."""


class Publisher:
    """The slices of one driver on one node.

    Args:
        api: where they are written.
        driver: name of the driver.
        node: name of the node, which owns the slices.
        specs: of all slices, each with ``driver``, ``nodeName``, and ``pool`` with the name and the number of slices.
            The generation is that of the cluster, or the next one.
    """

    def __init__(self, api: Api, driver: str, node: str, specs: Sequence[Spec]) -> None:
        self._api = api
        self._driver = driver
        self._node = node
        self._wanted: dict[str, list[Spec]] = defaultdict(list)
        for spec in specs:
            self._wanted[spec["pool"]["name"]].append(spec)
        self._stored: dict[ObjectKey, Spec] = {}
        """What this process has created, with what was wanted: the API server may leave out fields."""
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at the slices soon, and not only when it is time."""
        self._woken.set()

    async def run(self) -> None:
        """Publish, and publish again what is changed or deleted, until cancelled."""
        while True:
            seconds = INTERVAL_SECONDS
            try:
                await self.publish()
            except (ApiError, OutcomeUnknownError) as error:
                logger.warning("slices not published", driver=self._driver, node=self._node, problem=str(error))
                seconds = RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
                    self._woken.clear()
                    await asyncio.sleep(_SINCE_START_SECONDS)

    async def publish(self) -> None:
        """Bring the slices of the cluster to what is wanted. Raises ApiError, OutcomeUnknownError."""
        fields = {"spec.driver": self._driver, "spec.nodeName": self._node}
        published: dict[str, list[RawObject]] = defaultdict(list)
        for each in await self._api.select(SLICES, "", fields):
            published[each["spec"]["pool"]["name"]].append(each)
        for pool in (*self._wanted, *(name for name in published if name not in self._wanted)):
            await self._publish(pool, self._wanted.get(pool, ()), published[pool])

    async def _publish(self, pool: str, wanted: Sequence[Spec], published: Sequence[RawObject]) -> None:
        """One pool. Missing slices join the generation that is there; else all slices are replaced by a new one.

        The new slices come before the old ones go. Schedulers use the newest generation as soon as it is complete.
        """
        newest = max((each["spec"]["pool"]["generation"] for each in published), default=0)
        missing, left = list(wanted), []
        for each in published:
            match = next((spec for spec in missing if self._is(each, spec, newest)), None)
            if match is None:
                left.append(each)
            else:
                missing.remove(match)
        if left and wanted:
            missing, left = list(wanted), list(published)
        generation = newest + 1 if left or not newest else newest
        owner = await self._owner() if missing else {}
        for spec in missing:
            await self._create(spec, generation, wanted.index(spec), owner)
        for each in left:
            await self._delete(each)
        if missing or left:
            logger.info(
                "slices published",
                driver=self._driver,
                pool=pool,
                generation=generation,
                created=len(missing),
                deleted=len(left),
            )

    def _is(self, published: RawObject, spec: Spec, generation: int) -> bool:
        """Whether a slice of the cluster is a wanted one, and nobody has changed it."""
        if published["metadata"].get("generation", 1) != 1 or published["spec"]["pool"]["generation"] != generation:
            return False
        return self._stored.get(key_of(published)) is spec or not any(_lost(published["spec"], spec))

    async def _owner(self) -> Mapping[str, str]:
        """The node, whose deletion deletes the slices. A node that was made again has another uid."""
        node = await self._api.get(NODES, ObjectKey("", self._node))
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node["metadata"]["uid"]}

    async def _create(self, spec: Spec, generation: int, index: int, owner: Mapping[str, str]) -> None:
        """Create a slice. Allocators try slices in the order of their names."""
        whole = {**spec, "pool": {**spec["pool"], "generation": generation}}
        metadata = {
            "generateName": f"{index:04x}-{self._driver[:_PREFIX]}-{self._node[:_PREFIX]}-",
            "ownerReferences": [{**owner, "controller": True}],
        }
        obj = {"apiVersion": VERSION, "kind": SLICES.kind, "metadata": metadata, "spec": whole}
        stored = await self._api.create(SLICES, obj)
        self._stored[key_of(stored)] = spec
        lost = list(_lost(stored["spec"], whole))
        if lost:
            # They belong to features that are off, or that the server is too old for.
            logger.warning("fields of slice not stored", driver=self._driver, slice=key_of(stored).name, fields=lost)

    async def _delete(self, published: RawObject) -> None:
        key = key_of(published)
        self._stored.pop(key, None)
        try:
            await self._api.delete(SLICES, key, uid=published["metadata"]["uid"])
        except ApiError as error:
            if not error.is_missing:
                raise


def _lost(stored: object, wanted: object, path: str = "spec") -> Iterator[str]:
    """The fields of a wanted value that a stored value does not have so. A pool's generation does not count."""
    if isinstance(wanted, Mapping):
        found = stored if isinstance(stored, Mapping) else {}
        for name, value in wanted.items():
            if (path, name) != ("spec.pool", "generation"):
                yield from _lost(found.get(name), value, f"{path}.{name}")
    elif isinstance(wanted, list):
        found_items = stored if isinstance(stored, list) else []
        if len(found_items) != len(wanted):
            yield path
            return
        for index, value in enumerate(wanted):
            yield from _lost(found_items[index], value, f"{path}[{index}]")
    elif stored != wanted and not _is_same_amount(stored, wanted) and (stored is not None or wanted not in ("", False)):
        yield path


def _is_same_amount(stored: object, wanted: object) -> bool:
    """Whether two texts are one quantity: the API server writes ``1024Mi`` as ``1Gi``."""
    try:
        return Quantity.parse(str(stored)) == Quantity.parse(str(wanted))
    except ValueError:
        return False
