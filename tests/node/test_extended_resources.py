"""Extended resources (KEP-5004): the kubelet finds a pod's special claim by the pod's status."""

import pytest

from extender.kube.resources import CLAIMS
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.extended import mapped
from tests.kit.controlplane.scenario import findings, held
from tests.kit.node.driver import variable
from tests.kit.node.node import RESOURCE
from tests.kit.node.pods import RUN_SECONDS, devices_of, end_pods, start_pod
from tests.kit.objects.manifests import DEVICE_CLASS

pytestmark = pytest.mark.usefixtures("node")


@pytest.mark.parametrize("resource", [RESOURCE, f"deviceclass.resource.kubernetes.io/{DEVICE_CLASS}"])
async def test_a_container_has_the_devices_of_its_limits(client: Client, namespace: str, resource: str) -> None:
    key = await start_pod(client, namespace, "pod", limits={resource: "2"})
    seen = await devices_of(client, key)
    made, _ = await mapped(client, key)
    assert len(held(made)) == 2
    assert seen == dict(variable(device) for _, device in held(made))
    assert await findings(client, namespace) == []

    await end_pods(client, key)
    await client.wait_for(CLAIMS, key_of(made), lambda found: found is None, within=RUN_SECONDS)
