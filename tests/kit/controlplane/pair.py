"""A scheduler and the extender that it asks, which reaches the API server through a proxy of the test's."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from tests.kit.controlplane.access import EXTENDER, SCHEDULER
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.controlplane.proxy import Proxy, proxy
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import SERVE, Extender, grant_rights, running_extender

SHIPPED_NAME = "dra-scheduler"
"""The schedulerName in the configuration that we ship."""


BACKOFF_SECONDS: Final = 1
"""The longest of a pod: where the extender is away again and again, the one that we ship is most of the waiting."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What runs.

    Attributes:
        name: the schedulerName of its pods.
        proxy: between the extender and the API server.
    """

    name: str
    extender: Extender
    proxy: Proxy

    def kill(self) -> None:
        """End the extender, without giving it time to clean up."""
        self.extender.process.kill()

    async def restart(self) -> None:
        """Start the extender again, and wait until it is ready."""
        await asyncio.to_thread(self.extender.process.start, within=START_SECONDS)


@asynccontextmanager
async def pair(
    client: Client,
    plane: ControlPlane,
    name: str = SHIPPED_NAME,
    *,
    serve: Sequence[str] = SERVE,
    gates: str = "",
    holds_pods: bool = True,
) -> AsyncIterator[Pair]:
    """An extender and a scheduler, with the configuration that we ship but for the name and the longest backoff.

    Args:
        client: an administrator's.
        name: of the scheduler and of its lease.
        serve: the extender's command line.
        gates: feature gates of the scheduler beside those that we ship, such as ``GenericWorkload=true``.
        holds_pods: the profile has the plugin at preEnqueue, as we ship it.
    """
    await grant_rights(client)
    text = SHIPPED.read_text()
    access = plane.access(EXTENDER)
    async with proxy(access) as between:
        kubeconfig = replace(access, url=between.url).write_kubeconfig(plane.folder / f"{name}-extender.kubeconfig")
        async with running_extender(plane, kubeconfig=kubeconfig, serve=serve) as extender:
            config = localize(text.replace(SHIPPED_NAME, name), extender.url, plane.kubeconfig(SCHEDULER))
            if not holds_pods:
                del config["profiles"][0]["plugins"]["preEnqueue"]
            flags = tuple(f"{flag},{gates}" if gates and "gates" in flag else flag for flag in shipped_flags(text))
            async with scheduler(plane, config | {"podMaxBackoffSeconds": BACKOFF_SECONDS}, flags):
                yield Pair(name, extender, between)
            # How it ends when it is asked to is not what these tests are about.
            extender.process.kill()
