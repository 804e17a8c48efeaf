"""Runs drivers on a node until a signal comes: the kubelet's plugins, and their slices."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from extender.cluster.live import connect
from extender.kube.api import Api, ApiError, ConnectError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.connection.credentials import Origin
from extender.kube.permissions import Permission, denied
from extender.kube.resources import CLAIMS, NODES, SLICES
from extender.node.driver import Driver
from extender.node.plugin import Sockets, serving
from extender.node.publisher import Publisher, Spec

logger = structlog.get_logger()

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
