"""A cluster of one node: the control plane, the node's own components, kube-scheduler and the extender."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLASSES, NODES, SLICES
from tests.kit.controlplane.access import ADMIN, KUBELET, SCHEDULER
from tests.kit.controlplane.client import Client, connect
from tests.kit.controlplane.components import START_SECONDS, ControlPlane, Options, control_plane
from tests.kit.controlplane.pair import BACKOFF_SECONDS
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import Extender, grant_rights, running_extender
from tests.kit.node.binaries import NodeBinaries
from tests.kit.node.containerd import containerd, import_images
from tests.kit.node.driver import GPU_DRIVER, GPUS, node_driver
from tests.kit.node.kubelet import NODE, kubelet
from tests.kit.node.sandbox import LOGS_INSIDE
from tests.kit.objects.manifests import DEVICE_CLASS, device_class
from tests.kit.process import Process, running
from tests.kit.waiting import wait_for_answer

RESOURCE: Final = "example.com/gpu"
"""The extended resource that the GPUs' class serves."""

NODE_KEY: Final = ObjectKey("", NODE)

FOR_KUBELETS: Final = Options(
    # The kubelet reads only what belongs to pods of its node, as anywhere.
    server_flags=(
        "--authorization-mode=Node",
        "--enable-admission-plugins=NodeRestriction",
        # Drivers are privileged, as anywhere.
        "--allow-privileged",
        # Logs come from the kubelet, by its address: there is no name server.
        "--kubelet-preferred-address-types=InternalIP",
    ),
    # It takes taints off a node that is ready, and puts them on a node that is lost.
    more_controllers=("node-lifecycle-controller",),
    controller_flags=("--node-monitor-period=1s", "--node-monitor-grace-period=6s"),
)
"""A control plane for nodes that are real."""


@dataclass(frozen=True, slots=True)
class Node:
    """What runs on the node, and the extender that serves it.

    Attributes:
        programs: folder of the built programs.
    """

    plane: ControlPlane
    programs: NodeBinaries
    kubelet: Process
    driver: Process
    extender: Extender

    @asynccontextmanager
    async def without_extender(self) -> AsyncIterator[None]:
        """Within, the extender does not run: it is killed, and started again."""
        self.extender.process.kill()
        try:
            yield
        finally:
            await _start(self.extender.process)

    @asynccontextmanager
    async def without_kubelet(self, client: Client) -> AsyncIterator[None]:
        """Within, kubelet and driver do not run: they are killed. After it, the node has its devices again.

        A kubelet that starts deletes the slices of its node, because it does not know which drivers will come back. A
        driver that starts publishes its slices at once; one that runs publishes deleted slices after 30 seconds.
        """

        async def has_slices() -> bool:
            return bool((await client.list(SLICES)).items)

        self.kubelet.kill()
        self.driver.kill()
        try:
            yield
        finally:
            await _start(self.kubelet)
            await wait_for_answer(has_slices, lambda found: not found, "no slice is there", within=START_SECONDS)
            await _start(self.driver)
            await wait_for_answer(has_slices, lambda found: found, "a slice is there", within=START_SECONDS)


async def _start(process: Process) -> None:
    await asyncio.to_thread(process.start, within=START_SECONDS)


@asynccontextmanager
async def running_node(
    binaries: NodeBinaries,
    folder: Path,
    driver_of: Callable[[ControlPlane, Client], Awaitable[Process]] | None = None,
) -> AsyncIterator[Node]:
    """A node that is ready, with a driver and its class, and a scheduler that asks the extender.

    What does not need each other starts at the same time.

    Args:
        folder: for files of the control plane.
        driver_of: makes what a driver needs of a control plane, and the driver, which is not started yet; None: a
            driver of four GPUs.
    """
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as starts:
            starting = starts.create_task(_start_plane(stack, binaries, folder))
            runtime = starts.create_task(_start_runtime(stack, binaries.programs))
        plane = starting.result()
        plane.seconds["containerd"] = runtime.result()
        agent = kubelet(plane.kubeconfig(KUBELET), binaries.programs)
        admin = await stack.enter_async_context(connect(plane.access()))
        await grant_rights(admin)
        driver = await (driver_of or partial(_four_gpus, binaries.programs))(plane, admin)
        async with asyncio.TaskGroup() as starts:
            serving = starts.create_task(_start_serving(stack, plane))
            starts.create_task(_start_node(stack, plane, agent, driver))
        await wait_node_ready(admin)
        yield Node(plane, binaries, agent, driver, serving.result())


async def _four_gpus(programs: Path, plane: ControlPlane, client: Client) -> Process:
    """The driver of four GPUs; their class is there."""
    await client.create(CLASSES, device_class())
    await client.patch(CLASSES, ObjectKey("", DEVICE_CLASS), {"spec": {"extendedResourceName": RESOURCE}})
    return node_driver(plane.kubeconfig(ADMIN), programs, GPU_DRIVER, GPUS)


async def _start_plane(stack: AsyncExitStack, binaries: NodeBinaries, folder: Path) -> ControlPlane:
    running_plane = control_plane(binaries.control_plane, folder, LOGS_INSIDE, FOR_KUBELETS)
    return await asyncio.to_thread(stack.enter_context, running_plane)


async def _start_runtime(stack: AsyncExitStack, programs: Path) -> float:
    """containerd, with the images of the tests; the seconds until it is ready."""
    seconds = await stack.enter_async_context(running(containerd(programs), within=START_SECONDS))
    await asyncio.to_thread(import_images, programs)
    return seconds


async def _start_node(stack: AsyncExitStack, plane: ControlPlane, agent: Process, driver: Process) -> None:
    for process in (agent, driver):
        plane.seconds[process.name] = await stack.enter_async_context(running(process, within=START_SECONDS))


async def _start_serving(stack: AsyncExitStack, plane: ControlPlane) -> Extender:
    """The extender and its scheduler."""
    extender = await stack.enter_async_context(running_extender(plane))
    text = SHIPPED.read_text()
    config = localize(text, extender.url, plane.kubeconfig(SCHEDULER)) | {"podMaxBackoffSeconds": BACKOFF_SECONDS}
    await stack.enter_async_context(scheduler(plane, config, shipped_flags(text)))
    return extender


async def wait_node_ready(client: Client) -> None:
    """Wait until pods can come to the node."""
    await client.wait_for(NODES, NODE_KEY, is_usable, within=START_SECONDS)


def is_lost(node: RawObject | None) -> bool:
    """Do schedulers know that a node does not answer? They look at taints, which come after the condition."""
    taints = (node or {}).get("spec", {}).get("taints", [])
    return any(each["key"] == "node.kubernetes.io/unreachable" and each["effect"] == "NoSchedule" for each in taints)


def is_usable(node: RawObject | None) -> bool:
    """Is a node ready, and without taints?"""
    conditions = (node or {}).get("status", {}).get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not (node or {})["spec"].get("taints")
