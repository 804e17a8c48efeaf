"""DeviceQuota on a real API server: what its definition refuses, who is let through, what two replicas do at once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import PRIORITIES, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.definitions import DEVICE_QUOTA
from tests.kit.controlplane.device_quotas import says
from tests.kit.controlplane.driver import Driver, driver
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.scenario import bound, by_name, findings, rejection
from tests.kit.controlplane.service import running_extender
from tests.kit.controlplane.verbs import Verbs, connect_verbs
from tests.kit.objects.manifests import claim, claim_spec, is_bound, pod, priority_class
from tests.kit.objects.parts import api_object
from tests.kit.objects.quotas import quota

RACES: Final = 200
PLACES: Final = ("site-0", "site-1")
"""A node for each replica: they do not want the same device."""


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that has the kind before the extender starts."""
    with own_plane(binaries, logs, "device-quota", definition=DEVICE_QUOTA) as running:
        yield running


GPU: Final[RawObject] = {"name": "gpu", "deviceClassName": "gpu", "devices": 1}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"limits": []}, "spec.limits"),
        ({"limits": [GPU, GPU]}, "Duplicate value"),
        ({"limits": [{"name": "gpu", "devices": 1}]}, "needs deviceClassName or selectors"),
        ({"limits": [{"name": "gpu", "deviceClassName": "gpu"}]}, "needs devices or capacity"),
        ({"limits": [{**GPU, "devices": -1}]}, "greater than or equal to 0"),
        ({"limits": [{**GPU, "name": "A B"}]}, "spec.limits[0].name"),
        ({"limits": [{**GPU, "capacity": {"memory": "much"}}]}, "must be quantities of 0 or more"),
        ({"limits": [{**GPU, "capacity": {"memory": "-1Gi"}}]}, "must be quantities of 0 or more"),
        ({"limits": [{**GPU, "selectors": [{"cel": {}}]}]}, "spec.limits[0].selectors[0].cel.expression"),
        ({"limits": [GPU], "borrowing": True}, "borrowing needs a cohort"),
        ({"limits": [GPU], "cohort": "Research"}, "spec.cohort"),
    ],
)
async def test_the_definition_refuses(client: Client, namespace: str, spec: RawObject, problem: str) -> None:
    with pytest.raises(ApiError) as caught:
        await client.create(DEVICE_QUOTAS, api_object("DeviceQuota", "gold", namespace=namespace, spec=spec))
    assert problem in str(caught.value)


async def asks(client: Client, namespace: str, name: str, of: str, count: int = 1, **spec: Any) -> ObjectKey:
    """A pod with a claim of its own."""
    await client.create(CLAIMS, claim(namespace, name, claim_spec(count, of)))
    await client.create(PODS, pod(namespace, name, claims=[by_name(name)], **spec))
    return ObjectKey(namespace, name)


def sized(*memory: str) -> list[RawObject]:
    return [{"name": f"gpu-{i}", "capacity": {"memory": {"value": each}}} for i, each in enumerate(memory)]


class TestScheduled:
    async def test_a_pod_over_quota_waits_until_devices_are_given_back_or_the_quota_is_raised(
        self, client: Client, verbs: Verbs, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-0", sized("80Gi", "80Gi", "80Gi"))
        limit = {**GPU, "deviceClassName": gpu.name}
        made = await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
        first = await asks(client, namespace, "first", gpu.name)
        assert await bound(client, first) == "site-0"
        second = await asks(client, namespace, "second", gpu.name)
        assert "device quota gold: limit gpu allows 1 device" in await rejection(client, second)
        reason = "device quota gold: limit gpu allows 1 device: 1 of 1 in use, 1 more needed"
        await verbs.explained(second, about=reason)
        found = await client.wait_for(DEVICE_QUOTAS, key_of(made), says("gpu 1/1"))
        assert found
        assert found["status"]["usedBy"] == [{"claim": "first", "devices": 1, "pods": ["first"]}]

        await client.delete(PODS, first)
        await client.delete(CLAIMS, first)
        assert await bound(client, second) == "site-0"
        third = await asks(client, namespace, "third", gpu.name)
        assert "device quota gold" in await rejection(client, third)
        await client.patch(DEVICE_QUOTAS, key_of(made), {"spec": {"limits": [{**limit, "devices": 2}]}})
        assert await bound(client, third) == "site-0"

    async def test_capacity_counts_by_the_devices_that_are_allocated(
        self, client: Client, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-0", sized("80Gi", "80Gi"))
        await gpu.publish("site-1", sized("10Gi"))
        limit = {"name": "gpu", "deviceClassName": gpu.name, "capacity": {"memory": "100Gi"}}
        made = await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
        nodes = [await bound(client, await asks(client, namespace, name, gpu.name)) for name in ("a", "b")]
        assert sorted(nodes) == ["site-0", "site-1"], "two of 80Gi would be too much"
        third = await asks(client, namespace, "c", gpu.name)
        assert "device quota gold: limit gpu allows 100Gi of memory" in await rejection(client, third)
        await client.wait_for(DEVICE_QUOTAS, key_of(made), says("gpu 90Gi/100Gi memory"))

    async def test_a_selector_limits_some_devices_of_any_class(
        self, client: Client, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-0", sized("80Gi", "80Gi"))
        await gpu.publish("site-1", sized("10Gi", "10Gi"))
        big = f'device.capacity["{gpu.name}"].memory.compareTo(quantity("40Gi")) >= 0'
        limit = {"name": "big", "selectors": [{"cel": {"expression": big}}], "devices": 1}
        await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
        nodes = [await bound(client, await asks(client, namespace, name, gpu.name)) for name in ("a", "b", "c")]
        assert nodes.count("site-0") <= 1
        assert await rejection(client, await asks(client, namespace, "d", gpu.name), about="device quota gold")

    async def test_a_quota_that_can_not_be_read_lets_nothing_through(
        self, client: Client, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-0", sized("80Gi"))
        broken = {"name": "big", "selectors": [{"cel": {"expression": "device."}}], "devices": 1}
        await client.create(DEVICE_QUOTAS, quota(broken, namespace=namespace))
        key = await asks(client, namespace, "a", gpu.name)
        assert "device quota gold can't be read: " in await rejection(client, key)
        await client.delete(DEVICE_QUOTAS, ObjectKey(namespace, "gold"))
        assert await bound(client, key) == "site-0"


class TestKept:
    async def test_a_gang_and_plain_pods_do_not_withhold_more_than_the_quota_together(
        self, client: Client, verbs: Verbs, namespace: str, gpu: Driver
    ) -> None:
        """The pods of the gang are tried by hand, and not bound: their devices stay kept."""
        await gpu.publish("site-0", sized(*["80Gi"] * 8))
        made = await client.create(
            DEVICE_QUOTAS, quota({**GPU, "deviceClassName": gpu.name, "devices": 4}, namespace=namespace)
        )
        gang = [await self._member(client, namespace, f"member-{number}", gpu.name) for number in range(4)]
        await verbs.wait_in_step(client)
        for each in gang:
            await verbs.filter(await client.get(PODS, each), "site-0", "site-1")
        assert await client.wait_for(DEVICE_QUOTAS, key_of(made), says("gpu 4/4 (4 kept)"))

        plain = [await asks(client, namespace, f"plain-{number}", gpu.name) for number in range(4)]
        reasons = [await rejection(client, each) for each in plain]
        assert all("device quota gold: limit gpu allows 4 devices" in reason for reason in reasons)
        await verbs.explained(
            plain[0], about="limit gpu allows 4 devices: 4 of 4 in use (4 of them kept for waiting pods)"
        )

        nodes = [await verbs.bind(await client.get(PODS, each), "site-0") for each in gang]
        assert nodes == [""] * 4, "what is kept for a pod and for its gang does not count against it"
        assert await client.wait_for(DEVICE_QUOTAS, key_of(made), says("gpu 4/4"))
        assert not any([is_bound(await client.get(PODS, each)) for each in plain])
        for each in gang:
            await client.delete(PODS, each)
            await client.delete(CLAIMS, each)
        assert {await bound(client, each) for each in plain} == {"site-0"}

    @staticmethod
    async def _member(client: Client, namespace: str, name: str, of: str) -> ObjectKey:
        await client.create(CLAIMS, claim(namespace, name, claim_spec(1, of)))
        waiting = pod(namespace, name, claims=[by_name(name)], scheduler="nobody", terminationGracePeriodSeconds=0)
        waiting["metadata"]["annotations"] = {GROUP: "train", GROUP_SIZE: "4"}
        return key_of(await client.create(PODS, waiting))


class TestBorrowed:
    @pytest.fixture
    async def middling(self, client: Client, namespace: str) -> AsyncIterator[str]:
        """A priority class above most pods and below the important pod."""
        name = f"{namespace}-middling"
        await client.create(PRIORITIES, priority_class(name, 500))
        yield name
        await client.delete(PRIORITIES, ObjectKey("", name))

    async def test_a_namespace_gets_its_quota_back_from_the_one_that_has_borrowed(
        self, client: Client, namespace: str, neighbor: str, gpu: Driver, important: str, middling: str
    ) -> None:
        """Although another pod of lower priority has a device, too."""
        await gpu.publish("site-0", sized("80Gi", "80Gi"))
        limit = {**GPU, "deviceClassName": gpu.name}
        await client.create(DEVICE_QUOTAS, quota({**limit, "devices": 2}, namespace=namespace, cohort=namespace))
        lent = await client.create(
            DEVICE_QUOTAS, quota({**limit, "devices": 0}, namespace=neighbor, cohort=namespace, borrowing=True)
        )
        at_once = {"terminationGracePeriodSeconds": 0}
        own = await asks(client, namespace, "own", gpu.name, **at_once)
        assert await bound(client, own) == "site-0"
        borrower = await asks(client, neighbor, "borrower", gpu.name, priorityClassName=middling, **at_once)
        assert await bound(client, borrower) == "site-0"
        await client.wait_for(DEVICE_QUOTAS, key_of(lent), says("gpu 1/0"))

        wanted = await asks(client, namespace, "wanted", gpu.name, priorityClassName=important, **at_once)
        assert await bound(client, wanted) == "site-0"
        assert is_bound(await client.get(PODS, own))
        await client.wait_gone(PODS, borrower)
        await client.wait_for(DEVICE_QUOTAS, key_of(lent), says("gpu 0/0"))
        assert await findings(client, namespace) == []

        again = await asks(client, neighbor, "again", gpu.name, priorityClassName=middling)
        assert "cohort" in await rejection(client, again)


class TestReplicas:
    @pytest.fixture
    async def both(self, plane: ControlPlane, client: Client) -> AsyncIterator[tuple[Verbs, Verbs]]:
        """Two extenders that are called by hand."""
        async with (
            running_extender(plane) as one,
            running_extender(plane) as other,
            connect_verbs(one.url) as first,
            connect_verbs(other.url) as second,
        ):
            for verbs in (first, second):
                await verbs.wait_in_step(client)
            yield first, second

    @pytest.mark.nightly
    @pytest.mark.usefixtures("site")
    async def test_both_allocate_the_last_device_and_at_most_one_keeps_it(
        self, client: Client, verbs: Verbs, namespace: str, both: tuple[Verbs, Verbs]
    ) -> None:
        async with driver(client, verbs, f"race.{namespace}.example.com") as gpu:
            for node in PLACES:
                await gpu.publish(node, sized("80Gi"))
            await client.create(DEVICE_QUOTAS, quota({**GPU, "deviceClassName": gpu.name}, namespace=namespace))
            winners = [await self._race(client, namespace, gpu.name, both, number) for number in range(RACES)]
        assert set(winners) <= {0, 1}
        assert winners.count(1) > RACES / 2, "a race without a winner is rare"

    @staticmethod
    async def _race(client: Client, namespace: str, of: str, both: tuple[Verbs, Verbs], number: int) -> int:
        """How many of two pods got the last device of the quota, after both binds have ended."""
        names = [f"{side}-{number}" for side in ("left", "right")]
        pods = []
        for name in names:
            await client.create(CLAIMS, claim(namespace, name, claim_spec(1, of)))
            waiting = pod(namespace, name, claims=[by_name(name)], scheduler="nobody")
            pods.append(await client.create(PODS, waiting))
        for verbs in both:
            await verbs.wait_in_step(client)
        errors = await asyncio.gather(*(v.bind(p, node) for v, p, node in zip(both, pods, PLACES, strict=True)))
        found = [await client.get(CLAIMS, ObjectKey(namespace, name)) for name in names]
        allocated = sum(bool(each.get("status", {}).get("allocation")) for each in found)
        there = [is_bound(await client.get(PODS, key_of(each))) for each in pods]
        assert allocated == sum(there) == errors.count("")
        assert all(error == "" or "device quota gold" in error for error in errors), errors
        for each in pods:
            await client.delete(PODS, key_of(each))
            await client.delete(CLAIMS, key_of(each))
        for name in names:
            await client.wait_gone(CLAIMS, ObjectKey(namespace, name))
        return allocated
