"""The node part with its container runtime: claims are prepared, containers come and go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from extender.node.cci.admissions import SECONDS, CciMetrics
from extender.node.cdi import CdiFolder
from extender.node.compute import CPU_DRIVER, MEMORY_DRIVER, ComputeDriver, ComputeManager, compute_drivers
from extender.node.driver import AllocatedClaim, AllocatedDevice, DriverParameters
from extender.node.nri import follow
from extender.node.store import ResourceStore
from extender.node.topology import Cpu, Topology
from tests.kit.nri_runtime import FakeRuntime, listening

MACHINE = Topology(tuple(Cpu(number, number, 0, number // 2) for number in range(4)), {0: 2**30, 1: 2**30})


@dataclass
class Node:
    """A node part, as it is after its start."""

    manager: ComputeManager
    cpus: ComputeDriver
    memory: ComputeDriver
    store: ResourceStore

    metrics: CciMetrics

    @classmethod
    def started(cls, folder: Path, machine: Topology = MACHINE, seconds: float = SECONDS) -> "Node":
        store, metrics = ResourceStore(machine.numbers - {0}), CciMetrics(CollectorRegistry())
        store.load(folder / "state")
        manager = ComputeManager(machine, store, folder / "state", folder / "cci", metrics, seconds)
        cpus, memory = compute_drivers(
            machine, {0}, manager, (CdiFolder(folder / "cdi", CPU_DRIVER), CdiFolder(folder / "cdi", MEMORY_DRIVER))
        )
        return cls(manager, cpus, memory, store, metrics)


@asynccontextmanager
async def connected(node: Node, runtime: FakeRuntime, folder: Path) -> AsyncIterator[None]:
    """Within, the node part is a plugin of the runtime."""
    async with listening(runtime, folder / "nri"):
        following = asyncio.create_task(follow(folder / "nri", node.manager))
        try:
            async with asyncio.timeout(10):
                await runtime.synchronized.wait()
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            # A process that ends leaves nothing that writes the store.
            await asyncio.gather(*(ended(each) for each in node.manager._tasks))


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def claim(name: str, *devices: str, uid: str = "", admin: bool = False, driver: str = "") -> AllocatedClaim:
    """A claim for CPUs. ``driver``: the CCI driver that it names."""
    listed = tuple(AllocatedDevice("cpus", "n", each, admin=admin) for each in devices)
    parameters = (DriverParameters((), {"cci driver": driver}),) if driver else ()
    return AllocatedClaim("ns", name, uid or f"uid-{name}", listed, parameters)


async def given(node: Node, name: str, *devices: str, driver: str = "") -> list[str]:
    """The CDI devices of a claim that is prepared."""
    return [cdi for each in await node.cpus.prepare(claim(name, *devices, driver=driver)) for cdi in each.cdi_ids]
