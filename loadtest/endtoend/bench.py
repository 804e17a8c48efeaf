"""A control plane with nodes and devices, on which one run follows another."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from extender.kube.api import ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, CLASSES, PODS, SLICES, TEMPLATES, Resource
from loadtest.endtoend.objects import NAMESPACE, device_classes, unmade
from loadtest.endtoend.plan import Site
from loadtest.endtoend.sightings import Sightings
from loadtest.endtoend.subjects import CALLS_PER_SECOND
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.controlplane.service import grant_rights
from tests.kit.objects.manifests import add_node
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.objects.worlds import Wish, world

CLEAR_SECONDS: Final = 300.0
_INTERVAL: Final = 0.5
_AT_A_TIME: Final = 16
_OPTIONS: Final = Options(
    controller_flags=(f"--kube-api-qps={CALLS_PER_SECOND}", f"--kube-api-burst={CALLS_PER_SECOND}")
)


class ClearError(Exception):
    """What a run has left does not go, so there can be no next one."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A control plane with nodes and devices.

    Attributes:
        client: an administrator's.
        nodes: their names.
    """

    plane: ControlPlane
    client: Client
    nodes: tuple[str, ...]

    async def make(self, resource: Resource, objects: Iterable[RawObject]) -> None:
        """Create objects, some at a time."""
        await together(self.client.create(resource, each) for each in objects)

    async def watch(self, sightings: Sightings) -> None:
        """See pods get nodes, until cancelled."""
        while True:
            listing = await self.client.list(PODS, NAMESPACE)
            for each in listing.items:
                sightings.see(each, time.monotonic())
            try:
                async for event in self.client.watch(PODS, ObjectKey(NAMESPACE, ""), since=listing.revision):
                    if event.type == "MODIFIED":
                        sightings.see(event.object, time.monotonic())
            except (OutcomeUnknownError, httpx.TransportError):
                continue  # a watch that is silent for long is cut

    async def clear(self) -> None:
        """Delete pods, and then all that was made for them.

        Raises:
            ClearError: they do not go.
        """
        until = asyncio.get_running_loop().time() + CLEAR_SECONDS
        for resource in (PODS, TEMPLATES, CLAIMS):
            while (await self.client.list(resource, NAMESPACE)).items:
                if asyncio.get_running_loop().time() > until:
                    raise ClearError(f"{resource} in {NAMESPACE} are not gone after {CLEAR_SECONDS:g} s")
                await self.client.delete(resource, ObjectKey(NAMESPACE, ""))
                await asyncio.sleep(_INTERVAL)


@asynccontextmanager
async def furnished(site: Site, binaries: Binaries, logs: Path) -> AsyncIterator[Bench]:
    """A control plane of its own with the nodes, devices and classes of a site, and the rights that subjects need.

    Args:
        site: what is to be there.
        binaries: of the control plane.
        logs: folder for the log files of all that runs.
    """
    with (
        TemporaryDirectory(prefix="dra-extender-", ignore_cleanup_errors=True) as folder,
        control_plane(binaries, Path(folder), logs, _OPTIONS) as plane,
    ):
        async with connect(plane.access()) as client:
            yield await _furnish(plane, client, site)


async def _furnish(plane: ControlPlane, client: Client, site: Site) -> Bench:
    objects = world(site.nodes, site.devices.machine, Wish(), in_use=0)
    bench = Bench(plane, client, tuple(each["metadata"]["name"] for each in objects["nodes"]))
    await client.create(NAMESPACES, a_namespace(NAMESPACE))
    await grant_rights(client)
    await bench.make(CLASSES, device_classes(site.classes))
    await together(add_node(client, name) for name in bench.nodes)
    await bench.make(SLICES, map(unmade, objects["slices"]))
    return bench


async def together(calls: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Make calls, some at a time."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_A_TIME):
            tasks.create_task(work())
