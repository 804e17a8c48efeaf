"""A container runtime as an NRI plugin meets it: containers that are listed, made, updated and stopped."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from extender.node import nri

_PLUGIN: Final = "nri.pkg.api.v1alpha1.Plugin"
_FRAME, _HEAD = struct.Struct(">II"), struct.Struct(">IIBB")
_SECONDS: Final = 10.0


def container(uid: str, *cdi: str, cpus: str = "", env: tuple[str, ...] = (), cores: int = 0) -> Any:
    """A container as the runtime describes it. ``cores``: the CPUs that it requests."""
    made = nri.new_message("Container", id=uid, pod_sandbox_id="pod", name="main", state=3, env=env)
    made.CDI_devices.extend(nri.new_message("CDIDevice", name=each) for each in cdi)
    made.linux.resources.cpu.cpus = cpus
    made.linux.resources.cpu.shares.value = 1024 * cores or 2
    return made


@dataclass
class FakeRuntime:
    """Speaks with one plugin at a time.

    Attributes:
        containers: what it has, by id, with the CPUs and the NUMA nodes that each runs on.
        broken: the containers that it cannot update.
    """

    containers: dict[str, Any] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    synchronized: asyncio.Event = field(default_factory=asyncio.Event)
    updated: asyncio.Event = field(default_factory=asyncio.Event)
    _writer: asyncio.StreamWriter | None = None
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _streams: Any = field(default_factory=lambda: count(1, 2))

    def cpus(self) -> Mapping[str, str]:
        """Where each container runs."""
        return {uid: each.linux.resources.cpu.cpus for uid, each in self.containers.items()}

    def memory_nodes(self) -> Mapping[str, str]:
        """Where each container has its memory."""
        return {uid: each.linux.resources.cpu.mems for uid, each in self.containers.items()}

    async def create(self, uid: str, *cdi: str, whole: bool = True, env: tuple[str, ...] = (), cores: int = 0) -> None:
        """Make a container; ``whole``: to the end. Raises AssertionError: the plugin refuses it."""
        made = container(uid, *cdi, env=env, cores=cores)
        answer = nri.read_message("CreateContainerResponse", await self._ask("CreateContainer", _about(made)))
        made.linux.resources.cpu.cpus = answer.adjust.linux.resources.cpu.cpus
        made.linux.resources.cpu.mems = answer.adjust.linux.resources.cpu.mems
        self.containers[uid] = made
        if whole:
            await self.finish(uid)

    async def finish(self, uid: str) -> None:
        """A container has been made."""
        await self._ask("PostCreateContainer", _about(self.containers[uid]))

    async def stop(self, uid: str) -> None:
        """A container has ended."""
        await self._ask("StopContainer", _about(self.containers.pop(uid)))

    def disconnect(self) -> None:
        """Close the connection of the plugin, which may connect again."""
        assert self._writer
        self.synchronized.clear()
        self._writer.close()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a plugin."""
        self._writer, buffers = writer, {1: bytearray(), 2: bytearray()}
        try:
            while True:
                connection, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
                assert length <= 4096, "a runtime reads no longer frames"
                buffer = buffers[connection]
                buffer += await reader.readexactly(length)
                while len(buffer) >= _HEAD.size and len(buffer) >= _HEAD.size + _HEAD.unpack_from(buffer)[0]:
                    size, stream, _, _ = _HEAD.unpack_from(buffer)
                    data = bytes(buffer[_HEAD.size : _HEAD.size + size])
                    del buffer[: _HEAD.size + size]
                    self._received(connection, stream, data)
        except asyncio.IncompleteReadError:
            writer.close()

    def _received(self, connection: int, stream: int, data: bytes) -> None:
        if connection == 1:
            self._answers.pop(stream).set_result(nri.read_message("Response", data))
            return
        request = nri.read_message("Request", data)
        response = nri.new_message("Empty")
        if request.method == "UpdateContainers":
            response = nri.new_message("UpdateContainersResponse")
            response.failed.extend(self._update(nri.read_message("UpdateContainersRequest", request.payload).update))
        self._send(2, stream, 2, nri.new_message("Response", payload=response.SerializeToString()))
        if request.method == "RegisterPlugin":
            self._greeting = asyncio.create_task(self._greet())

    def _update(self, updates: Any) -> list[Any]:
        failed = []
        self.updated.set()
        for each in updates:
            if each.container_id in self.broken:
                failed.append(each)
            elif each.container_id in self.containers:
                self.containers[each.container_id].linux.resources.cpu.CopyFrom(each.linux.resources.cpu)
        return failed

    async def _greet(self) -> None:
        await self._ask("Configure", nri.new_message("ConfigureRequest", runtime_name="fake", runtime_version="1"))
        pod = nri.new_message("PodSandbox", id="pod", name="p", namespace="ns")
        listed = nri.new_message("SynchronizeRequest", pods=[pod], containers=list(self.containers.values()))
        answer = nri.read_message("SynchronizeResponse", await self._ask("Synchronize", listed))
        self._update(answer.update)
        self.synchronized.set()

    async def _ask(self, method: str, message: Any) -> bytes:
        stream = next(self._streams)
        answer = self._answers[stream] = asyncio.get_running_loop().create_future()
        payload = message.SerializeToString()
        self._send(1, stream, 1, nri.new_message("Request", service=_PLUGIN, method=method, payload=payload))
        async with asyncio.timeout(_SECONDS):
            found = await answer
        assert not found.status.code, found.status.message
        return bytes(found.payload)

    def _send(self, connection: int, stream: int, kind: int, message: Any) -> None:
        assert self._writer
        data = message.SerializeToString()
        whole = _HEAD.pack(len(data), stream, kind, 0) + data
        # In pieces, as a socket may cut them.
        for at in range(0, len(whole), 1000):
            self._writer.write(_FRAME.pack(connection, len(whole[at : at + 1000])) + whole[at : at + 1000])


def _about(made: Any) -> Any:
    request = nri.new_message("ContainerRequest", container=made)
    request.pod.name, request.pod.namespace, request.pod.uid = "p", "ns", "uid-p"
    request.pod.linux.cgroup_parent = "/kubepods/poduid-p"
    return request


@asynccontextmanager
async def listening(runtime: FakeRuntime, path: Path) -> AsyncIterator[None]:
    """Within, plugins can connect to the runtime at a socket. After it, their connections are closed."""
    server = await asyncio.start_unix_server(runtime.connect, path)
    try:
        yield
    finally:
        server.close()
        if runtime._writer:
            runtime._writer.close()
        runtime.synchronized.clear()
