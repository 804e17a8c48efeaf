"""A plugin of the container runtime (NRI): it decides on which CPUs containers run, before they start and later.

The runtime tells of all containers when the plugin connects, and of each one when it is made and when it stops.

Source: ``pkg/stub`` and ``pkg/api`` of github.com/containerd/nri v0.12.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from extender.node.ttrpc import Peer, TtrpcError, new_message, read_message

logger = structlog.get_logger()

_RUNTIME: Final = "nri.pkg.api.v1alpha1.Runtime"
_NAME: Final = "dra-extender"
_INDEX: Final = "90"
"""Plugins are asked in the order of their indexes: what comes late counts."""

_CREATE, _POST_CREATE, _STOP, _REMOVE = 4, 5, 10, 11
_EVENTS: Final = sum(1 << (each - 1) for each in (_CREATE, _POST_CREATE, _STOP, _REMOVE))
VARIABLE: Final = "DRA_DEVICE_"
"""How variables begin that CDI files of compute claims set: containers with a claim are known by them, too."""

_CLOSED: Final = "the runtime has closed the connection"
_TOO_OLD: Final = (
    f"the container has a variable {VARIABLE}*, as claims set it, and no CDI device: if it has a claim, this container "
    "runtime does not tell plugins the CDI devices of containers, and dra-extender node needs a later version of it"
)

_STOPPED: Final = 4
"""The state of a container that has ended."""

_SHARES: Final = 1024
"""That the kubelet writes for each CPU of a container's request."""

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Pinning:
    """The lists of CPUs and NUMA nodes where a container runs. Empty: anywhere."""

    cpus: str = ""
    memory_nodes: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """A container of the runtime.

    Attributes:
        name: namespace and name of the pod, and the container's name, for people.
        cdi: the CDI devices that it was made with.
        pinning: where it runs, as the runtime knows it.
        pod: the uid of its pod.
        cgroup: of its pod.
        cores: how many whole CPUs it requests; 0: less than one, or it is not known.
    """

    uid: str
    name: str
    cdi: frozenset[str]
    pinning: Pinning = Pinning()
    pod: str = ""
    cgroup: str = ""
    cores: int = 0

    @property
    def own_name(self) -> str:
        """The container's name in its pod."""
        return self.name.rpartition("/")[2]


class Pinner(Protocol):
    """Decides where containers run."""

    def connected(self, runtime: "Runtime", containers: list[RuntimeContainer]) -> Mapping[str, Pinning]:
        """The runtime with all of its containers; the answer has those that are to be changed, by uid."""
        ...

    async def creating(self, container: RuntimeContainer) -> Pinning:
        """A container that is about to be made. Raises TtrpcError: it must not be."""
        ...

    def created(self, container: RuntimeContainer) -> None:
        """Note that a container has been made, and can be updated."""
        ...

    def stopped(self, uid: str) -> None:
        """A container has ended, or is about to."""
        ...

    def disconnected(self) -> None:
        """The runtime has gone."""
        ...


class Runtime:
    """A connected runtime."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def update(self, pinnings: Mapping[str, Pinning]) -> frozenset[str]:
        """Change where containers run; the uids of those for which the runtime could not.

        Raises:
            TtrpcError: the runtime does not answer, or has gone.
        """
        request = new_message("UpdateContainersRequest", update=_updates(pinnings))
        answer = await self._peer.call(_RUNTIME, "UpdateContainers", request.SerializeToString())
        return frozenset(each.container_id for each in read_message("UpdateContainersResponse", answer).failed)


async def follow(path: Path, pinner: Pinner) -> None:
    """Be a plugin of the runtime at a socket, and connect again when it comes back, until cancelled."""
    told = ""
    while True:
        problem = await _connected(path, pinner)
        if problem != told or problem == _CLOSED:
            logger.warning("container runtime not connected", socket=str(path), problem=problem)
        told = problem
        await asyncio.sleep(_RETRY_SECONDS)


async def _connected(path: Path, pinner: Pinner) -> str:
    """Be a plugin for one connection; why it has ended."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        return error.strerror or str(error)
    plugin = _Plugin(pinner)
    plugin.peer = peer = Peer(reader, writer, plugin.answer)
    running = asyncio.create_task(peer.run())
    try:
        request = new_message("RegisterPluginRequest", plugin_name=_NAME, plugin_idx=_INDEX)
        await peer.call(_RUNTIME, "RegisterPlugin", request.SerializeToString())
        await running
    except TtrpcError as error:
        return str(error)
    finally:
        running.cancel()
        pinner.disconnected()
    return _CLOSED


class _Plugin:
    """The plugin that the runtime asks."""

    peer: Peer

    def __init__(self, pinner: Pinner) -> None:
        self._pinner = pinner
        self._listed: list[RuntimeContainer] = []

    async def answer(self, method: str, data: bytes) -> bytes:
        """The bytes of the response."""
        match method:
            case "Configure":
                found = read_message("ConfigureRequest", data)
                logger.info("container runtime connected", runtime=found.runtime_name, version=found.runtime_version)
                response = new_message("ConfigureResponse", events=_EVENTS)
            case "Synchronize":
                response = self._synchronize(read_message("SynchronizeRequest", data))
            case "CreateContainer":
                response = await self._create(data)
            case "PostCreateContainer":
                self._pinner.created(_container_of(data))
                response = new_message("Empty")
            case "StopContainer" | "RemoveContainer":
                self._pinner.stopped(_container_of(data).uid)
                response = new_message("Empty")
            case _:
                response = new_message("Empty")
        return bytes(response.SerializeToString())

    def _synchronize(self, request: Any) -> Any:  # noqa: ANN401  # messages
        """All containers, perhaps in several parts."""
        pods = {each.id: each for each in request.pods}
        self._listed += (
            _container(each, pods.get(each.pod_sandbox_id, new_message("PodSandbox", name=each.pod_sandbox_id)))
            for each in request.containers
            if each.state != _STOPPED
        )
        if request.more:
            return new_message("SynchronizeResponse", more=True)
        found = self._pinner.connected(Runtime(self.peer), self._listed)
        self._listed = []
        return new_message("SynchronizeResponse", update=_updates(found))

    async def _create(self, data: bytes) -> Any:  # noqa: ANN401  # messages
        response = new_message("CreateContainerResponse")
        raw, container = read_message("ContainerRequest", data).container, _container_of(data)
        if not container.cdi and any(each.startswith(VARIABLE) for each in raw.env):
            raise TtrpcError(_TOO_OLD)
        pinning = await self._pinner.creating(container)
        if pinning != Pinning():
            _fill(response.adjust.linux.resources.cpu, pinning)
        return response


def _container_of(data: bytes) -> RuntimeContainer:
    request = read_message("ContainerRequest", data)
    return _container(request.container, request.pod)


def _container(container: Any, pod: Any) -> RuntimeContainer:  # noqa: ANN401  # messages
    cpu, cdi = container.linux.resources.cpu, frozenset(each.name for each in container.CDI_devices)
    name, cores = f"{pod.namespace}/{pod.name}/{container.name}", cpu.shares.value // _SHARES
    pinning = Pinning(cpu.cpus, cpu.mems)
    return RuntimeContainer(container.id, name, cdi, pinning, pod.uid, pod.linux.cgroup_parent, cores)


def _updates(pinnings: Mapping[str, Pinning]) -> list[Any]:
    updates = []
    for uid, pinning in pinnings.items():
        update = new_message("ContainerUpdate", container_id=uid)
        _fill(update.linux.resources.cpu, pinning)
        updates.append(update)
    return updates


def _fill(cpu: Any, pinning: Pinning) -> None:  # noqa: ANN401  # messages
    cpu.cpus, cpu.mems = pinning.cpus, pinning.memory_nodes
