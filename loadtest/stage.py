"""What is measured on the wire: the service in a process of its own, over an API server in another."""

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import orjson

from tests.kit.objects.worlds import Machine, RawObject, Wish, pending_claim, world

NAMESPACE: Final = "default"
_START_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
_CALIBRATION_LOOPS: Final = 5_000_000


class CallError(Exception):
    """An answer that is no success."""


class Connection(asyncio.Protocol):
    """A connection that is kept, for one request at a time. What it does for one is next to nothing."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._wanted = 0
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def to(cls, port: int) -> Self:
        """Connect to a port of this machine."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one, for TCP
        """The connection is there."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some more of the answer is there."""
        self._received += data
        if not self._wanted:
            head, end, _ = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._wanted = len(head) + len(end) + int(length)
        if len(self._received) >= self._wanted:
            answer, self._received, self._wanted = bytes(self._received), bytearray(), 0
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """There will be no answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    def close(self) -> None:
        """Give the connection up."""
        if self._transport is not None:
            self._transport.close()

    async def send(self, request: bytes) -> bytes:
        """Send a request in one go, and wait for all of the answer.

        Returns:
            Its body.

        Raises:
            CallError: it is no success.
            ConnectionError: there is none.
        """
        if self._transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        answer = await self._answer
        head, _, body = answer.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1][:1] != b"2":
            raise CallError(f"{head.splitlines()[0].decode()}: {body.decode()}")
        return body


def request(method: str, path: str, body: object = None) -> bytes:
    """A request as Go's client writes it."""
    data = b"" if body is None else orjson.dumps(body)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(data)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + data


@dataclass(frozen=True, slots=True)
class Process:
    """A process that answers on a port."""

    pid: int
    port: int

    def computed(self) -> float:
        """Seconds that all of its threads have computed so far (Linux)."""
        clock = ~self.pid << 3 | 2  # clock_getcpuclockid(3), as the C library works it out
        return time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Stage:
    """A service over an API server, and what is there."""

    service: Process
    api: Process
    objects: Mapping[str, Sequence[RawObject]]

    @property
    def names(self) -> list[str]:
        """Of the nodes."""
        return [each["metadata"]["name"] for each in self.objects["nodes"]]


def verb(name: str, args: Mapping[str, Any]) -> bytes:
    """A request to the extender."""
    return request("POST", f"/{name}", args)


@asynccontextmanager
async def stage(nodes: int, pods: int, more: Mapping[str, Sequence[RawObject]] | None = None) -> AsyncIterator[Stage]:
    """So many nodes of 8 devices, 40 % of them in use, and so many pods that wait, each with a claim for one device.

    Args:
        nodes: how many.
        pods: how many.
        more: other objects that are there, by any name.
    """
    objects = world(nodes, Machine(), Wish())
    objects["pending"] = [pending_claim(Wish(), f"claim-{number}") for number in range(pods)]
    objects["pods"] = [waiting_pod(f"pod-{number}", f"claim-{number}") for number in range(pods)]
    objects.update({name: list(each) for name, each in (more or {}).items()})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "objects.jsonl"
        file.write_bytes(b"\n".join(orjson.dumps(each) for kind in objects.values() for each in kind))
        async with process([sys.executable, "-m", "tests.kit.servers.writable", str(file)]) as (pid, output):
            api = Process(pid, int(await output.readline()))
            async with _service(folder, api.port) as service:
                yield Stage(service, api, objects)


@asynccontextmanager
async def process(command: Sequence[str]) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    """A process as long as the context lasts; its number, and what it prints."""
    started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    if started.stdout is None:
        raise RuntimeError(command)
    try:
        yield started.pid, started.stdout
    finally:
        if started.returncode is None:
            started.terminate()
        await started.wait()


@asynccontextmanager
async def _service(folder: Path, api: int) -> AsyncIterator[Process]:
    """The service as it comes, its log in a file."""
    config = folder / "kubeconfig"
    config.write_bytes(orjson.dumps(kubeconfig(api)))
    port = free_port()
    command = [sys.executable, "-m", "extender", "serve", "--port", str(port), "--kubeconfig", str(config)]
    with (folder / "log").open("wb") as log:
        started = await asyncio.create_subprocess_exec(*command, stderr=log)
        try:
            await _ready(port, started)
            yield Process(started.pid, port)
        finally:
            if started.returncode is None:
                started.terminate()
            await started.wait()


async def _ready(port: int, started: asyncio.subprocess.Process) -> None:
    """Wait until the service knows the cluster."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and started.returncode is None:
        try:
            connection = await Connection.to(port)
            try:
                await connection.send(request("GET", "/readyz"))
            finally:
                connection.close()
        except (ConnectionError, CallError):
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return
    raise RuntimeError("the service does not get ready")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def kubeconfig(port: int) -> RawObject:
    """For an API server on a port of this machine, without TLS."""
    return {
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "fake", "user": {"token": "fake"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }


def waiting_pod(name: str, claim: str = "") -> RawObject:
    """A pod as the API server and a scheduler have it, with a claim or with none."""
    container: RawObject = {
        "name": "main",
        "image": "registry.example.com/image:1",
        "command": ["run", "--with", "options"],
        "env": [{"name": f"VARIABLE_{index}", "value": "value"} for index in range(10)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    token = {"serviceAccountToken": {"path": "token"}}
    spec: RawObject = {
        "schedulerName": "dra-scheduler",
        "containers": [container],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        "volumes": [{"name": "kube-api-access", "projected": {"sources": [token]}}],
    }
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        container["resources"]["claims"] = [{"name": "gpu"}]
    metadata = {"namespace": NAMESPACE, "name": name, "uid": f"uid-{name}", "labels": {"app": "example"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def asked_names(names: Sequence[str], shuffle: Callable[[list[Sequence[str]]], None]) -> list[str]:
    """Names in an order as kube-scheduler asks: its workers check nodes in pieces, and finish them as it happens."""
    size = max(1, int(len(names) ** 0.5))
    pieces = [names[start : start + size] for start in range(0, len(names), size)]
    shuffle(pieces)
    return [name for piece in pieces for name in piece]


def calibration() -> float:
    """Seconds for a loop that does nothing: how fast this machine is now."""
    started = time.perf_counter()
    for _ in range(_CALIBRATION_LOOPS):
        pass
    return time.perf_counter() - started


def machine() -> str:
    """How busy it is, and how fast."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return f"load {load} on {os.cpu_count()} cores; {_CALIBRATION_LOOPS:,} empty loops take {calibration():.2f} s"
