"""NodeReady on a real API server: DaemonSets are read with the rights that we ship."""

import httpx

from extender.client import AsyncAutoscalerClient, AsyncSession, Readiness
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import DAEMON_SETS, NODES, SLICES
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.scenario import GPUS
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.objects.manifests import add_node, resource_slice
from tests.kit.waiting import wait_for_answer

NODE = "ready-0"
READY = Readiness(ready=True)


def daemon_set(namespace: str, drivers: str) -> RawObject:
    labels = {"app": "driver"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "driver", "image": "none"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    metadata = {"name": "driver", "namespace": namespace, "annotations": {"dra-extender.dev/drivers": drivers}}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


async def answer(session: AsyncSession, expected: Readiness) -> Readiness:
    """The answer of NodeReady, once it is the expected one."""
    return await wait_for_answer(lambda: session.node_ready(NODE), expected.__eq__, "the answer", within=60.0)


async def test_a_node_waits_for_the_driver_of_a_daemon_set(client: Client, plane: ControlPlane, namespace: str) -> None:
    await grant_rights(client)
    await add_node(client, NODE)
    published = resource_slice(NODE, NODE, GPUS)
    driver = published["spec"]["driver"]
    made = await client.create(DAEMON_SETS, daemon_set(namespace, driver))
    async with running_extender(plane) as extender:
        async with AsyncAutoscalerClient(httpx.AsyncClient(base_url=extender.url, timeout=30.0)) as autoscaler:
            waits = f"driver {driver} has published nothing for the node yet (DaemonSet {namespace}/driver)"
            silent = Readiness(ready=False, reason=waits)
            assert await answer(autoscaler.latest, silent) == silent
            await client.create(SLICES, published)
            assert await answer(autoscaler.latest, READY) == READY
        extender.process.kill()
    await client.delete(SLICES, key_of(published))
    await client.delete(NODES, ObjectKey("", NODE))
    await client.delete(DAEMON_SETS, key_of(made))
