"""Places containers on the CPUs of a node: those with claims on the CPUs of their claims, all others on the rest.

The scheduler has chosen the CPUs of a claim, and here they are taken from all other containers. The opaque parameters
of a claim may name a CCI driver (KEP-3675), which chooses among its CPUs for each of its containers. Otherwise the
built-in driver does: each container gets all of them. Parameters also say on which CPUs nothing runs.

CPUs and memory are devices of the node. Attributes of CPUs are those of dra-driver-cpu in its mode ``individual``
(``pkg/device`` of kubernetes-sigs/dra-driver-cpu). So classes and claims that are written for it work here.
"""

import asyncio
import re
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from allocator import Problem
from allocator.tools import Fields, hint
from extender.cluster.compute_claims import (
    CORES,
    DRIVER,
    CoreGroup,
    Siblings,
    group_prefix,
    read_driver,
    read_parameters,
)
from extender.node import cpu_list
from extender.node.cci.admissions import SECONDS, Admissions, CciMetrics
from extender.node.cci.protocol import CciError
from extender.node.cci.registry import Registry
from extender.node.cdi import CdiFolder
from extender.node.driver import AllocatedClaim, AllocatedDevice, DriverParameters, PreparedDevice, PrepareError
from extender.node.nri import VARIABLE, Pinning, Runtime, RuntimeContainer, TtrpcError
from extender.node.store import ResourceSet, ResourceStore, StoreError
from extender.node.topology import Cpu, Topology

CPU_DRIVER: Final = "dra.cpu"
MEMORY_DRIVER: Final = "dra.memory"

_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_NUMA_NODE_OF_DRANET: Final = "dra.net/numaNode"
_MOST_DEVICES: Final = 128
"""In a slice."""

Spec = Mapping[str, Any]


def cpu_device(number: int) -> str:
    """The name of a CPU as a device."""
    return f"cpu-{number}"


def memory_device(numa_node: int) -> str:
    """The name of the memory of a NUMA node as a device."""
    return f"memory-{numa_node}"


def cpu_slices(topology: Topology, node: str, reserved: Collection[int]) -> Sequence[Spec]:
    """The slices of the CPUs that claims can have: all but the reserved ones, one device each.

    Devices of one core are next to each other, so that a claim for two of them gets siblings where it can.
    """
    devices = [_cpu(each, smt=topology.has_siblings) for each in topology.cpus if each.number not in reserved]
    return _slices(CPU_DRIVER, node, devices)


def memory_slices(topology: Topology, node: str) -> Sequence[Spec]:
    """The slice of the memory of NUMA nodes: one device each, of which claims take parts."""
    devices = [
        {
            "name": memory_device(numa_node),
            "attributes": {_NUMA_NODE: {"int": numa_node}},
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": str(amount)}},
        }
        for numa_node, amount in sorted(topology.memory.items())
    ]
    return _slices(MEMORY_DRIVER, node, devices)


def _cpu(cpu: Cpu, *, smt: bool) -> Mapping[str, Any]:
    numbers = {
        "numaNodeID": cpu.numa_node,
        "socketID": cpu.socket,
        "coreID": cpu.core,
        "cpuID": cpu.number,
        "cacheL3ID": cpu.cache,
    }
    attributes: dict[str, Any] = {f"{CPU_DRIVER}/{name}": {"int": value} for name, value in numbers.items()}
    attributes |= {
        _NUMA_NODE: {"int": cpu.numa_node},
        _NUMA_NODE_OF_DRANET: {"int": cpu.numa_node},
        f"{CPU_DRIVER}/smtEnabled": {"bool": smt},
        f"{CPU_DRIVER}/coreType": {"string": cpu.core_type},
    }
    return {"name": cpu_device(cpu.number), "attributes": attributes}


def _slices(driver: str, node: str, devices: Sequence[Mapping[str, Any]]) -> Sequence[Spec]:
    parts = [devices[at : at + _MOST_DEVICES] for at in range(0, len(devices), _MOST_DEVICES)]
    pool = {"name": node, "resourceSliceCount": len(parts)}
    return [{"driver": driver, "nodeName": node, "pool": pool, "devices": part} for part in parts]


_KNOWN: Final = (CORES, DRIVER)


@dataclass(frozen=True, slots=True)
class Wishes:
    """The wishes of a claim about the CPUs that it is allocated.

    Attributes:
        driver: the CCI driver that chooses for each container; empty: the built-in one.
        idle: the CPUs on which nothing runs: siblings of CPUs that have a core alone.
    """

    driver: str = ""
    idle: frozenset[int] = frozenset()


def read_wishes(claim: AllocatedClaim, cpus: Mapping[str, Cpu]) -> Wishes:
    """The wishes of a claim. Its own parameters count before those of its classes.

    Args:
        claim: with its devices, and their parameters.
        cpus: of the machine, by device.

    Raises:
        PrepareError: all that is wrong with the parameters; or several requests have several drivers.
    """
    problems: list[Problem] = []
    drivers, idle = dict[str, str](), set[int]()
    for number, each in enumerate(claim.parameters):
        named, groups = _read(Fields(dict(each.value), f"parameters[{number}]", problems))
        if named:
            drivers |= {device.device: named for device in claim.devices if _is_for(each, device)}
        idle.update(_idle(claim.devices, groups, cpus))
    if problems:
        raise PrepareError(f"{claim}: {'; '.join(map(str, problems))}")
    found = {drivers.get(each.device, "") for each in claim.devices}
    if len(found) > 1:
        names = ", ".join(each or "none" for each in sorted(found))
        raise PrepareError(f"{claim}: its requests have different CCI drivers ({names}), and a claim has one")
    return Wishes(next(iter(found), ""), frozenset(idle))


def _read(fields: Fields) -> tuple[str, Sequence[CoreGroup]]:
    if fields.has(CORES):
        groups = read_parameters(fields)
        return str(fields.data.get(DRIVER) or ""), groups
    for name in sorted(fields.data.keys() - {DRIVER}):
        fields.problem(name, f"unknown field{hint(name, _KNOWN)}")
    return read_driver(fields), ()


def _is_for(parameters: DriverParameters, device: AllocatedDevice) -> bool:
    request = device.request.partition("/")[0]
    return not parameters.requests or device.request in parameters.requests or request in parameters.requests


def _idle(devices: Sequence[AllocatedDevice], groups: Sequence[CoreGroup], cpus: Mapping[str, Cpu]) -> Iterator[int]:
    """The CPUs to leave idle: of each core that a group has without its sibling, all but the first."""
    for number, group in enumerate(groups):
        if group.siblings is Siblings.DENIED:
            named = (each.device for each in devices if each.request.startswith(group_prefix(number)))
            own = [cpus[each] for each in named if each in cpus]  # a CPU that has gone offline since is not there
            first = dict[tuple[int, int], int]()
            for cpu in sorted(own, key=lambda each: each.number):
                if first.setdefault((cpu.socket, cpu.core), cpu.number) != cpu.number:
                    yield cpu.number


logger = structlog.get_logger()

_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9]")
_OWN: Final = re.compile(rf"{re.escape(CPU_DRIVER)}/claim=(?P<uid>[0-9a-f-]{{36}})-.*-cpu-(?P<cpu>\d+)")
"""The CDI devices of `CdiFolder` for CPUs."""

_UNKNOWN: Final = Pinning("unknown")


class ComputeManager:
    """Keeps containers where they belong; implements `extender.node.nri.Pinner`.

    Args:
        topology: the machine.
        store: what claims hold.
        path: the file of the store.
        cci: the folder of the sockets of CCI drivers.
        metrics: count containers with claims.
        seconds: how long a container waits for the CCI drivers of its claims.
    """

    def __init__(
        self,
        topology: Topology,
        store: ResourceStore,
        path: Path,
        cci: Path,
        metrics: CciMetrics,
        seconds: float = SECONDS,
    ) -> None:
        self._topology = topology
        self._store = store
        self._path = path
        self._metrics = metrics
        self.registry = Registry(cci, self._on_drivers_found)
        self._admissions = Admissions(topology, store, self.registry, self._changed, metrics, seconds)
        self._unsaved = False
        self._runtime: Runtime | None = None
        self._containers: dict[str, RuntimeContainer] = {}
        self._pinnings: dict[str, Pinning] = {}
        """What the runtime was told last, also of containers that are being made."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def cpus(self) -> Mapping[str, Cpu]:
        """The CPUs of the machine, by device."""
        return {cpu_device(each.number): each for each in self._topology.cpus}

    @property
    def shared(self) -> frozenset[int]:
        """The CPUs of containers without claims: all that no claim has."""
        held = (each.cpus.values() for each in self._store.sets.values())
        return self._topology.numbers.difference(*held)

    # --- claims ---------------------------------------------------------------------------------------------

    def had(self, key: str) -> Mapping[str, int]:
        """What a claim has, by CDI device: the numbers of CPUs, or of NUMA nodes for memory."""
        found = self._store.sets.get(key, ResourceSet(""))
        return {**found.cpus, **found.memory_nodes}

    async def hold(self, key: str, resources: ResourceSet) -> None:
        """Give resources to a claim: other containers leave its CPUs before this ends.

        Raises:
            PrepareError: another claim has them, its CCI driver is away, the store cannot be written, or the runtime
                does not answer.
        """
        before = self._store.sets.get(key)
        try:
            if resources.driver and not before:
                self.registry.endpoint(resources.driver)
            resources = replace(resources, portions=before.portions if before else {})
            self._store.add_resource(key, resources)
        except CciError as error:
            raise PrepareError(f"claim {resources.claim}: {error}") from error
        except StoreError as error:
            raise PrepareError(str(error)) from error
        self._unsaved |= before != resources
        self._save()
        await self._apply(required=bool(resources.cpus))

    async def give_back(self, key: str) -> None:
        """Take resources from a claim, whose containers have ended. Raises PrepareError: the file cannot be written."""
        if key in self._store.sets:
            self._admissions.given_back(key)
            self._store.remove_resource(key)
            self._unsaved = True
            self._spawn(self._admissions.tell())
        if self._unsaved:
            self._save()
            await self._apply(required=False)

    def _changed(self) -> None:
        self._unsaved = True
        self._save()

    def _save(self) -> None:
        """Write what has changed, also what could not be written before."""
        self._metrics.available(len(self._store.available_resources()))
        try:
            if self._unsaved:
                self._store.save(self._path)
            self._unsaved = False
        except OSError as error:
            raise PrepareError(f"{self._path}: {error.strerror or error}") from error

    async def _apply(self, *, required: bool) -> None:
        """Bring containers to where they belong.

        Args:
            required: whether an error is raised if that fails. Otherwise a container has fewer CPUs than it could.
        """
        changes = self._changes()
        self._pinnings |= changes
        try:
            failed = await self._updated(changes)
        except TtrpcError as error:
            self._forget(changes)
            if required:
                raise PrepareError(f"other containers cannot be kept off the CPUs of the claim: {error}") from error
            logger.warning("containers not moved", problem=str(error))
            return
        self._forget(failed)
        names = sorted(self._containers[uid].name for uid in failed if uid in self._containers)
        if names:
            logger.warning("containers not moved", containers=names, problem="the runtime could not update them")
            if required:
                raise PrepareError(f"the container runtime could not move containers off: {', '.join(names)}")

    async def _updated(self, changes: Mapping[str, Pinning]) -> Collection[str]:
        """Tell the runtime; the uids of containers that it could not update."""
        if self._runtime is None:
            raise TtrpcError("the container runtime is not connected")
        return await self._runtime.update(changes) if changes else ()

    def _forget(self, uids: Collection[str]) -> None:
        """Forget where these containers are, so that they are updated the next time."""
        for uid in uids:
            self._pinnings[uid] = _UNKNOWN

    def _changes(self) -> Mapping[str, Pinning]:
        """The containers that are somewhere else than they belong."""
        wanted = {uid: self._pinning(each) for uid, each in self._containers.items()}
        return {uid: pinning for uid, pinning in wanted.items() if self._pinnings.get(uid) != pinning}

    def _pinning(self, container: RuntimeContainer) -> Pinning:
        """The place of a container. One that may be anywhere, and was never told otherwise, is left alone."""
        sets, now = self._store.sets.values(), self._pinnings.get(container.uid, container.pinning)
        cpus = frozenset[int]().union(*(self._cpus(each, container) for each in sets))
        nodes = {node for each in sets for cdi, node in each.memory_nodes.items() if cdi in container.cdi}
        is_free = not cpus and not now.cpus and self.shared == self._topology.numbers
        return Pinning("" if is_free else cpu_list.render(cpus or self.shared), cpu_list.render(nodes))

    def _cpus(self, held: ResourceSet, container: RuntimeContainer) -> frozenset[int]:
        """The CPUs of one claim for a container."""
        portion = held.portions.get(container.uid)
        return portion.cpus if portion else held.offered(container.cdi, container.uid)

    # --- CCI drivers ----------------------------------------------------------------------------------------

    def _on_drivers_found(self, drivers: frozenset[str]) -> None:
        """Note that these drivers answer now."""
        self._metrics.drivers(drivers, {each.driver for each in self._store.sets.values() if each.driver})
        self._metrics.available(len(self._store.available_resources()))
        self._spawn(self._admissions.tell())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- containers -----------------------------------------------------------------------------------------

    def connected(self, runtime: Runtime, containers: list[RuntimeContainer]) -> Mapping[str, Pinning]:
        """Take all containers over, and say where they belong."""
        self._runtime = runtime
        self._containers = {each.uid: each for each in containers}
        self._pinnings = {each.uid: each.pinning for each in containers}
        self._adopt(containers)
        self._admissions.adopt(containers)
        changes = self._changes()
        self._pinnings |= changes
        return changes

    def _adopt(self, containers: Sequence[RuntimeContainer]) -> None:
        """Keep the CPUs of containers that run, also if the store has lost their claims."""
        known = {cdi for each in self._store.sets.values() for cdi in (*each.cpus, *each.memory_nodes)}
        for cdi in sorted({cdi for each in containers for cdi in each.cdi} - known):
            if match := _OWN.fullmatch(cdi):
                key, held = f"{CPU_DRIVER}/{match['uid']}", {cdi: int(match["cpu"])}
                before = self._store.sets.get(key, ResourceSet(f"with uid {match['uid']}"))
                try:
                    self._store.add_resource(key, replace(before, cpus={**before.cpus, **held}))
                    self._unsaved = True
                    self._save()
                except (StoreError, PrepareError) as error:
                    logger.warning("CPU of running container not kept", device=cdi, problem=str(error))

    async def creating(self, container: RuntimeContainer) -> Pinning:
        """The place where a new container starts. Raises TtrpcError: the driver of its claim does not admit it."""
        try:
            await self._admissions.admit(container)
        except (CciError, PrepareError) as error:
            self._spawn(self._admissions.tell())
            raise TtrpcError(str(error)) from error
        pinning = self._pinning(container)
        self._pinnings[container.uid] = pinning
        return pinning

    def created(self, container: RuntimeContainer) -> None:
        """Know the container; a claim may have got CPUs while it was made."""
        self._containers[container.uid] = container
        if self._pinnings.get(container.uid) != self._pinning(container):
            self._spawn(self._apply(required=False))

    def stopped(self, uid: str) -> None:
        """Forget the container."""
        self._containers.pop(uid, None)
        self._pinnings.pop(uid, None)
        if self._admissions.ended(uid):
            self._spawn(self._admissions.tell())

    def disconnected(self) -> None:
        """Nothing can be changed until the runtime is back."""
        self._runtime = None


@dataclass(frozen=True, slots=True)
class ComputeDriver:
    """CPUs, or memory of NUMA nodes, for claims; implements `extender.node.driver.Driver`.

    Attributes:
        devices: what the driver publishes: by device, the number of the CPU or of the NUMA node.
    """

    cdi: CdiFolder
    manager: ComputeManager
    devices: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The driver's name, as in the ResourceSlices."""
        return self.cdi.driver

    def key(self, uid: str) -> str:
        """The key of a claim in the store."""
        return f"{self.name}/{uid}"

    def resources(self, claim: AllocatedClaim) -> ResourceSet:
        """What a claim holds: what it has already, or what is published. Raises PrepareError: it cannot be had."""
        held, had = dict[str, int](), self.manager.had(self.key(claim.uid))
        for cdi, each in zip(self.cdi.names(claim), claim.devices, strict=True):
            if cdi not in had and each.device not in self.devices:
                raise PrepareError(f"{claim}: device {each.device} is not of this node, or reserved")
            if each.admin:
                raise PrepareError(f"{claim}: request {each.request}: adminAccess has no meaning for {each.device}")
            held[cdi] = had[cdi] if cdi in had else self.devices[each.device]
        name = f"{claim.namespace}/{claim.name}"
        if self.name != CPU_DRIVER:
            return ResourceSet(name, memory_nodes=held)
        wishes = read_wishes(claim, self.manager.cpus)
        parameters = claim.parameters if wishes.driver else ()
        return ResourceSet(name, held, {}, wishes.idle, wishes.driver, parameters)

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice]:
        """Keep the CPUs for the claim, move other containers off them, and write the CDI file."""
        await self.manager.hold(self.key(claim.uid), self.resources(claim))
        return self.cdi.write(claim, [_edits(each) for each in claim.devices])

    async def unprepare(self, uid: str) -> None:
        """Remove the CDI file, and let other containers use the CPUs."""
        self.cdi.remove(uid)
        await self.manager.give_back(self.key(uid))


def _edits(device: AllocatedDevice) -> Mapping[str, Any]:
    return {"env": [f"{VARIABLE}{_NOT_IN_NAMES.sub('_', device.device.upper())}={device.pool}"]}


def compute_drivers(
    topology: Topology, reserved: Collection[int], manager: ComputeManager, folders: tuple[CdiFolder, CdiFolder]
) -> tuple[ComputeDriver, ComputeDriver]:
    """The drivers of CPUs and of memory. ``folders``: where each leaves its CDI files."""
    cpus = {cpu_device(each): each for each in topology.numbers.difference(reserved)}
    nodes = {memory_device(each): each for each in topology.memory}
    return ComputeDriver(folders[0], manager, cpus), ComputeDriver(folders[1], manager, nodes)
