"""Devices that several claims hold a part of: partitions with shared counters, shares of a capacity."""

from typing import Any

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, findings, rejection
from tests.kit.objects.manifests import claim, pod, request, requests

pytestmark = pytest.mark.usefixtures("site")


async def run(client: Client, namespace: str, name: str, spec: RawObject) -> ObjectKey:
    """Make a claim and a pod that uses it, both of this name."""
    await client.create(CLAIMS, claim(namespace, name, spec))
    await client.create(PODS, pod(namespace, name, claims=[by_name(name)]))
    return ObjectKey(namespace, name)


async def result(client: Client, key: ObjectKey) -> dict[str, Any]:
    """The only device of a claim, as its allocation has it."""
    (only,) = (await client.get(CLAIMS, key))["status"]["allocation"]["devices"]["results"]
    return dict(only)


class TestPartitions:
    SLICES = ("whole", 4, 1), ("half", 2, 2), ("quarter", 1, 4)
    """Kind of partition, how many of the card's four memory slices it takes, and how many such there are."""

    @pytest.fixture
    async def card(self, gpu: Driver) -> Driver:
        """One card at one node, in pieces."""
        memory = {"name": "card", "counters": {"slices": {"value": "4"}}}
        await gpu.publish("site-0", part=1, of=2, sharedCounters=[memory])
        devices = [
            {
                "name": f"{kind}-{number}",
                "attributes": {"kind": {"string": kind}},
                "consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": str(slices)}}}],
            }
            for kind, slices, count in self.SLICES
            for number in range(count)
        ]
        await gpu.publish("site-0", devices, part=2, of=2)
        return gpu

    def of(self, card: Driver, kind: str) -> RawObject:
        expression = f'device.attributes["{card.name}"].kind == "{kind}"'
        return requests(request("gpu", card.name, selectors=[{"cel": {"expression": expression}}]))

    async def test_until_full_and_one_comes_back(self, client: Client, namespace: str, card: Driver) -> None:
        running = []
        for number, kind in enumerate(("quarter", "half", "quarter")):
            running.append(await run(client, namespace, f"{kind}-{number}", self.of(card, kind)))
            assert await bound(client, running[-1]) == "site-0"
            assert (await result(client, running[-1]))["device"].startswith(kind)
        for kind in ("whole", "half", "quarter"):
            late = await run(client, namespace, kind, self.of(card, kind))
            assert "not enough shared counters for request gpu" in await rejection(client, late)
        assert await findings(client, namespace) == []

        await client.delete(PODS, running[1])
        await bound(client, ObjectKey(namespace, "half"))
        assert await findings(client, namespace) == []
        assert "not enough shared counters" in await rejection(client, ObjectKey(namespace, "whole"))


class TestShares:
    @pytest.fixture
    async def card(self, gpu: Driver) -> Driver:
        """One card at one node whose memory of 10 GiB can be shared, in steps of 1 GiB, 2 unless asked for more."""
        steps = {"min": "1Gi", "step": "1Gi"}
        memory = {"value": "10Gi", "requestPolicy": {"default": "2Gi", "validRange": steps}}
        shareable = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
        await gpu.publish("site-0", [shareable])
        return gpu

    def of(self, card: Driver, memory: str = "") -> RawObject:
        asked = {"capacity": {"requests": {"memory": memory}}} if memory else {}
        return requests(request("gpu", card.name, **asked))

    async def test_until_full_and_one_comes_back(self, client: Client, namespace: str, card: Driver) -> None:
        asked = {"some": ("4Gi", "4Gi"), "rounded": ("3500Mi", "4Gi"), "default": ("", "2Gi")}
        got = {}
        for name, (memory, consumed) in asked.items():
            key = await run(client, namespace, name, self.of(card, memory))
            assert await bound(client, key) == "site-0"
            got[name] = await result(client, key)
            assert got[name]["device"] == "gpu-0"
            assert got[name]["consumedCapacity"] == {"memory": consumed}
        assert len({each["shareID"] for each in got.values()}) == len(asked)

        late = await run(client, namespace, "late", self.of(card, "3Gi"))
        assert "not enough device capacity for request gpu" in await rejection(client, late)
        assert await findings(client, namespace) == [], "10 of 10 GiB"

        await client.delete(PODS, ObjectKey(namespace, "some"))
        await bound(client, late)
        assert (await result(client, late))["consumedCapacity"] == {"memory": "3Gi"}
        assert await findings(client, namespace) == []
