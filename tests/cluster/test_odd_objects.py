"""What an API server takes from tenants, however odd: pods get their devices, and an extender starts with it there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from extender.faces.commands.audit import listed_live
from extender.kube.api import ObjectKey, RawObject
from extender.kube.connection.credentials import Origin
from extender.kube.resources import CLAIMS, NODES, PODS, SLICES, Resource
from tests.kit.controlplane.access import EXTENDER
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name
from tests.kit.controlplane.service import Extender, running_extender
from tests.kit.controlplane.verbs import connect_verbs
from tests.kit.objects.manifests import claim, pod, request, requests, resource_slice

PARAMETERS = {
    "300 levels": b'{"a":' * 300 + b"1" + b"}" * 300,
    "900 levels": b'{"a":' + b"[" * 899 + b"]" * 899 + b"}",
    "1,100 levels": b'{"a":' + b"[" * 1099 + b"]" * 1099 + b"}",
    "4,900 levels": b'{"a":' + b"[" * 4899 + b"]" * 4899 + b"}",
    "half a surrogate pair": rb'{"a":"\ud800"}',
    "escapes that Go writes": rb'{"a":"\u003c\u0026"}',
    "a number with other digits": b'{"a":1.10,"b":1e2,"c":123456789012345678901234567890}',
    "a key twice": b'{"a":1,"a":2}',
}
MANAGED = {levels: b'{"f:a":' * levels + b"{}" + b"}" * levels for levels in (300, 4900)}


@asynccontextmanager
async def there(client: Client, resource: Resource, obj: RawObject, **texts: bytes) -> AsyncIterator[ObjectKey]:
    """An object in which some JSON texts stand for strings of their names, for a while."""
    body = orjson.dumps(obj)
    for name, text in texts.items():
        body = body.replace(f'"{name}"'.encode(), text)
    key = key_of(obj)
    response = await client._http.post(
        client._path(resource, ObjectKey(key.namespace, "")), content=body, headers={"Content-Type": "application/json"}
    )
    assert response.is_success, response.text[:500]
    try:
        yield key
    finally:
        await client._http.patch(
            client._path(resource, key),
            content=b'{"metadata":{"finalizers":null}}',
            headers={"Content-Type": "application/merge-patch+json"},
        )
        await client._http.delete(client._path(resource, key), params={"gracePeriodSeconds": "0"})


def with_parameters(namespace: str, driver: str) -> RawObject:
    config = [{"opaque": {"driver": driver, "parameters": "PARAMETERS"}}]
    return claim(namespace, "odd", requests(request("gpu", driver), config=config))


def managed(obj: RawObject) -> RawObject:
    entry = {
        "manager": "odd",
        "operation": "Update",
        "apiVersion": obj["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": "FIELDS",
    }
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [entry]}}


async def problems(extender: Extender) -> list[RawObject]:
    async with connect_verbs(extender.url) as verbs:
        found: list[RawObject] = (await verbs.http.get("/problems?format=json")).raise_for_status().json()["items"]
        return found


@pytest.mark.parametrize("odd", PARAMETERS)
async def test_a_claim_keeps_its_parameters_and_hands_them_on(
    client: Client, plane: ControlPlane, site: Extender, namespace: str, gpu: Driver, odd: str
) -> None:
    await gpu.publish("site-0", [{"name": "gpu-0"}])
    text = PARAMETERS[odd]
    async with (
        there(client, CLAIMS, with_parameters(namespace, gpu.name), PARAMETERS=text) as key,
        there(client, PODS, pod(namespace, "pod", claims=[by_name("odd")])) as using,
    ):
        assert await bound(client, using) == "site-0"
        body = (await client._http.get(client._path(CLAIMS, key))).content
        assert body.count(b'"parameters":' + text + b"}") == 2, "in the spec and in the allocation"
        assert not await problems(site)
        async with running_extender(plane) as anew:
            assert not await problems(anew)
        snapshot = await listed_live(Origin(str(plane.kubeconfig(EXTENDER))))
        assert snapshot.claims[key].claim.allocation, "in pages"


@pytest.mark.parametrize("levels", MANAGED)
async def test_deep_managed_fields_of_any_kind_keep_nothing_from_being_known(
    client: Client, plane: ControlPlane, site: Extender, namespace: str, gpu: Driver, levels: int
) -> None:
    await gpu.publish("site-1", [{"name": "gpu-0"}])
    fields = MANAGED[levels]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}}
    plain = claim(namespace, "plain", requests(request("gpu", gpu.name)))
    async with (
        there(client, NODES, managed(node), FIELDS=fields),
        there(client, SLICES, managed(resource_slice(namespace, namespace, [{"name": "g"}])), FIELDS=fields),
        there(client, CLAIMS, managed(plain), FIELDS=fields) as key,
        there(client, PODS, managed(pod(namespace, "pod", claims=[by_name("plain")])), FIELDS=fields) as using,
    ):
        # The tests' own client reads no such pods: it is enough that the claim gets its device.
        async with running_extender(plane) as anew:
            assert not await problems(anew)
        assert not await problems(site)
        snapshot = await listed_live(Origin(str(plane.kubeconfig(EXTENDER))), [NODES, SLICES, CLAIMS, PODS])
        assert key in snapshot.claims
        assert using in snapshot.pods
        assert namespace in snapshot.nodes
        assert namespace in snapshot.inventory.slices
