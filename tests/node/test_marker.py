"""The marker of pods with devices: no node offers it, and kubelet starts the pods all the same."""

import pytest

from extender.kube.resources import CLAIMS, NODES, PODS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.only_scheduler import DEFAULT, MARKER, is_marked, only_scheduler
from tests.kit.controlplane.scenario import by_name, findings
from tests.kit.node.node import NODE_KEY, RESOURCE, Node
from tests.kit.node.pods import devices_of, start_pod
from tests.kit.objects.manifests import claim

pytestmark = pytest.mark.usefixtures("node")


async def test_a_marked_pod_runs_with_its_devices(client: Client, node: Node, namespace: str) -> None:
    found = await client.get(NODES, NODE_KEY)
    assert MARKER not in found["status"]["allocatable"]
    async with only_scheduler(client, node.plane):
        await client.create(CLAIMS, claim(namespace, "one"))
        claiming = await start_pod(
            client, namespace, "claiming", claims=[by_name("one")], limits={MARKER: "1"}, scheduler=DEFAULT
        )
        extended = await start_pod(
            client, namespace, "extended", limits={MARKER: "1", RESOURCE: "1"}, scheduler=DEFAULT
        )
        for key in (claiming, extended):
            assert len(await devices_of(client, key)) == 1
            assert is_marked(await client.get(PODS, key))
        assert await findings(client, namespace) == []
