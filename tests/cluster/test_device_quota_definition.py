"""The definition of DeviceQuota comes and goes while the extender runs, also without the right to list its objects."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS, Resource
from tests.kit.controlplane.client import Client, Condition, key_of
from tests.kit.controlplane.definitions import DEVICE_QUOTA, defined
from tests.kit.controlplane.device_quotas import says
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, rejection
from tests.kit.controlplane.service import Extender
from tests.kit.objects.manifests import claim, claim_spec, is_bound, pod
from tests.kit.objects.quotas import quota
from tests.kit.waiting import wait_for_answer

ROLES: Final = Resource("ClusterRole", "clusterroles", "rbac.authorization.k8s.io", ("v1",), namespaced=False)
ROLE: Final = ObjectKey("", "dra-extender")
NOTICED: Final = 75.0
"""Seconds within which the extender looks for the definition, with a margin."""


async def asks(client: Client, namespace: str, name: str, of: Driver) -> ObjectKey:
    """A pod with a claim of its own."""
    await client.create(CLAIMS, claim(namespace, name, claim_spec(1, of.name)))
    await client.create(PODS, pod(namespace, name, claims=[by_name(name)]))
    return ObjectKey(namespace, name)


def one(of: Driver) -> RawObject:
    return {"name": "gpu", "deviceClassName": of.name, "devices": 1}


async def noticed(client: Client, resource: Resource, key: ObjectKey, condition: Condition) -> None:
    """Wait until the condition holds of an object: longer than a watch may be silent."""
    await wait_for_answer(lambda: client.get(resource, key), condition, str(key), within=NOTICED)


async def readiness(site: Extender, holds: Callable[[str], bool]) -> str:
    """What /readyz says, once it is as wanted."""
    async with httpx.AsyncClient(base_url=site.url) as http:
        return (
            await wait_for_answer(
                lambda: http.get("/readyz?verbose"), lambda answer: holds(answer.text), "/readyz", within=NOTICED
            )
        ).text


async def test_a_definition_limits_once_it_is_there_and_no_longer_when_it_is_gone(
    client: Client, namespace: str, gpu: Driver
) -> None:
    await gpu.publish("site-0", [{"name": "gpu-0"}, {"name": "gpu-1"}])
    assert await bound(client, await asks(client, namespace, "before", gpu)) == "site-0"
    async with defined(client, DEVICE_QUOTA):
        made = await client.create(DEVICE_QUOTAS, quota(one(gpu), namespace=namespace))
        await noticed(client, DEVICE_QUOTAS, key_of(made), says("gpu 1/1"))
        waiting = await asks(client, namespace, "waiting", gpu)
        assert "device quota gold: limit gpu allows 1 device" in await rejection(client, waiting)
    await noticed(client, PODS, waiting, is_bound)


@pytest.mark.nightly
async def test_without_the_right_to_list_quotas_nothing_is_decided_and_the_reason_is_named(
    client: Client, namespace: str, gpu: Driver, site: Extender
) -> None:
    await gpu.publish("site-0", [{"name": "gpu-0"}])
    async with _without_rights(client):
        async with defined(client, DEVICE_QUOTA):
            said = await readiness(site, lambda text: "devicequotas.dra-extender.dev is forbidden" in text)
            assert "not ready" in said
            key = await asks(client, namespace, "waiting", gpu)
            assert "devicequotas.dra-extender.dev is forbidden" in await rejection(client, key)
        assert (await readiness(site, lambda text: text.endswith("\nok\n"))).endswith("ok\n")
        await noticed(client, PODS, key, is_bound)
    async with defined(client, DEVICE_QUOTA):
        made = await client.create(DEVICE_QUOTAS, quota(one(gpu), namespace=namespace))
        await noticed(client, DEVICE_QUOTAS, key_of(made), says("gpu 1/1"))


@asynccontextmanager
async def _without_rights(client: Client) -> AsyncIterator[None]:
    """The extender has the rights of a version that did not know the kind."""
    role = await client.get(ROLES, ROLE)
    others = [rule for rule in role["rules"] if rule.get("apiGroups") != [DEVICE_QUOTAS.group]]
    await client.patch(ROLES, ROLE, {"rules": others})
    try:
        yield
    finally:
        await client.patch(ROLES, ROLE, {"rules": role["rules"]})
