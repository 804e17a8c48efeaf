"""A plugin of the container runtime (NRI): it decides on which CPUs containers run, before they start and later.

The runtime tells of all containers when the plugin connects, and of each one when it is made and when it stops.

Both speak ttrpc over one socket, which carries frames of two connections. The head of a frame has 8 bytes: the number
of the connection, and the length. On the first connection the runtime calls the plugin, on the second the plugin calls
the runtime. In them are messages of ttrpc. The head of a message has 10 bytes: length, stream, type and flags. Messages
are declared by the numbers of the fields that are used.

Sources: ``pkg/stub``, ``pkg/net/multiplex`` and ``pkg/api/api.proto`` of github.com/containerd/nri v0.12;
``channel.go`` and ``request.proto`` of github.com/containerd/ttrpc v1.2; ``google/rpc/status.proto``.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from google.protobuf.message import DecodeError

from extender.tools.protobuf import Declarations, Messages

MESSAGES: Final[Declarations] = {
    # --- ttrpc ----------------------------------------------------------------------------------------------
    "Request": {1: "service string", 2: "method string", 3: "payload bytes", 4: "timeout_nano int"},
    "Response": {1: "status Status", 2: "payload bytes"},
    "Status": {1: "code int", 2: "message string"},
    # --- nri.pkg.api.v1alpha1 -------------------------------------------------------------------------------
    "RegisterPluginRequest": {1: "plugin_name string", 2: "plugin_idx string", 3: "NRI_version string"},
    # Requests about one container have the same fields, whatever they are called.
    "UpdateContainersRequest": {1: "update [ContainerUpdate]"},
    "UpdateContainersResponse": {1: "failed [ContainerUpdate]"},
    "ConfigureRequest": {2: "runtime_name string", 3: "runtime_version string"},
    "ConfigureResponse": {2: "events int"},
    "SynchronizeRequest": {1: "pods [PodSandbox]", 2: "containers [Container]", 3: "more bool"},
    "SynchronizeResponse": {1: "update [ContainerUpdate]", 2: "more bool"},
    "ContainerRequest": {1: "pod PodSandbox", 2: "container Container"},
    "CreateContainerResponse": {1: "adjust ContainerAdjustment"},
    "Empty": {},
    "PodSandbox": {
        1: "id string",
        2: "name string",
        3: "uid string",
        4: "namespace string",
        8: "linux LinuxPodSandbox",
    },
    "LinuxPodSandbox": {3: "cgroup_parent string"},
    "Container": {
        1: "id string",
        2: "pod_sandbox_id string",
        3: "name string",
        4: "state int",
        8: "env [string]",
        11: "linux LinuxContainer",
        20: "CDI_devices [CDIDevice]",
    },
    "CDIDevice": {1: "name string"},
    "LinuxContainer": {3: "resources LinuxResources"},
    "LinuxResources": {2: "cpu LinuxCPU"},
    "LinuxCPU": {1: "shares OptionalUInt64", 6: "cpus string", 7: "mems string"},
    "OptionalUInt64": {1: "value int"},
    "ContainerAdjustment": {6: "linux LinuxContainerAdjustment"},
    "LinuxContainerAdjustment": {2: "resources LinuxResources"},
    "ContainerUpdate": {1: "container_id string", 2: "linux LinuxContainerUpdate", 3: "ignore_failure bool"},
    "LinuxContainerUpdate": {1: "resources LinuxResources"},
}

_declared: Final = Messages(MESSAGES)
new_message, read_message = _declared.new, _declared.read


logger = structlog.get_logger()

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Answers a call: the method and the bytes of the request; returns the bytes of the response."""

_FRAME: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">IIBB")
_TO_PLUGIN: Final = 1
_TO_RUNTIME: Final = 2
_REQUEST: Final = 1
_RESPONSE: Final = 2
_LONGEST_FRAME: Final = 4096
"""Go's reader of the other side takes no longer frame at once."""

_LONGEST_MESSAGE: Final = 4 << 20
_UNKNOWN: Final = 2
"""The status code of an error without one of its own."""

_CALL_SECONDS: Final = 10.0


class TtrpcError(Exception):
    """A call has failed, or the connection has ended."""


class Peer:
    """One connection to a runtime.

    Args:
        handler: answers what the runtime asks. Calls are answered one after the other.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._incoming: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._streams = count(1, 2)  # those of a client are odd

    async def run(self) -> None:
        """Read and answer until the connection ends. Raises TtrpcError: the other side does not speak ttrpc."""
        answering = asyncio.create_task(self._answer())
        try:
            await self._read()
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            answering.cancel()
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(TtrpcError("the connection has ended"))
            self._writer.close()

    async def call(self, service: str, method: str, payload: bytes) -> bytes:
        """Ask the runtime. Raises TtrpcError: it refuses, does not answer in time, or the connection has ended."""
        stream = next(self._streams)
        answer = self._waiting[stream] = asyncio.get_running_loop().create_future()
        request = new_message("Request", service=service, method=method, payload=payload)
        try:
            await self._write(_TO_RUNTIME, stream, _REQUEST, request.SerializeToString())
            async with asyncio.timeout(_CALL_SECONDS):
                response = await answer
        except TimeoutError as error:
            raise TtrpcError(f"{method}: no answer within {_CALL_SECONDS:g} s") from error
        except OSError as error:
            raise TtrpcError(f"{method}: {error}") from error
        finally:
            del self._waiting[stream]
        if response.status.code:
            raise TtrpcError(f"{method}: {response.status.message}")
        return bytes(response.payload)

    async def _read(self) -> None:
        buffers = {_TO_PLUGIN: bytearray(), _TO_RUNTIME: bytearray()}
        while True:
            connection, length = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
            if connection not in buffers or length > _LONGEST_MESSAGE + _HEAD.size:
                raise TtrpcError(f"a frame for connection {connection} with {length} bytes is not of NRI")
            buffer = buffers[connection]
            buffer += await self._reader.readexactly(length)
            while len(buffer) >= _HEAD.size:
                size, stream, kind, _ = _HEAD.unpack_from(buffer)
                if size > _LONGEST_MESSAGE:
                    raise TtrpcError(f"a message of {size} bytes is too long")
                if len(buffer) < _HEAD.size + size:
                    break
                self._received(connection, stream, kind, bytes(buffer[_HEAD.size : _HEAD.size + size]))
                del buffer[: _HEAD.size + size]

    def _received(self, connection: int, stream: int, kind: int, data: bytes) -> None:
        if connection == _TO_PLUGIN and kind == _REQUEST:
            self._incoming.put_nowait((stream, data))
        elif connection == _TO_RUNTIME and kind == _RESPONSE and (waiting := self._waiting.get(stream)):
            try:
                found = read_message("Response", data)
            except DecodeError as error:
                raise TtrpcError(f"is no response of ttrpc: {error}") from error
            if not waiting.done():
                waiting.set_result(found)

    async def _answer(self) -> None:
        while True:
            stream, data = await self._incoming.get()
            method = ""
            try:
                request = read_message("Request", data)
                method = request.method
                response = new_message("Response", payload=await self._handler(method, request.payload))
            except Exception as error:  # each call has an answer
                is_ours = not isinstance(error, TtrpcError)
                logger.warning("call of runtime refused", method=method, problem=str(error), exc_info=is_ours)
                status = new_message("Status", code=_UNKNOWN, message=str(error))
                response = new_message("Response", status=status)
            await self._write(_TO_PLUGIN, stream, _RESPONSE, response.SerializeToString())

    async def _write(self, connection: int, stream: int, kind: int, data: bytes) -> None:
        whole = _HEAD.pack(len(data), stream, kind, 0) + data
        for at in range(0, len(whole), _LONGEST_FRAME):
            part = whole[at : at + _LONGEST_FRAME]
            # The two parts of a frame stay together: nothing else runs in between.
            self._writer.write(_FRAME.pack(connection, len(part)) + part)
        await self._writer.drain()


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
