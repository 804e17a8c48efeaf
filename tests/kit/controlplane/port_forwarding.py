"""The part of a kubelet that forwards ports of pods: an API server reaches it by HTTPS, as it reaches a kubelet.

It speaks ``v4.channel.k8s.io`` as kubelet does (k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go): the first
message of each channel has the number of the port, little-endian.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import WSMsgType, web

from extender.kube.api import ObjectKey
from extender.kube.resources import NODES, PODS
from tests.kit.certificates import Authority
from tests.kit.controlplane.client import Client
from tests.kit.objects.manifests import add_node, pod
from tests.kit.process import free_port

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = b"\x00", b"\x01"


@dataclass(slots=True)
class Forwarder:
    """Forwards ports of pods of one node.

    Attributes:
        programs: the local port of the program in each pod; a pod without one refuses connections.
        opened: the pods that a connection was opened to, in order.
    """

    node: str
    port: int
    programs: MutableMapping[ObjectKey, int] = field(default_factory=dict)
    opened: list[ObjectKey] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One connection to one port."""
        websocket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await websocket.prepare(request)
        number = int(request.query["port"]).to_bytes(2, "little")
        await websocket.send_bytes(_DATA + number)
        await websocket.send_bytes(_ERROR + number)
        key = ObjectKey(request.match_info["namespace"], request.match_info["pod"])
        self.opened.append(key)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.programs.get(key, 1))
        except OSError:
            await websocket.send_bytes(_ERROR + f"failed to connect to localhost:{request.query['port']}".encode())
            await websocket.close()
            return websocket
        back = asyncio.create_task(_send_back(reader, websocket))
        async for message in websocket:
            if message.type is WSMsgType.BINARY and message.data[:1] == _DATA:
                writer.write(message.data[1:])
        writer.close()
        back.cancel()
        with suppress(asyncio.CancelledError):
            await back
        return websocket


async def _send_back(reader: asyncio.StreamReader, websocket: web.WebSocketResponse) -> None:
    while data := await reader.read(4096):
        await websocket.send_bytes(_DATA + data)
    await websocket.close()


@asynccontextmanager
async def forwarding_node(client: Client, name: str, folder: Path) -> AsyncIterator[Forwarder]:
    """A node whose kubelet forwards ports; it does nothing else."""
    found = Forwarder(name, free_port())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*Authority().server("127.0.0.1").write(folder, name))
    app = web.Application()
    app.router.add_get("/portForward/{namespace}/{pod}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", found.port, ssl_context=context).start()
    await add_node(client, name)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": found.port}},
    }
    await client.patch_status(NODES, ObjectKey("", name), {"status": status})
    try:
        yield found
    finally:
        await client.delete(NODES, ObjectKey("", name))
        await runner.cleanup()


async def add_service_pod(client: Client, forwarder: Forwarder, key: ObjectKey, port: int) -> None:
    """A ready pod of dra-extender on the node, with a program on a local port."""
    made = pod(key.namespace, key.name)
    made["metadata"]["labels"] = {"app.kubernetes.io/name": "dra-extender"}
    made["spec"]["nodeName"] = forwarder.node
    await client.create(PODS, made)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch_status(PODS, key, {"status": status})
    forwarder.programs[key] = port
