"""The real control plane does what the design counts on: asserted here, so that ours in memory can be held to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.kube.api import ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, CLASSES, NODES, SLICES, TEMPLATES
from tests.kit.controlplane.binaries import RELEASES, Binaries
from tests.kit.controlplane.client import Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.objects.manifests import add_node, allocation, claim, device_class, resource_slice

START_SECONDS = 30.0
"""For etcd, API server and controllers together; docs/testing.md has what they take."""


def test_it_is_up_in_seconds(plane: ControlPlane) -> None:
    started = {name: plane.seconds[name] for name in ("etcd", "kube-apiserver", "kube-controller-manager")}
    assert sum(started.values()) < START_SECONDS, started


@pytest.mark.every_version
def test_it_is_a_version_that_is_supported(kubernetes: str) -> None:
    assert kubernetes in RELEASES


@pytest.mark.every_version
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_discovery_names_the_versions_and_kinds(client: Client, kubernetes: str, version: str) -> None:
    served = {entry["version"] for entry in (await client.read("/apis/resource.k8s.io"))["versions"]}
    assert version in served
    kinds = {entry["name"] for entry in (await client.read(f"/apis/resource.k8s.io/{version}"))["resources"]}
    assert {each.plural for each in (CLAIMS, CLASSES, SLICES, TEMPLATES)} <= kinds
    with_taint_rules = {"1.36": {"v1beta2"}, "1.37": {"v1beta2", "v1"}}[kubernetes]
    assert ("devicetaintrules" in kinds) == (version in with_taint_rules)


async def test_an_api_server_that_is_killed_comes_back_with_its_objects(
    binaries: Binaries, logs: Path, tmp_path: Path
) -> None:
    folder = logs / "restarted"
    folder.mkdir()
    with control_plane(binaries, tmp_path, folder, Options(controllers=False)) as plane:
        async with connect(plane.access()) as client:
            made = await client.create(CLAIMS, claim("default", "claim"))
            plane.apiserver.kill()
            with pytest.raises(OutcomeUnknownError):
                await client.get(CLAIMS, key_of(made))
            plane.apiserver.start(within=START_SECONDS)
            assert await client.get(CLAIMS, key_of(made)) == made


async def test_a_field_whose_gate_is_off_is_dropped_without_a_word(
    binaries: Binaries, logs: Path, tmp_path: Path
) -> None:
    folder = logs / "gate"
    folder.mkdir()
    options = Options(feature_gates={"DRAConsumableCapacity": False}, controllers=False)
    sent = allocation("gpu-0")
    with control_plane(binaries, tmp_path, folder, options) as plane:
        async with connect(plane.access()) as client:
            made = await client.create(CLAIMS, claim("default", "claim"))
            sent["devices"]["results"][0]["shareID"] = "c2a5e2a8-33c5-4a5f-a7d1-1d2c3b4a5f60"
            held = await client.update_status(CLAIMS, {**made, "status": {"allocation": sent}})
    assert held["status"]["allocation"] == allocation("gpu-0")


class TestObjects:
    @pytest.fixture
    async def cluster_objects(self, client: Client, namespace: str) -> AsyncIterator[dict[str, RawObject]]:
        devices = [
            {"name": "gpu-0", "attributes": {"model": {"string": "A"}}, "capacity": {"memory": {"value": "80Gi"}}}
        ]
        made = {
            "class": await client.create(CLASSES, device_class(f"{namespace}.example.com")),
            "slice": await client.create(SLICES, resource_slice(namespace, "node-0", devices)),
        }
        yield made
        await client.delete(CLASSES, key_of(made["class"]))
        await client.delete(SLICES, key_of(made["slice"]))

    async def test_slices_and_classes_come_back_as_written(
        self, client: Client, namespace: str, cluster_objects: dict[str, RawObject]
    ) -> None:
        found = await client.get(SLICES, ObjectKey("", namespace))
        assert found == cluster_objects["slice"]
        assert found["spec"]["devices"][0]["capacity"] == {"memory": {"value": "80Gi"}}
        assert (await client.get(CLASSES, key_of(cluster_objects["class"]))) == cluster_objects["class"]

    async def test_versions_are_views_of_one_object(
        self, client: Client, namespace: str, cluster_objects: dict[str, RawObject]
    ) -> None:
        seen = {
            version: (await client.speaking(version).get(SLICES, key_of(cluster_objects["slice"])))["spec"]["devices"][
                0
            ]
            for version in ("v1", "v1beta2", "v1beta1")
        }
        assert seen["v1"] == seen["v1beta2"] == {"name": "gpu-0", **seen["v1beta1"]["basic"]}
        made = await client.create(CLAIMS, claim(namespace, "claim"))
        oldest = await client.speaking("v1beta1").get(CLAIMS, key_of(made))
        assert oldest["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
        assert oldest["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    async def test_a_watch_goes_on_from_a_list(self, client: Client, namespace: str) -> None:
        await client.create(CLAIMS, claim(namespace, "before"))
        listing = await client.list(CLAIMS, namespace)
        assert [key_of(item).name for item in listing.items] == ["before"]
        made = await client.create(CLAIMS, claim(namespace, "after"))
        await client.delete(CLAIMS, key_of(made))
        seen = []
        async for event in client.watch(CLAIMS, ObjectKey(namespace, ""), since=listing.revision):
            seen.append((event.type, key_of(event.object).name))
            if event.type == "DELETED":
                break
        assert seen == [("ADDED", "after"), ("DELETED", "after")]


class TestNodes:
    async def test_a_node_is_made_ready_by_hand(self, client: Client, namespace: str) -> None:
        await add_node(client, namespace, **{"example.com/widget": "2"})
        node = await client.get(NODES, ObjectKey("", namespace))
        await client.delete(NODES, key_of(node))
        assert node["spec"] == {}, "no taint"
        assert node["status"]["allocatable"]["example.com/widget"] == "2"

    async def test_a_new_node_is_tainted(self, client: Client, namespace: str) -> None:
        node = await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}})
        await client.delete(NODES, key_of(node))
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["node.kubernetes.io/not-ready"]
