"""Devices that change while pods wait for them or use them: taints that come and go, pools that are published again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, TAINT_RULES
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, findings, has_condition, held, rejection
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, pod, request, requests

pytestmark = pytest.mark.usefixtures("site")

GPU: list[RawObject] = [{"name": "gpu-0"}]


async def run(client: Client, namespace: str, name: str, driver: Driver, **exactly: Any) -> ObjectKey:
    """Make a claim for one device and a pod that uses it, both of this name."""
    await client.create(CLAIMS, claim(namespace, name, requests(request("gpu", driver.name, **exactly))))
    await client.create(PODS, pod(namespace, name, claims=[by_name(name)]))
    return ObjectKey(namespace, name)


async def sleeping(verbs: Verbs, client: Client, key: ObjectKey, calls: int) -> str:
    """Why a new pod is rejected, once it has been for the second time, so that it is not tried again by itself.

    The first rejection is written to the pod, which is a change for the scheduler, and it tries again. The same text a
    second time is not.

    Args:
        calls: of filter before the pod was made.
    """
    reason = await rejection(client, key)
    await verbs.wait_answered("filter", calls + 2)
    return reason


@pytest.mark.every_version
class TestTaintRule:
    @pytest.fixture
    async def rules(self, client: Client, kubernetes: str) -> AsyncIterator[Client]:
        """Kubernetes 1.36 has taint rules as v1beta2 only."""
        speaking = client.speaking("v1beta2" if kubernetes == "1.36" else "v1")
        yield speaking
        for rule in (await speaking.list(TAINT_RULES)).items:
            await speaking.delete(TAINT_RULES, key_of(rule))

    def taints(self, rules: Client, name: str, driver: Driver, pool: str, effect: str) -> RawObject:
        return {
            "apiVersion": rules.api_version(TAINT_RULES),
            "kind": "DeviceTaintRule",
            "metadata": {"name": name},
            "spec": {
                "deviceSelector": {"driver": driver.name, "pool": pool},
                "taint": {"key": "example.com/broken", "value": "yes", "effect": effect},
            },
        }

    async def test_no_new_pods_until_it_goes(
        self, client: Client, namespace: str, gpu: Driver, rules: Client, verbs: Verbs
    ) -> None:
        await gpu.publish("site-0", GPU)
        await gpu.publish("site-1", GPU)
        rule = await rules.create(TAINT_RULES, self.taints(rules, namespace, gpu, "site-0", "NoSchedule"))
        first = await run(client, namespace, "first", gpu)
        assert await bound(client, first) == "site-1"
        calls = await verbs.answered("filter")
        second = await run(client, namespace, "second", gpu)
        assert "untolerated device taint for request gpu" in await sleeping(verbs, client, second, calls)

        await rules.delete(TAINT_RULES, key_of(rule))
        assert await bound(client, second) == "site-0"
        assert await findings(client, namespace) == []

    async def test_a_request_may_tolerate_the_taint_of_a_rule(
        self, client: Client, namespace: str, gpu: Driver, rules: Client
    ) -> None:
        await gpu.publish("site-0", GPU)
        await rules.create(TAINT_RULES, self.taints(rules, namespace, gpu, "site-0", "NoExecute"))
        tolerated = [{"key": "example.com/broken", "operator": "Exists"}]
        key = await run(client, namespace, "brave", gpu, tolerations=tolerated)
        assert await bound(client, key) == "site-0"
        (result,) = (await client.get(CLAIMS, key))["status"]["allocation"]["devices"]["results"]
        assert result["tolerations"] == tolerated, "the eviction controller looks here"
        assert await findings(client, namespace) == []

    async def test_pods_that_run_are_evicted(
        self, client: Client, namespace: str, gpu: Driver, rules: Client, verbs: Verbs
    ) -> None:
        await gpu.publish("site-0", GPU)
        key = await run(client, namespace, "first", gpu)
        await bound(client, key)
        rule = await rules.create(TAINT_RULES, self.taints(rules, namespace, gpu, "site-0", "NoExecute"))
        await rules.wait_for(TAINT_RULES, key_of(rule), has_condition("EvictionInProgress"))
        await client.wait_for(PODS, key, lambda found: found and found["metadata"].get("deletionTimestamp"))
        # What the kubelet would do once the containers have ended.
        await client.delete(PODS, key)
        await client.wait_for(CLAIMS, key, lambda found: found and not found["status"].get("allocation"))

        calls = await verbs.answered("filter")
        second = await run(client, namespace, "second", gpu)
        assert "untolerated device taint for request gpu" in await sleeping(verbs, client, second, calls)
        await gpu.publish("site-2", GPU)
        assert await bound(client, second) == "site-2"
        assert await findings(client, namespace) == []


class TestPoolPublishedAgain:
    async def test_pods_wait_until_it_is_complete(
        self, client: Client, namespace: str, gpu: Driver, verbs: Verbs
    ) -> None:
        await gpu.publish("site-0", GPU)
        first = await run(client, namespace, "first", gpu)
        await bound(client, first)
        calls = await verbs.answered("filter")
        second = await run(client, namespace, "second", gpu)
        assert "no free device for request gpu" in await sleeping(verbs, client, second, calls)

        await gpu.publish("site-0", GPU, generation=2, part=1, of=2)
        calls = await verbs.answered("filter")
        third = await run(client, namespace, "third", gpu)
        assert "resource pool is not usable for request gpu" in await sleeping(verbs, client, third, calls)

        await gpu.publish("site-0", [{"name": "gpu-1"}, {"name": "gpu-2"}], generation=2, part=2, of=2)
        await gpu.withdraw("site-0")
        for key in (second, third):
            assert await bound(client, key) == "site-0"
        got = [held(await client.get(CLAIMS, key)) for key in (first, second, third)]
        assert got[0] == [("site-0", "gpu-0")], "what is allocated stays"
        assert sorted(got[1] + got[2]) == [("site-0", "gpu-1"), ("site-0", "gpu-2")]
        assert await findings(client, namespace) == []

    async def test_what_the_new_generation_does_not_have_is_not_given(
        self, client: Client, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-0", [{"name": "old"}])
        await gpu.publish("site-0", [{"name": "new"}], generation=2)
        key = await run(client, namespace, "pod", gpu)
        await bound(client, key)
        assert held(await client.get(CLAIMS, key)) == [("site-0", "new")], "though the old slice is still there"
        assert await findings(client, namespace) == []
