"""Pods with volumes that are made on the node that was chosen: from then on they can go nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, Resource
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, findings, held, rejection
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, pod, request, requests

pytestmark = pytest.mark.usefixtures("site")

STORAGE_CLASSES: Final = Resource("StorageClass", "storageclasses", "storage.k8s.io", ("v1",), namespaced=False)
VOLUMES: Final = Resource("PersistentVolume", "persistentvolumes", "", ("v1",), namespaced=False)
VOLUME_CLAIMS: Final = Resource("PersistentVolumeClaim", "persistentvolumeclaims", "", ("v1",), namespaced=True)
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

GPU: list[RawObject] = [{"name": "gpu-0"}]


class Provisioner:
    """Makes volumes on the nodes that the scheduler has selected, when it is told to; it binds them, too."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    async def order(self, key: ObjectKey) -> None:
        """A claim for a volume of this provisioner's."""
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        await self._client.create(VOLUME_CLAIMS, _object("v1", "PersistentVolumeClaim", key, spec=spec))

    async def selected(self, key: ObjectKey) -> str:
        """The node that a volume is wanted on, once that is known."""
        found = await self._client.wait_for(VOLUME_CLAIMS, key, lambda obj: obj and _selected(obj))
        assert found
        return _selected(found)

    async def deliver(self, key: ObjectKey) -> None:
        """Make the volume where it is wanted."""
        wanted = await self._client.get(VOLUME_CLAIMS, key)
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [_selected(wanted)]}
        spec = {
            "accessModes": wanted["spec"]["accessModes"],
            "capacity": wanted["spec"]["resources"]["requests"],
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": key.namespace,
                "name": key.name,
            }
            | {"uid": wanted["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            "local": {"path": "/volume"},
            "storageClassName": self.name,
        }
        await self._client.create(VOLUMES, _object("v1", "PersistentVolume", ObjectKey("", self.name), spec=spec))
        bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        await self._client.patch(
            VOLUME_CLAIMS, key, {"metadata": {"annotations": bound}, "spec": {"volumeName": self.name}}
        )
        await self._client.patch_status(VOLUME_CLAIMS, key, {"status": {"phase": "Bound"}})


@pytest.fixture
async def provisioner(client: Client, namespace: str) -> AsyncIterator[Provisioner]:
    key = ObjectKey("", namespace)
    made = _object("storage.k8s.io/v1", "StorageClass", key)
    made |= {"provisioner": "example.com/slow", "volumeBindingMode": "WaitForFirstConsumer"}
    await client.create(STORAGE_CLASSES, made)
    yield Provisioner(client, namespace)
    await client.delete(STORAGE_CLASSES, key)
    for resource in (VOLUME_CLAIMS, VOLUMES):
        for each in (await client.list(resource)).items:
            # They are protected by finalizers, which controllers take off that don't run here.
            await client.patch(resource, key_of(each), {"metadata": {"finalizers": None}})
            await client.delete(resource, key_of(each))


def _object(api_version: str, kind: str, key: ObjectKey, **fields: RawObject) -> RawObject:
    metadata = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _selected(obj: RawObject) -> str:
    found: str = (obj["metadata"].get("annotations") or {}).get(SELECTED_NODE, "")
    return found


async def pods_for_one_device(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, provisioner: Provisioner
) -> tuple[RawObject, RawObject]:
    """Two pods that want the only device, the first with a volume; not made yet, but all that they refer to."""
    await gpu.publish("site-1", GPU)
    for name in ("first", "second"):
        await client.create(CLAIMS, claim(namespace, name, requests(request("gpu", gpu.name))))
    await provisioner.order(ObjectKey(namespace, "data"))
    await verbs.wait_in_step(client)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    return (
        pod(namespace, "first", claims=[by_name("first")], volumes=[volume]),
        pod(namespace, "second", claims=[by_name("second")]),
    )


async def test_the_last_device_is_kept_while_a_volume_is_made(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, provisioner: Provisioner
) -> None:
    first, second = await pods_for_one_device(client, verbs, namespace, gpu, provisioner)
    data = ObjectKey(namespace, "data")
    await client.create(PODS, first)
    assert await provisioner.selected(data) == "site-1"
    await verbs.wait_in_step(client)

    await client.create(PODS, second)
    assert "no free device for request gpu" in await rejection(client, key_of(second))
    await provisioner.deliver(data)
    assert await bound(client, key_of(first)) == "site-1"
    assert held(await client.get(CLAIMS, key_of(first))) == [("site-1", "gpu-0")]
    assert not (await client.get(CLAIMS, key_of(second))).get("status", {}).get("allocation")
    assert await findings(client, namespace) == []


@pytest.mark.parametrize("first_of", ["first", "second"])
async def test_two_pods_at_once_and_one_device(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver, provisioner: Provisioner, first_of: str
) -> None:
    """The second is asked about before the scheduler has told what became of the first."""
    first, second = await pods_for_one_device(client, verbs, namespace, gpu, provisioner)
    data = ObjectKey(namespace, "data")
    await asyncio.gather(
        *(client.create(PODS, each) for each in ((first, second) if first_of == "first" else (second, first)))
    )
    selected = asyncio.create_task(provisioner.selected(data))
    taken = asyncio.create_task(bound(client, key_of(second)))
    done, late = await asyncio.wait({selected, taken}, return_when=asyncio.FIRST_COMPLETED)
    assert done != {selected, taken}
    for task in late:
        task.cancel()
    winner, loser = (first, second) if selected in done else (second, first)
    assert "no free device for request gpu" in await rejection(client, key_of(loser))
    if winner is first:
        await provisioner.deliver(data)
    else:
        assert not _selected(await client.get(VOLUME_CLAIMS, data)), "its pod could be nowhere else"
    assert await bound(client, key_of(winner)) == "site-1"
    assert await findings(client, namespace) == []
