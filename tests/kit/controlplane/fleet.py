"""Many nodes with many devices, all alike."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from extender.kube.resources import CLASSES, NODES, SLICES
from tests.kit.controlplane.client import Client, key_of
from tests.kit.objects.manifests import add_node, device_class, resource_slice


@asynccontextmanager
async def fleet(client: Client, *, nodes: int, devices: int) -> AsyncIterator[list[str]]:
    """The names of nodes with this number of devices each. At the end, the nodes and their class are deleted."""
    names = [f"fleet-{number}" for number in range(nodes)]
    async with AsyncExitStack() as stack:
        made = await client.create(CLASSES, device_class())
        stack.push_async_callback(client.delete, CLASSES, key_of(made))
        for name in names:
            made = await add_node(client, name)
            stack.push_async_callback(client.delete, NODES, key_of(made))
            published = [{"name": f"gpu-{number}"} for number in range(devices)]
            made = await client.create(SLICES, resource_slice(name, name, published))
            stack.push_async_callback(client.delete, SLICES, key_of(made))
        yield names
