"""Extended resources (KEP-5004): device plugins on some nodes, devices of a class on others, one pod spec for both.

The special claim's life: made, allocated, reserved, mapped in the status that kubelet reads, deleted with its pod.
"""

from collections.abc import AsyncIterator

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.extended import add_pod, box, mapped, special_claims
from tests.kit.controlplane.scenario import GPUS, bound, by_name, findings, held, rejection
from tests.kit.objects.manifests import claim, device_class, request, requests

pytestmark = pytest.mark.usefixtures("site")


@pytest.fixture
def resource(namespace: str) -> str:
    """An extended resource of the test's own."""
    return f"{namespace}.example.com/gpu"


@pytest.fixture
async def served(client: Client, gpu: Driver, resource: str) -> Driver:
    """A driver whose class serves the resource."""
    await client.patch(CLASSES, ObjectKey("", gpu.name), {"spec": {"extendedResourceName": resource}})
    return gpu


@pytest.fixture
async def plugin(client: Client, resource: str) -> AsyncIterator[str]:
    """A node where a device plugin offers two."""
    key = ObjectKey("", "site-2")

    async def offer(amount: str | None) -> None:
        amounts = {resource: amount}
        await client.patch_status(NODES, key, {"status": {"capacity": amounts, "allocatable": amounts}})

    await offer("2")
    yield key.name
    await offer(None)


class TestDevices:
    @pytest.mark.every_version
    async def test_the_special_claims_life(self, client: Client, namespace: str, served: Driver, resource: str) -> None:
        await served.publish("site-0", GPUS)
        key = ObjectKey(namespace, "pod")
        await add_pod(client, namespace, "pod", box("main", **{resource: "2", "cpu": "1"}))
        assert await bound(client, key) == "site-0"
        made, shown = await mapped(client, key)
        assert sorted(held(made)) == [("site-0", "gpu-0"), ("site-0", "gpu-1")]
        assert shown == [f"main {resource} container-0-request-1"]
        assert await findings(client, namespace) == []

        await client.delete(PODS, key)
        await client.wait_for(CLAIMS, key_of(made), lambda obj: obj is None)
        await add_pod(client, namespace, "next", box("main", **{resource: "2"}))
        assert await bound(client, ObjectKey(namespace, "next")) == "site-0"

    async def test_a_device_class_is_asked_for_by_its_implicit_resource_name(
        self, client: Client, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-1", GPUS)
        implicit = f"deviceclass.resource.kubernetes.io/{gpu.name}"
        await add_pod(client, namespace, "pod", box("main", **{implicit: "1"}))
        assert await bound(client, ObjectKey(namespace, "pod")) == "site-1"
        _, shown = await mapped(client, ObjectKey(namespace, "pod"))
        assert shown == [f"main {implicit} container-0-request-0"]

    async def test_containers_of_all_sorts(self, client: Client, namespace: str, served: Driver, resource: str) -> None:
        """The init container uses what the others will, and one more."""
        await served.publish("site-0", [{"name": f"gpu-{index}"} for index in range(4)])
        init = [box("init", **{resource: "3"}), {**box("side", **{resource: "1"}), "restartPolicy": "Always"}]
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}), initContainers=init)
        assert await bound(client, ObjectKey(namespace, "pod")) == "site-0"
        made, shown = await mapped(client, ObjectKey(namespace, "pod"))
        assert len(held(made)) == 3
        assert shown == [
            f"side {resource} container-1-request-0",
            f"main {resource} container-2-request-0",
            f"init {resource} container-1-request-0",
            f"init {resource} container-2-request-0",
            f"init {resource} container-0-request-0",
        ]

    async def test_with_claims_of_its_own_it_is_one_problem(
        self, client: Client, namespace: str, served: Driver, resource: str
    ) -> None:
        await served.publish("site-0", GPUS[:1])
        await served.publish("site-1", GPUS)
        await client.create(CLAIMS, claim(namespace, "own", requests(request("gpu", served.name))))
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}), claims=[by_name("own")])
        assert await bound(client, ObjectKey(namespace, "pod")) == "site-1", "site-0 has one device only"
        made, _ = await mapped(client, ObjectKey(namespace, "pod"))
        own = await client.get(CLAIMS, ObjectKey(namespace, "own"))
        assert sorted([*held(made), *held(own)]) == [("site-1", "gpu-0"), ("site-1", "gpu-1")]
        assert await findings(client, namespace) == []

    async def test_more_than_a_claim_can_hold(
        self, client: Client, namespace: str, served: Driver, resource: str
    ) -> None:
        await served.publish("site-0", [{"name": f"gpu-{index}"} for index in range(40)])
        await add_pod(client, namespace, "pod", box("main", **{resource: "33"}))
        # The scheduler itself refuses what no class serves, until it has heard of the class's name for it.
        reason = await rejection(client, ObjectKey(namespace, "pod"), about="extended")
        assert "extended resources need 33 devices, a claim can hold 32" in reason
        await add_pod(client, namespace, "most", box("main", **{resource: "32"}))
        assert await bound(client, ObjectKey(namespace, "most")) == "site-0"

    async def test_of_two_classes_the_newer_serves(
        self, client: Client, namespace: str, served: Driver, nic: Driver, resource: str
    ) -> None:
        await served.publish("site-0", GPUS)
        await nic.publish("site-1", GPUS)
        old = await client.get(CLASSES, ObjectKey("", served.name))
        newer = device_class(f"newer.{namespace}", nic.name)
        newer["spec"]["extendedResourceName"] = resource
        made = await client.create(CLASSES, newer)
        # Creation times are whole seconds; of equal ones the lower name serves.
        while made["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]:
            await client.delete(CLASSES, key_of(made))
            made = await client.create(CLASSES, newer)
        await nic.verbs.wait_in_step(client)
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}))
        assert await bound(client, ObjectKey(namespace, "pod")) == "site-1"
        await client.delete(CLASSES, key_of(made))

    async def test_devices_that_appear_wake_the_pod(
        self, client: Client, namespace: str, served: Driver, resource: str
    ) -> None:
        key = ObjectKey(namespace, "pod")
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}))
        assert await rejection(client, key, about=f"no device for {resource} of container main")
        await served.publish("site-1", GPUS)
        assert await bound(client, key) == "site-1"

    async def test_a_class_that_goes_and_comes(
        self, client: Client, namespace: str, served: Driver, resource: str
    ) -> None:
        await served.publish("site-0", GPUS)
        await client.patch(CLASSES, ObjectKey("", served.name), {"spec": {"extendedResourceName": None}})
        key = ObjectKey(namespace, "pod")
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}))
        assert await rejection(client, key, about=f"Insufficient {resource}")
        await client.patch(CLASSES, ObjectKey("", served.name), {"spec": {"extendedResourceName": resource}})
        assert await bound(client, key) == "site-0"
        await mapped(client, key)


class TestMixedCluster:
    async def test_the_plugin_serves_on_its_node_and_devices_elsewhere(
        self, client: Client, namespace: str, served: Driver, plugin: str, resource: str
    ) -> None:
        await served.publish("site-0", GPUS[:1])
        for name in ("a", "b", "c"):
            await add_pod(client, namespace, name, box("main", **{resource: "1"}))
        nodes = {name: await bound(client, ObjectKey(namespace, name)) for name in ("a", "b", "c")}
        assert sorted(nodes.values()) == ["site-0", plugin, plugin]
        for name, node in nodes.items():
            found = (await client.get(PODS, ObjectKey(namespace, name)))["status"]
            assert ("extendedResourceClaimStatus" in found) is (node == "site-0")
        (made,) = await special_claims(client, namespace)
        assert held(made) == [("site-0", "gpu-0")]

        await add_pod(client, namespace, "d", box("main", **{resource: "1"}))
        reason = await rejection(client, ObjectKey(namespace, "d"), about="device")
        assert f"1 no free device for {resource} of container main" in reason
        assert f"1 Insufficient {resource}" in reason

    async def test_amounts_are_exact(
        self, client: Client, namespace: str, served: Driver, plugin: str, resource: str
    ) -> None:
        amounts = {resource: "1k"}
        await client.patch_status(
            NODES, ObjectKey("", plugin), {"status": {"capacity": amounts, "allocatable": amounts}}
        )
        await served.publish("site-0", GPUS)
        await add_pod(client, namespace, "pod", box("main", **{resource: "1k"}))
        assert await bound(client, ObjectKey(namespace, "pod")) == plugin
        assert await special_claims(client, namespace) == []
