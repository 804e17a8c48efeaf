"""Pods whose author has set spec.nodeName: no scheduler sees them, and their claims are allocated all the same."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, EVENTS, PODS, TEMPLATES
from tests.kit.controlplane.aftermath import consumers, is_allocated, wait_settled
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.scenario import add_pod, by_template, findings, held
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.objects.manifests import pod, template
from tests.kit.waiting import wait_for_answer


@pytest.fixture(params=[1, 2], ids=["one replica", "two replicas"])
async def replicas(request: pytest.FixtureRequest, client: Client, plane: ControlPlane) -> AsyncIterator[int]:
    """Extenders whose schedulers do not exist."""
    await grant_rights(client)
    async with AsyncExitStack() as stack:
        for _ in range(request.param):
            await stack.enter_async_context(running_extender(plane))
        yield request.param


def is_reserved(claim: RawObject | None) -> bool:
    return claim is not None and is_allocated(claim) and bool(consumers(claim))


async def test_each_pod_gets_its_own_device(client: Client, namespace: str, replicas: int) -> None:
    async with fleet(client, nodes=1, devices=8) as (node,):
        assert replicas
        await client.create(TEMPLATES, template(namespace, "gpu"))
        names = [f"pod-{number}" for number in range(8)]
        for name in names:
            await client.create(PODS, pod(namespace, name, claims=[by_template("gpu")], nodeName=node))
        keys = [await claim_of(client, ObjectKey(namespace, name)) for name in names]
        for key in keys:
            await client.wait_for(CLAIMS, key, is_reserved)
        await wait_settled(client, namespace, within=10)
        found = [held(await client.get(CLAIMS, key))[0] for key in keys]
        assert sorted(found) == [(node, f"gpu-{number}") for number in range(8)]
        assert await findings(client, namespace) == []


async def test_on_a_full_node_the_pod_is_told_and_served_when_there_is_room(
    client: Client, namespace: str, replicas: int
) -> None:
    async with fleet(client, nodes=1, devices=1) as (node,):
        assert replicas
        await add_pod(client, namespace, "first", nodeName=node)
        await client.wait_for(CLAIMS, ObjectKey(namespace, "first"), is_reserved)
        await add_pod(client, namespace, "second", nodeName=node)
        note = await told(client, namespace, "second")
        assert f"node {node}: no free device for request gpu" in note
        await client.delete(PODS, ObjectKey(namespace, "first"))
        await client.wait_for(CLAIMS, ObjectKey(namespace, "second"), is_reserved)
        assert await findings(client, namespace) == []


async def claim_of(client: Client, key: ObjectKey) -> ObjectKey:
    """The claim that is made for a pod."""

    def statuses(pod: RawObject | None) -> list[RawObject]:
        return (pod or {}).get("status", {}).get("resourceClaimStatuses") or []

    found = await client.wait_for(PODS, key, lambda pod: bool(statuses(pod)))
    return ObjectKey(key.namespace, statuses(found)[0]["resourceClaimName"])


async def told(client: Client, namespace: str, name: str) -> str:
    """The text of the Event on a pod, once there is one."""

    async def notes() -> list[str]:
        events = (await client.list(EVENTS, namespace)).items
        return [
            str(each["note"])
            for each in events
            if each["regarding"]["name"] == name and each["reason"] == "ClaimsNotAllocated"
        ]

    return (await wait_for_answer(notes, bool, f"an Event on pod {name}", within=60))[0]
