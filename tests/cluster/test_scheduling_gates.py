"""Pods with devices wait at a scheduling gate, which dra-extender lifts in fair turns, on a real control plane."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import count
from typing import Final

import pytest

from extender.cluster.objects.pods import GATE, GROUP, GROUP_SIZE
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import DEVICE_QUOTAS, PODS, TEMPLATES
from extender.planning.kube_scheduler import DEFAULT_SCHEDULER
from tests.kit.controlplane.access import EXTENDER, ROLE_BINDINGS, ROLES, TENANT
from tests.kit.controlplane.client import Client, connect
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.definitions import DEVICE_QUOTA, defined
from tests.kit.controlplane.only_scheduler import policies_in_force
from tests.kit.controlplane.pair import Pair, pair
from tests.kit.controlplane.scenario import bound, by_template, event
from tests.kit.controlplane.scheduling_gates import SERVE_GATED, gates, gates_in_force, is_gated
from tests.kit.controlplane.verbs import connect_verbs
from tests.kit.objects.manifests import DEVICE_CLASS, is_bound, pod, request, requests, template
from tests.kit.objects.quotas import quota
from tests.kit.waiting import pause, wait_for_answer

NAME: Final = "gated-scheduler"
OTHER: Final = "example.com/quota"
LIFTED: Final = {"spec": {"schedulingGates": None}}


@pytest.fixture
async def gated(client: Client, plane: ControlPlane, nodes: list[str]) -> AsyncIterator[Pair]:
    """A scheduler, an extender that lifts gates, and the shipped policies."""
    assert nodes
    async with (
        defined(client, DEVICE_QUOTA),
        gates_in_force(client, NAME),
        pair(client, plane, NAME, serve=SERVE_GATED) as running,
    ):
        yield running


async def grant(client: Client, namespace: str, user: str) -> None:
    """Let a user change the pods of a namespace, as the role `edit` does."""
    metadata = {"name": user, "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch", "update"]}]
    await client.create(ROLES, {"metadata": metadata, "rules": rules})
    reference = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": user}
    subject = {"apiGroup": ROLES.group, "kind": "User", "name": user}
    await client.create(ROLE_BINDINGS, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})


def gated_pod(namespace: str, name: str, **spec: object) -> RawObject:
    return pod(namespace, name, claims=[by_template("gpu")], scheduler=NAME, **spec)


async def stays(client: Client, keys: Iterable[ObjectKey], seconds: float = 3.0) -> None:
    """Pods keep the gate for some seconds."""
    await pause(seconds)
    for key in keys:
        assert is_gated(found := await client.get(PODS, key)), key
        assert reason(found) == "SchedulingGated", "Cluster Autoscaler looks at no other pods than `Unschedulable` ones"


def reason(raw: RawObject) -> str:
    """Why the pod has no node, as its condition `PodScheduled` says; empty if it has one."""
    found = [each for each in raw["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
    return "".join(str(each.get("reason", "")) for each in found)


class TestPolicies:
    @pytest.fixture(autouse=True)
    async def in_force(self, client: Client) -> AsyncIterator[None]:
        async with gates_in_force(client, NAME):
            yield

    async def test_a_pod_with_devices_gets_the_gate_beside_its_own(self, client: Client, namespace: str) -> None:
        made = await client.try_to_create(PODS, gated_pod(namespace, "p"))
        assert gates(made) == [GATE]
        own = gated_pod(namespace, "p", schedulingGates=[{"name": OTHER}])
        assert gates(await client.try_to_create(PODS, own)) == [OTHER, GATE]
        twice = gated_pod(namespace, "p", schedulingGates=[{"name": GATE}])
        assert gates(await client.try_to_create(PODS, twice)) == [GATE]

    async def test_other_pods_get_none(self, client: Client, namespace: str) -> None:
        for asking in (
            pod(namespace, "plain", scheduler=NAME),
            pod(namespace, "other", claims=[by_template("gpu")], scheduler="another"),
            gated_pod(namespace, "placed", nodeName="somewhere"),
        ):
            assert gates(await client.try_to_create(PODS, asking)) == []

    async def test_only_who_may_bind_pods_lifts_the_gate(
        self, client: Client, plane: ControlPlane, namespace: str
    ) -> None:
        made = await client.create(PODS, gated_pod(namespace, "p"))
        key = ObjectKey(namespace, made["metadata"]["name"])
        async with connect(plane.access(EXTENDER)) as extender:
            numbers = count()

            async def labeled() -> str:
                try:
                    return str(await extender.patch(PODS, key, {"metadata": {"labels": {"a": f"b{next(numbers)}"}}}))
                except ApiError as error:
                    return str(error)

            refused = "nothing of a pod but its scheduling gates"
            await wait_for_answer(labeled, lambda found: refused in found, "a label that is refused", within=30.0)
            image = {"spec": {"containers": [{**made["spec"]["containers"][0], "image": "another"}]}}
            with pytest.raises(ApiError, match=refused):
                await extender.patch(PODS, key, image)
            await grant(client, namespace, TENANT)
            async with connect(plane.access(TENANT)) as tenant:

                async def ungated() -> str:
                    try:
                        return str(await tenant.patch(PODS, key, LIFTED))
                    except ApiError as error:
                        return str(error)

                refused = "only who may bind pods may lift the scheduling gate"
                await wait_for_answer(ungated, lambda found: refused in found, "a tenant that is refused", within=30.0)
            lifted = await extender.patch(PODS, key, LIFTED)
        assert gates(lifted) == []


async def test_a_pod_that_another_policy_gives_to_our_scheduler_gets_the_gate(client: Client, namespace: str) -> None:
    async with policies_in_force(client), gates_in_force(client):
        made = await client.try_to_create(
            PODS, pod(namespace, "p", claims=[by_template("gpu")], scheduler=DEFAULT_SCHEDULER)
        )
    assert made["spec"]["schedulerName"] == "dra-scheduler"
    assert gates(made) == [GATE]


@pytest.mark.usefixtures("gated")
async def test_pods_get_their_devices_after_their_turn(client: Client, namespace: str) -> None:
    await client.create(TEMPLATES, template(namespace, "gpu"))
    for number in range(4):
        await client.create(PODS, gated_pod(namespace, f"p{number}"))
    for number in range(4):
        assert await bound(client, ObjectKey(namespace, f"p{number}"))


@pytest.mark.usefixtures("gated")
async def test_a_pod_of_another_tenant_is_bound_beside_a_hopeless_crowd(
    client: Client, namespace: str, neighbor: str
) -> None:
    nowhere = requests(request("gpu", DEVICE_CLASS, selectors=[{"cel": {"expression": "false"}}]))
    await client.create(TEMPLATES, template(namespace, "gpu", nowhere))
    await client.create(TEMPLATES, template(neighbor, "gpu"))
    limit = asyncio.Semaphore(20)

    async def made(number: int) -> None:
        async with limit:
            await client.create(PODS, gated_pod(namespace, f"hopeless-{number}"))

    await asyncio.gather(*map(made, range(100)))
    await client.create(PODS, gated_pod(neighbor, "mine"))
    assert await bound(client, ObjectKey(neighbor, "mine"))
    crowd = (await client.list(PODS, namespace)).items
    assert 0 < sum(not is_gated(each) for each in crowd) <= 80


async def test_the_pods_of_a_gang_stay_gated_until_all_are_there(client: Client, namespace: str, gated: Pair) -> None:
    await client.create(TEMPLATES, template(namespace, "gpu"))
    members = [gated_pod(namespace, f"m{number}") for number in range(3)]
    for each in members:
        each["metadata"]["annotations"] = {GROUP: "g", GROUP_SIZE: "3"}
    for each in members[:2]:
        await client.create(PODS, each)
    keys = [ObjectKey(namespace, f"m{number}") for number in range(3)]
    await stays(client, keys[:2])
    async with connect_verbs(gated.extender.url) as verbs:
        await verbs.explained(keys[0], about="2 of 3 are there")
    await event(client, namespace, "DevicesUnavailable", about="2 of 3 are there")
    await client.create(PODS, members[2])
    for key in keys:
        assert await bound(client, key)


@pytest.mark.usefixtures("gated")
async def test_of_pods_that_fit_nowhere_an_autoscaler_sees_so_many_as_their_quota_has_room_for(
    client: Client, namespace: str
) -> None:
    nowhere = requests(request("gpu", DEVICE_CLASS, selectors=[{"cel": {"expression": "false"}}]))
    limit: RawObject = {"name": "gpu", "deviceClassName": DEVICE_CLASS, "devices": 1}
    await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
    await client.create(TEMPLATES, template(namespace, "gpu", nowhere))
    await pause(1.0)
    for number in range(5):
        await client.create(PODS, gated_pod(namespace, f"p{number}"))

    async def reasons() -> list[str]:
        return sorted(map(reason, (await client.list(PODS, namespace)).items))

    one = ["SchedulingGated"] * 4 + ["Unschedulable"]
    await wait_for_answer(reasons, lambda found: found == one, "a pod that was tried", within=30.0)
    await pause(20.0)
    assert await reasons() == one


@pytest.mark.usefixtures("gated")
async def test_a_pod_over_quota_stays_gated_until_there_is_room(client: Client, namespace: str) -> None:
    limit: RawObject = {"name": "gpu", "deviceClassName": DEVICE_CLASS, "devices": 1}
    await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
    await pause(1.0)
    await client.create(TEMPLATES, template(namespace, "gpu"))
    await client.create(PODS, gated_pod(namespace, "first"))
    assert await bound(client, ObjectKey(namespace, "first"))
    await client.create(PODS, gated_pod(namespace, "second"))
    await stays(client, [ObjectKey(namespace, "second")])
    await client.delete(PODS, ObjectKey(namespace, "first"))
    assert await bound(client, ObjectKey(namespace, "second"))


async def test_pods_stay_gated_while_the_extender_is_away_and_go_on_after_it(
    client: Client, namespace: str, gated: Pair
) -> None:
    await client.create(TEMPLATES, template(namespace, "gpu"))
    gated.kill()
    names = [f"p{number}" for number in range(4)]
    for name in names:
        await client.create(PODS, gated_pod(namespace, name))
    await stays(client, [ObjectKey(namespace, name) for name in names], seconds=1.0)
    await gated.restart()
    for name in names:
        assert await bound(client, ObjectKey(namespace, name))


@pytest.mark.usefixtures("gated")
async def test_a_gate_of_others_stays_before_ours(client: Client, namespace: str) -> None:
    await client.create(TEMPLATES, template(namespace, "gpu"))
    key = ObjectKey(namespace, "p")
    await client.create(PODS, gated_pod(namespace, "p", schedulingGates=[{"name": OTHER}]))
    await stays(client, [key])
    await client.patch(PODS, key, {"spec": {"schedulingGates": [{"name": GATE}]}})
    assert is_bound(await client.wait_for(PODS, key, is_bound))
