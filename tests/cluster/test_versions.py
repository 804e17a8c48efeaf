"""API servers that have one beta version of resource.k8s.io and nothing newer.

Kubernetes 1.36's scheduler and controllers need v1, so the tests make the claims and call the verbs themselves.
"""

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from extender.kube.api import RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.controlplane.driver import Driver, driver
from tests.kit.controlplane.scenario import by_name, findings, held
from tests.kit.controlplane.service import Extender, grant_rights, running_extender
from tests.kit.controlplane.verbs import Verbs, connect_verbs
from tests.kit.objects.manifests import add_node, as_version, claim, pod, request, requests
from tests.kit.objects.manifests import namespace as a_namespace

pytestmark = pytest.mark.every_version

NODES = ["old-0", "old-1"]
MEMORY = {"big": "80Gi", "small": "8Gi"}


@dataclass(frozen=True)
class OldSite:
    """A cluster with two nodes and one version of resource.k8s.io, and an extender."""

    version: str
    plane: ControlPlane
    extender: Extender


@dataclass(frozen=True)
class Scene:
    """A namespace there, and a driver."""

    client: Client
    verbs: Verbs
    driver: Driver
    namespace: str

    async def pod(self, name: str, request: RawObject) -> RawObject:
        """A pod and its claim, known to the extender."""
        made = claim(self.namespace, name, requests(request))
        await self.client.create(CLAIMS, as_version(made, self.client.version))
        using = await self.client.create(PODS, pod(self.namespace, name, claims=[by_name(name)]))
        await self.verbs.wait_in_step(self.client)
        return using

    async def result(self, using: RawObject) -> dict[str, Any]:
        """The only device of its claim, as the allocation has it."""
        (only,) = (await self.client.get(CLAIMS, key_of(using)))["status"]["allocation"]["devices"]["results"]
        return dict(only)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["v1beta2", "v1beta1"])
async def old_site(
    request: pytest.FixtureRequest, binaries: Binaries, logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OldSite]:
    version: str = request.param
    served = {f"resource.k8s.io/{each}": each == version for each in ("v1", "v1beta2", "v1beta1")}
    options = Options(runtime_config=served, controllers=False)
    files = logs / f"only-{version}"
    files.mkdir()
    with control_plane(binaries, tmp_path_factory.mktemp(version), files, options) as plane:
        async with connect(plane.access()) as admin:
            await grant_rights(admin)
            for name in NODES:
                await add_node(admin, name)
        async with running_extender(plane) as extender:
            yield OldSite(version, plane, extender)


@pytest.fixture
async def scene(old_site: OldSite) -> AsyncIterator[Scene]:
    namespace = f"test-{secrets.token_hex(4)}"
    async with (
        connect(old_site.plane.access(), old_site.version) as client,
        connect_verbs(old_site.extender.url) as verbs,
        driver(client, verbs, f"gpu.{namespace}.example.com") as running,
    ):
        await client.create(NAMESPACES, a_namespace(namespace))
        yield Scene(client, verbs, running, namespace)


async def test_there_is_no_other_version(scene: Scene) -> None:
    served = (await scene.client.read("/apis/resource.k8s.io"))["versions"]
    assert [each["version"] for each in served] == [scene.client.version]


async def test_a_claim_with_a_selector(scene: Scene) -> None:
    name = scene.driver.name
    await scene.driver.publish("old-0", [{"name": n, "capacity": {"memory": {"value": v}}} for n, v in MEMORY.items()])
    expression = f'device.capacity["{name}"].memory.compareTo(quantity("{MEMORY["small"]}")) <= 0'
    wanted = request("gpu", name, selectors=[{"cel": {"expression": expression}}])
    using = await scene.pod("first", wanted)
    passed = await scene.verbs.filter(using, *NODES)
    assert passed["NodeNames"] == ["old-0"], passed
    assert (await scene.verbs.prioritize(using, "old-0"))["old-0"] > 0
    assert await scene.verbs.bind(using, "old-0") == ""

    got = await scene.client.get(CLAIMS, key_of(using))
    assert got["apiVersion"] == f"resource.k8s.io/{scene.client.version}"
    assert held(got) == [("old-0", "small")]
    assert [user["name"] for user in got["status"]["reservedFor"]] == ["first"]
    assert got["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert (await scene.client.get(PODS, key_of(using)))["spec"]["nodeName"] == "old-0"

    late = await scene.pod("late", wanted)
    refused = await scene.verbs.filter(late, *NODES)
    assert refused["FailedAndUnresolvableNodes"]["old-0"] == "no free device for request gpu"
    assert await scene.verbs.bind(late, "old-0") == "node old-0: no free device for request gpu"
    assert not (await scene.client.get(CLAIMS, key_of(late))).get("status")
    assert await findings(scene.client, scene.namespace) == []


async def test_shares_of_a_device(scene: Scene) -> None:
    memory = {"value": "10Gi", "requestPolicy": {"default": "2Gi"}}
    shareable = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    await scene.driver.publish("old-1", [shareable])
    wanted = request("gpu", scene.driver.name, capacity={"requests": {"memory": "5Gi"}})
    got = []
    for name in ("first", "second"):
        using = await scene.pod(name, wanted)
        assert await scene.verbs.bind(using, "old-1") == ""
        got.append(await scene.result(using))
    assert [each["consumedCapacity"] for each in got] == [{"memory": "5Gi"}] * 2
    assert got[0]["shareID"] != got[1]["shareID"]
    late = await scene.pod("late", wanted)
    assert await scene.verbs.bind(late, "old-1") == "node old-1: not enough device capacity for request gpu"
    assert await findings(scene.client, scene.namespace) == []


async def test_alternatives_are_allocated_on_servers_of_older_versions(scene: Scene) -> None:
    await scene.driver.publish("old-0", [{"name": "gpu-0"}])
    alternatives = [
        {"name": name, "deviceClassName": scene.driver.name, "count": count} for name, count in (("two", 2), ("one", 1))
    ]
    using = await scene.pod("pod", {"name": "gpu", "firstAvailable": alternatives})
    assert await scene.verbs.bind(using, "old-0") == ""
    got = await scene.result(using)
    assert (got["request"], got["device"]) == ("gpu/one", "gpu-0")
    assert await findings(scene.client, scene.namespace) == []


async def test_what_a_failed_bind_has_written_is_taken_back(scene: Scene) -> None:
    await scene.driver.publish("old-0", [{"name": "gpu-0"}])
    wanted = request("gpu", scene.driver.name)
    using = await scene.pod("first", wanted)
    assert (await scene.verbs.filter(using, "old-0"))["NodeNames"] == ["old-0"]
    await scene.client.delete(PODS, key_of(using))
    refused = await scene.verbs.bind(using, "old-0")
    assert "is gone" in refused or "is being deleted" in refused  # the watch may be late by one event
    assert not (await scene.client.get(CLAIMS, key_of(using))).get("status")
    assert await scene.verbs.bind(await scene.pod("second", wanted), "old-0") == ""
    assert await findings(scene.client, scene.namespace) == []
