"""The cluster of the scenario: nodes with devices, tenants' namespaces with quotas, scheduler and extender."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import yaml

from extender.kube.api import RawObject
from extender.kube.resources import CLASSES, DEVICE_QUOTAS, SLICES
from tests.hostile.tenants.controller import REFUSING, SLOW, Controllers
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.client import NAMESPACES, PRIORITIES, Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.definitions import DEVICE_QUOTA, define
from tests.kit.controlplane.pair import SHIPPED_NAME
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.scheduling_gates import gates_in_force
from tests.kit.controlplane.service import SERVE, SETTINGS, Extender, grant_rights, running_extender
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, device_class, namespace, priority_class, resource_slice
from tests.kit.objects.parts import api_object
from tests.kit.objects.quotas import quota
from tests.kit.process import Process
from tests.kit.waiting import WaitError

NODES: Final = 20
GPUS: Final = 2
HIGH: Final = "hostile-high"
"""The PriorityClass that the hostile tenant may use."""


@dataclass(frozen=True, slots=True)
class Site:
    """What runs.

    Attributes:
        extender: None if the scheduler has its own plugin.
    """

    client: Client
    extender: Extender | None
    scheduler: Process

    def check(self) -> None:
        """See whether all goes on: a scheduler ends by itself when it cannot renew its lease in time.

        Raises:
            WaitError: a process has ended, and nothing is measured any more.
        """
        for each in (self.scheduler, *([] if self.extender is None else [self.extender.process])):
            if not each.is_running:
                raise WaitError(f"{each.name} has ended by itself; see {each.log}")


async def build(client: Client, ordinary: Sequence[str], hostile: Mapping[str, int]) -> None:
    """Make classes, nodes with their pools, priorities, namespaces and quotas.

    Args:
        ordinary: namespaces of the ordinary tenants.
        hostile: namespaces of the hostile tenant, each with the devices that its DeviceQuota allows; 0: no quota.
    """
    await define(client, DEVICE_QUOTA)
    await client.create(CLASSES, device_class())
    for name in (SLOW, REFUSING):
        metadata = {"annotations": {"dra-extender.dev/controller": name}}
        await client.create(CLASSES, api_object("DeviceClass", name, metadata=metadata, spec={}))
    await client.create(PRIORITIES, priority_class(HIGH, 1000))
    for number in range(NODES):
        name = f"node-{number:02}"
        await add_node(client, name)
        devices: list[RawObject] = [{"name": f"gpu-{each}"} for each in range(GPUS)]
        await client.create(SLICES, resource_slice(name, name, devices))
    share = NODES * GPUS - sum(hostile.values())
    for each in (*ordinary, *hostile):
        await client.create(NAMESPACES, namespace(each))
        allowed = hostile[each] if each in hostile else share // len(ordinary)
        if allowed:
            limit: RawObject = {"name": "gpu", "deviceClassName": DEVICE_CLASS, "devices": allowed}
            await client.create(DEVICE_QUOTAS, quota(limit, namespace=each))


@asynccontextmanager
async def serving(
    plane: ControlPlane, client: Client, known: Controllers, *, gates: bool = False
) -> AsyncIterator[Site]:
    """The extender, which knows the hostile tenant's controllers, and its scheduler, with what we ship.

    Args:
        plane: the control plane.
        client: an administrator's.
        known: the controllers.
        gates: pods wait at a scheduling gate.
    """
    await grant_rights(client)
    text = SHIPPED.read_text()
    settings = yaml.safe_load(SETTINGS.read_text())
    settings["controllers"] = known.settings()
    settings["schedulingGates"]["enabled"] = gates
    file = Path(mkdtemp(prefix="extender-", dir=plane.folder)) / "extender.yaml"
    file.write_text(yaml.safe_dump(settings))
    async with AsyncExitStack() as stack:
        extender = await stack.enter_async_context(running_extender(plane, serve=(*SERVE[:-1], str(file))))
        config = localize(text, extender.url, plane.kubeconfig(SCHEDULER))
        process = await stack.enter_async_context(scheduler(plane, config, shipped_flags(text)))
        if gates:
            await stack.enter_async_context(gates_in_force(client))
        yield Site(client, extender, process)


@asynccontextmanager
async def serving_alone(plane: ControlPlane, client: Client) -> AsyncIterator[Site]:
    """A scheduler with its own plugin, under the name that all pods name, and with our scheduler's backoff."""
    config = localize(SHIPPED.read_text(), "", plane.kubeconfig(SCHEDULER))
    del config["extenders"]
    config["profiles"] = [{"schedulerName": SHIPPED_NAME}]
    async with scheduler(plane, config, ()) as process:
        yield Site(client, None, process)
