"""Optional requests and immediate claims, with an API server, its controllers and kube-scheduler."""

from collections.abc import Mapping

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, EVENTS, PODS, TEMPLATES
from tests.kit.controlplane.aftermath import consumers, is_allocated
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, by_template, findings, held, rejection
from tests.kit.objects.manifests import claim, claim_spec, pod, request, requests, template
from tests.kit.waiting import wait_for_answer

pytestmark = [pytest.mark.usefixtures("site"), pytest.mark.every_version]

OPTIONAL, MODE, PRIORITY = (f"dra-extender.dev/{name}" for name in ("optional-requests", "allocation-mode", "priority"))
IMMEDIATE: Mapping[str, str] = {MODE: "Immediate"}


def annotated(obj: RawObject, annotations: Mapping[str, str]) -> RawObject:
    """The object with annotations."""
    return {**obj, "metadata": {**obj["metadata"], "annotations": dict(annotations)}}


async def told(client: Client, namespace: str, name: str, reason: str) -> str:
    """The text of the Event on a claim, once there is one."""

    async def notes() -> list[str]:
        events = (await client.list(EVENTS, namespace)).items
        return [
            str(each["note"])
            for each in events
            if (each["regarding"]["kind"], each["regarding"]["name"], each["reason"]) == ("ResourceClaim", name, reason)
        ]

    return (await wait_for_answer(notes, bool, f"an Event on claim {name}", within=60))[0]


class TestOptional:
    @pytest.fixture
    def both(self, gpu: Driver, nic: Driver) -> RawObject:
        return requests(request("gpu", gpu.name), request("nic", nic.name))

    async def test_pods_go_where_more_is_served_and_run_without_the_rest(
        self, client: Client, namespace: str, gpu: Driver, nic: Driver, both: RawObject
    ) -> None:
        await gpu.publish("site-0", [{"name": "gpu-0"}])
        await gpu.publish("site-1", [{"name": "gpu-0"}])
        await nic.publish("site-1", [{"name": "nic-0"}])
        wishing = template(namespace, "wish", both)
        wishing["spec"]["metadata"] = {"annotations": {OPTIONAL: "nic"}}
        await client.create(TEMPLATES, wishing)
        nodes, served = [], []
        for name in ("first", "second"):
            await client.create(PODS, pod(namespace, name, claims=[by_template("wish")]))
            nodes.append(await bound(client, ObjectKey(namespace, name)))
            made = await client.get(PODS, ObjectKey(namespace, name))
            key = ObjectKey(namespace, made["status"]["resourceClaimStatuses"][0]["resourceClaimName"])
            results = (await client.get(CLAIMS, key))["status"]["allocation"]["devices"]["results"]
            served.append([each["request"] for each in results])
        assert (nodes, served) == (["site-1", "site-0"], [["gpu", "nic"], ["gpu"]])
        assert await findings(client, namespace) == []

    async def test_allocation_without_any_result_is_taken_and_released(
        self, client: Client, namespace: str, gpu: Driver, nic: Driver, both: RawObject
    ) -> None:
        assert gpu.name != nic.name
        await client.create(CLAIMS, annotated(claim(namespace, "c", both), {OPTIONAL: "nic,gpu"}))
        await client.create(PODS, pod(namespace, "pod", claims=[by_name("c")]))
        await bound(client, ObjectKey(namespace, "pod"))
        found = await client.get(CLAIMS, ObjectKey(namespace, "c"))
        assert is_allocated(found)
        assert consumers(found)
        assert not found["status"]["allocation"]["devices"].get("results")
        await client.delete(PODS, ObjectKey(namespace, "pod"))
        await client.wait_for(CLAIMS, ObjectKey(namespace, "c"), lambda obj: obj is not None and not is_allocated(obj))

    async def test_request_that_does_not_exist_is_told(
        self, client: Client, namespace: str, gpu: Driver, nic: Driver, both: RawObject
    ) -> None:
        await gpu.publish("site-0", [{"name": "gpu-0"}])
        await nic.publish("site-0", [{"name": "nic-0"}])
        await client.create(CLAIMS, annotated(claim(namespace, "c", both), {OPTIONAL: "nics"}))
        await client.create(PODS, pod(namespace, "pod", claims=[by_name("c")]))
        said = f'claim {namespace}/c: annotation {OPTIONAL}: there is no request "nics"'
        assert said in await rejection(client, ObjectKey(namespace, "pod"), about="annotation")


class TestImmediate:
    async def test_it_is_allocated_before_any_pod_and_a_pod_runs_there(
        self, client: Client, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-1", [{"name": "gpu-0"}])
        key = ObjectKey(namespace, "c")
        await client.create(CLAIMS, annotated(claim(namespace, "c", claim_spec(device_class=gpu.name)), IMMEDIATE))
        await client.wait_for(CLAIMS, key, is_allocated)
        found = await client.get(CLAIMS, key)
        assert (held(found), consumers(found)) == ([("site-1", "gpu-0")], [])
        await client.create(PODS, pod(namespace, "pod", claims=[by_name("c")]))
        assert await bound(client, ObjectKey(namespace, "pod")) == "site-1"
        await client.delete(PODS, ObjectKey(namespace, "pod"))
        await client.wait_for(CLAIMS, key, lambda obj: is_allocated(obj) and not consumers(obj or {}))
        assert await findings(client, namespace) == []

    async def test_it_waits_and_is_woken_by_priority(self, client: Client, namespace: str, gpu: Driver) -> None:
        spec = claim_spec(device_class=gpu.name)
        await client.create(CLAIMS, annotated(claim(namespace, "low", spec), IMMEDIATE))
        await client.create(CLAIMS, annotated(claim(namespace, "high", spec), {**IMMEDIATE, PRIORITY: "5"}))
        assert "the claim waits to be allocated: 3 no device" in await told(
            client, namespace, "high", "ClaimNotAllocated"
        )
        await client.create(PODS, pod(namespace, "pod", claims=[by_name("high")]))
        about = "claim high waits for its devices"
        assert about in await rejection(client, ObjectKey(namespace, "pod"), about=about)
        await gpu.publish("site-0", [{"name": "gpu-0"}])
        assert await bound(client, ObjectKey(namespace, "pod")) == "site-0"
        assert not is_allocated(await client.get(CLAIMS, ObjectKey(namespace, "low")))

    async def test_annotations_that_contradict_each_other_are_told(
        self, client: Client, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-0", [{"name": "gpu-0"}])
        spec = claim_spec(device_class=gpu.name)
        await client.create(CLAIMS, annotated(claim(namespace, "c", spec), {PRIORITY: "5"}))
        await client.create(PODS, pod(namespace, "pod", claims=[by_name("c")]))
        problem = f"annotation {PRIORITY}: needs annotation {MODE}: Immediate"
        assert await told(client, namespace, "c", "InvalidAnnotation") == f"the claim is not allocated: {problem}"
        assert problem in await rejection(client, ObjectKey(namespace, "pod"), about="annotation")
        mended = {"metadata": {"annotations": {PRIORITY: None}}}
        await client.patch(CLAIMS, ObjectKey(namespace, "c"), mended)
        assert await bound(client, ObjectKey(namespace, "pod")) == "site-0"
