"""Claims of PodGroups (gate DRAWorkloadResourceClaims): the pods of a group share the claim made for the group."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from extender.kube.api import CLAIMS, CLASSES, NODES, PODS, SLICES, TEMPLATES, ObjectKey, RawObject, Resource
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.controlplane.in_tree import IN_TREE, in_tree
from tests.kit.controlplane.scenario import GPUS, bound, by_template, findings, held
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, device_class, pod, resource_slice, template

GATES: Final = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
FLAG: Final = "--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true"
GROUPS: Final = Resource("PodGroup", "podgroups", "scheduling.k8s.io", ("v1beta1",), namespaced=True)
NODE: Final = "grouped"

pytestmark = pytest.mark.usefixtures("schedulers")


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane with the gates on."""
    (own := logs / "pod-groups").mkdir()
    options = Options(feature_gates=GATES, runtime_config={"scheduling.k8s.io/v1beta1": True})
    with (
        TemporaryDirectory(prefix="dra-extender-") as folder,
        control_plane(binaries, Path(folder), own, options) as it,
    ):
        yield it


@pytest.fixture
async def schedulers(client: Client, plane: ControlPlane, kubernetes: str) -> AsyncIterator[None]:
    """A node with two GPUs, upstream's scheduler with the gates on, and one that asks the extender."""
    if kubernetes == "1.36":
        pytest.skip("the first alpha of 1.36 has other kinds")
    await grant_rights(client)
    await client.create(CLASSES, device_class())
    await add_node(client, NODE)
    await client.create(SLICES, resource_slice(NODE, NODE, GPUS))
    text = SHIPPED.read_text()
    async with running_extender(plane) as extender, in_tree(plane, FLAG):
        config = localize(text, extender.url, plane.kubeconfig(SCHEDULER))
        async with scheduler(plane, config, shipped_flags(text)):
            yield
    await client.delete(SLICES, ObjectKey("", NODE))
    await client.delete(NODES, ObjectKey("", NODE))
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


async def add_group(client: Client, namespace: str) -> ObjectKey:
    """A PodGroup with a claim from a template; returns the key of the claim, once it is made."""
    await client.create(TEMPLATES, template(namespace, "one"))
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": [by_template("one")]},
    }
    await client.create(GROUPS, group)
    found = await client.wait_for(GROUPS, ObjectKey(namespace, "team"), _has_claim)
    assert found
    return ObjectKey(namespace, found["status"]["resourceClaimStatuses"][0]["resourceClaimName"])


def _has_claim(obj: RawObject | None) -> bool:
    return bool(obj and obj.get("status", {}).get("resourceClaimStatuses"))


def member(namespace: str, name: str, *, scheduler: str = "dra-scheduler") -> RawObject:
    group = {"podGroupName": "team"}
    return pod(namespace, name, claims=[by_template("one")], scheduler=scheduler, schedulingGroup=group)


async def test_pods_of_a_group_share_its_claim_until_the_last_one_is_gone(client: Client, namespace: str) -> None:
    key = await add_group(client, namespace)
    made = [await client.create(PODS, member(namespace, name)) for name in ("first", "second")]
    for each in made:
        assert await bound(client, key_of(each)) == NODE
    (only,) = (await client.list(CLAIMS, namespace)).items
    assert (key_of(only), len(held(only))) == (key, 1)
    assert {user["uid"] for user in only["status"]["reservedFor"]} == {each["metadata"]["uid"] for each in made}
    assert await findings(client, namespace) == []
    for each in made:
        await client.delete(PODS, key_of(each))
    await client.wait_for(CLAIMS, key, lambda obj: obj is not None and not is_allocated(obj))
    await client.delete(GROUPS, ObjectKey(namespace, "team"))


async def test_a_pod_joins_others_of_its_group_that_upstreams_scheduler_has_bound(
    client: Client, namespace: str
) -> None:
    """Upstream's scheduler reserves the claim for the group as a whole."""
    key = await add_group(client, namespace)
    theirs = await client.create(PODS, member(namespace, "theirs", scheduler=IN_TREE))
    assert await bound(client, key_of(theirs)) == NODE
    before = await client.get(CLAIMS, key)
    assert [user["resource"] for user in before["status"]["reservedFor"]] == ["podgroups"]
    assert await findings(client, namespace) == []
    ours = await client.create(PODS, member(namespace, "ours"))
    assert await bound(client, key_of(ours)) == NODE
    after = await client.get(CLAIMS, key)
    assert after["status"]["allocation"] == before["status"]["allocation"]
    assert [user["resource"] for user in after["status"]["reservedFor"]] == ["podgroups", "pods"]
    assert await findings(client, namespace) == []
    for each in (theirs, ours):
        await client.delete(PODS, key_of(each))
    await client.delete(GROUPS, ObjectKey(namespace, "team"))
