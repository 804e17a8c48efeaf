"""What claims may ask for: constraints across drivers, alternatives, all devices of a node, administrative access."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from extender.cluster.compute_claims import with_cores
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, TEMPLATES
from tests.kit.controlplane.client import NAMESPACES, Client, key_of
from tests.kit.controlplane.driver import Driver, driver
from tests.kit.controlplane.scenario import bound, by_name, by_template, findings, held, rejection
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, pod, request, requests, template
from tests.kit.places import CONFIG

pytestmark = pytest.mark.usefixtures("site")

ROOT = "resource.kubernetes.io/pcieRoot"


def on_root(name: str, root: str) -> RawObject:
    """A device that says behind which PCIe root it sits."""
    return {"name": name, "attributes": {ROOT: {"string": root}}}


class TestTwoDrivers:
    @pytest.fixture
    def pair(self, gpu: Driver, nic: Driver) -> RawObject:
        """One device of each driver, behind one PCIe root."""
        both = (request("gpu", gpu.name), request("nic", nic.name))
        return requests(*both, constraints=[{"requests": ["gpu", "nic"], "matchAttribute": ROOT}])

    async def test_two_claims_each_with_devices_of_one_root(
        self, client: Client, namespace: str, gpu: Driver, nic: Driver, pair: RawObject
    ) -> None:
        await gpu.publish("site-0", [on_root("gpu-0", "r0"), on_root("gpu-1", "r1")])
        await nic.publish("site-0", [on_root("nic-0", "r1"), on_root("nic-1", "r2")])
        await gpu.publish("site-1", [on_root("gpu-0", "r0"), on_root("gpu-1", "r1")])
        await nic.publish("site-1", [on_root("nic-0", "r1"), on_root("nic-1", "r0")])
        names = ["left", "right"]
        for name in names:
            await client.create(CLAIMS, claim(namespace, name, pair))
        using = [{"name": name, "resourceClaimName": name} for name in names]
        await client.create(PODS, pod(namespace, "pod", claims=using))

        assert await bound(client, ObjectKey(namespace, "pod")) == "site-1", "site-0 has one such pair only"
        got = [{device for _, device in held(await client.get(CLAIMS, ObjectKey(namespace, name)))} for name in names]
        assert sorted(map(sorted, got)) == [["gpu-0", "nic-1"], ["gpu-1", "nic-0"]]
        assert await findings(client, namespace) == []

    async def test_devices_of_different_roots_are_refused(
        self, client: Client, namespace: str, gpu: Driver, nic: Driver, pair: RawObject
    ) -> None:
        await gpu.publish("site-0", [on_root("gpu-0", "r0")])
        await nic.publish("site-0", [on_root("nic-0", "r1")])
        await client.create(CLAIMS, claim(namespace, "claim", pair))
        await client.create(PODS, pod(namespace, "pod", claims=[by_name("claim")]))
        assert f"satisfy constraint on {ROOT}" in await rejection(client, ObjectKey(namespace, "pod"))
        assert not (await client.get(CLAIMS, ObjectKey(namespace, "claim"))).get("status")


async def test_the_first_alternative_that_there_is(client: Client, namespace: str, gpu: Driver) -> None:
    sizes = [("big", "80Gi"), ("small", "8Gi")]
    await gpu.publish("site-0", [{"name": name, "capacity": {"memory": {"value": size}}} for name, size in sizes])
    alternatives = [
        {"name": name, "deviceClassName": gpu.name, "selectors": [{"cel": {"expression": memory_of(gpu, size)}}]}
        for name, size in sizes
    ]
    spec = requests({"name": "gpu", "firstAvailable": alternatives})
    got = []
    for name in ("first", "second", "third"):
        await client.create(CLAIMS, claim(namespace, name, spec))
        await client.create(PODS, pod(namespace, name, claims=[by_name(name)]))
        if name != "third":
            await bound(client, ObjectKey(namespace, name))
            (result,) = (await client.get(CLAIMS, ObjectKey(namespace, name)))["status"]["allocation"]["devices"][
                "results"
            ]
            got.append((result["request"], result["device"]))
    assert got == [("gpu/big", "big"), ("gpu/small", "small")]
    assert "no free device for request gpu" in await rejection(client, ObjectKey(namespace, "third"))
    assert await findings(client, namespace) == []


def memory_of(driver: Driver, size: str) -> str:
    return f'device.capacity["{driver.name}"].memory.compareTo(quantity("{size}")) == 0'


async def test_all_devices_of_a_node(client: Client, namespace: str, gpu: Driver) -> None:
    devices: list[RawObject] = [{"name": f"gpu-{number}"} for number in range(4)]
    await gpu.publish("site-0", devices)
    await client.create(TEMPLATES, template(namespace, "one", requests(request("gpu", gpu.name))))
    await client.create(TEMPLATES, template(namespace, "all", requests(request("gpu", gpu.name, allocationMode="All"))))
    await client.create(PODS, pod(namespace, "small", claims=[by_template("one")]))
    await bound(client, ObjectKey(namespace, "small"))
    await client.create(PODS, pod(namespace, "greedy", claims=[by_template("all")]))
    greedy = ObjectKey(namespace, "greedy")
    assert "free device" in await rejection(client, greedy, about="device"), "one of them is taken"

    await client.delete(PODS, ObjectKey(namespace, "small"))
    assert await bound(client, greedy) == "site-0"
    (made,) = [each for each in (await client.list(CLAIMS, namespace)).items if each["status"].get("allocation")]
    assert sorted(held(made)) == [("site-0", device["name"]) for device in devices]
    assert await findings(client, namespace) == []


class TestAdminAccess:
    @pytest.fixture
    def watching(self, gpu: Driver) -> RawObject:
        return requests(request("gpu", gpu.name, allocationMode="All", adminAccess=True))

    async def test_is_refused_in_namespaces_without_the_label(
        self, client: Client, namespace: str, watching: RawObject
    ) -> None:
        with pytest.raises(ApiError, match="admin access to devices requires the"):
            await client.create(CLAIMS, claim(namespace, "monitor", watching))

    async def test_neither_blocks_nor_is_blocked(
        self, client: Client, namespace: str, gpu: Driver, watching: RawObject
    ) -> None:
        label = {"resource.kubernetes.io/admin-access": "true"}
        await client.patch(NAMESPACES, ObjectKey("", namespace), {"metadata": {"labels": label}})
        await gpu.publish("site-0", [{"name": "gpu-0"}])
        for name, spec in (
            ("before", watching),
            ("using", requests(request("gpu", gpu.name))),
            ("after", watching),
        ):
            await client.create(CLAIMS, claim(namespace, name, spec))
            await client.create(PODS, pod(namespace, name, claims=[by_name(name)]))
            assert await bound(client, ObjectKey(namespace, name)) == "site-0"
            got = await client.get(CLAIMS, ObjectKey(namespace, name))
            assert held(got) == [("site-0", "gpu-0")]
            (result,) = got["status"]["allocation"]["devices"]["results"]
            assert result.get("adminAccess", False) == (name != "using")
        assert await findings(client, namespace) == []


async def test_compute_claim_of_the_proposal_gets_its_cores_beside_its_device(
    client: Client, verbs: Verbs, namespace: str, nic: Driver
) -> None:
    numa_node = "resource.kubernetes.io/numaNode"
    (cpus,) = (each for each in story("slices.yaml") if each["spec"]["driver"] == "dra.cpu")
    wanted = next(story("claims.yaml"))
    wanted["metadata"]["namespace"] = namespace
    wanted["spec"]["spec"]["devices"]["requests"] = [request("nic", nic.name)]
    async with driver(client, verbs, cpus["spec"]["driver"]) as compute:
        await compute.publish("site-0", cpus["spec"]["devices"])
        await nic.publish("site-0", [{"name": "nic-1", "attributes": {numa_node: {"int": 1}}}])
        await client.create(TEMPLATES, dict(with_cores(wanted)))
        using = [{"name": "compute", "resourceClaimTemplateName": wanted["metadata"]["name"]}]
        made = await client.create(PODS, pod(namespace, "core", claims=using))
        await bound(client, key_of(made))
        running = await client.get(PODS, key_of(made))
        (status,) = running["status"]["resourceClaimStatuses"]
        found = await client.get(CLAIMS, ObjectKey(namespace, status["resourceClaimName"]))
        assert [device for _, device in held(found)] == ["nic-1", "cpu-8", "cpu-24", "cpu-9", "cpu-25", "cpu-10"]
        configs = found["status"]["allocation"]["devices"]["config"]
        assert [each["opaque"]["parameters"]["cores"] for each in configs] == [["5", "20"]]
        assert await findings(client, namespace) == []
        await client.delete(PODS, key_of(made))


def story(file: str) -> Iterator[Any]:
    """The objects of a file of the story of compute claims."""
    return yaml.safe_load_all((CONFIG / "compute" / file).read_text())
