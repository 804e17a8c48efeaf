"""What a cluster's own controllers do for claims."""

import copy
from typing import Any

import pytest

from extender.cluster.objects.claims import POD_CLAIM_NAME
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, PODS
from extender.lab.api import MemoryApi
from extender.lab.claim_controller import ClaimController
from tests.kit.clusters import claim, pod, request
from tests.kit.servers.memory import memory_api

TEMPLATE: RawObject = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "ns"},
    "spec": {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {"devices": {"requests": [request()]}},
    },
}


def templated(name: str, phase: str = "Pending") -> RawObject:
    raw = pod(name)
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return raw | {"status": {"phase": phase}}


async def claims(api: MemoryApi) -> tuple[RawObject, ...]:
    return (await api.list(CLAIMS)).items


async def statuses(api: MemoryApi, name: str) -> Any:
    return (await api.get(PODS, ObjectKey("ns", name)))["status"].get("resourceClaimStatuses")


class TestMaking:
    async def test_a_claim_is_made_from_the_template_and_named_in_the_status(self) -> None:
        api = memory_api(TEMPLATE, templated("p"))
        await ClaimController(api).reconcile()
        (made,) = await claims(api)
        assert made["metadata"]["name"].startswith("p-gpu-")
        assert made["metadata"]["labels"] == {"team": "a"}
        assert made["metadata"]["annotations"] == {"note": "b", POD_CLAIM_NAME: "gpu"}
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "uid-p", True)
        assert made["spec"] == TEMPLATE["spec"]["spec"]
        assert await statuses(api, "p") == [{"name": "gpu", "resourceClaimName": made["metadata"]["name"]}]

    async def test_one_that_is_refused_keeps_no_other_from_being_made(self) -> None:
        watching = copy.deepcopy(TEMPLATE) | {"metadata": {"name": "watching", "namespace": "ns"}}
        watching["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
        refused = templated("a")
        refused["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "watching"
        api = memory_api(TEMPLATE, watching, refused, templated("b"))
        with pytest.raises(ApiError, match="adminAccess"):
            await ClaimController(api).reconcile()
        assert (await statuses(api, "a"), len(await statuses(api, "b"))) == (None, 1)

    async def test_a_claim_is_made_from_a_template_once(self) -> None:
        api = memory_api(TEMPLATE, templated("p"))
        for _ in range(3):
            await ClaimController(api).reconcile()
        assert len(await claims(api)) == 1

    async def test_one_that_is_there_already_is_found_by_its_owner(self) -> None:
        api = memory_api(TEMPLATE, templated("p"))
        await ClaimController(api).reconcile()
        before = await statuses(api, "p")
        await api.patch_status(PODS, ObjectKey("ns", "p"), {"status": {"resourceClaimStatuses": None}})
        await ClaimController(api).reconcile()
        assert await statuses(api, "p") == before

    async def test_not_without_a_template(self) -> None:
        api = memory_api(templated("p"))
        await ClaimController(api).reconcile()
        assert (await claims(api), await statuses(api, "p")) == ((), None)

    async def test_not_for_pods_that_are_finished(self) -> None:
        api = memory_api(TEMPLATE, templated("p", "Succeeded"))
        await ClaimController(api).reconcile()
        assert await claims(api) == ()


class TestReleasing:
    async def finish(self, api: MemoryApi, name: str) -> None:
        await api.patch_status(PODS, ObjectKey("ns", name), {"status": {"phase": "Succeeded"}})
        await ClaimController(api).reconcile()

    def shared(self) -> MemoryApi:
        there = claim("gpu", allocated=["n/gpu-0"], users=["p", "q"], metadata={"finalizers": [FINALIZER, "x/y"]})
        return memory_api(there, pod("p", "gpu", on="n"), pod("q", "gpu", on="n"))

    async def test_the_devices_are_free_when_the_last_consumer_is_finished(self) -> None:
        api = self.shared()
        await self.finish(api, "p")
        (kept,) = await claims(api)
        assert [consumer["name"] for consumer in kept["status"]["reservedFor"]] == ["q"]
        assert "allocation" in kept["status"]
        await self.finish(api, "q")
        (kept,) = await claims(api)
        assert kept["status"] == {"reservedFor": []}
        assert kept["metadata"]["finalizers"] == ["x/y"]

    async def test_a_claim_made_for_a_pod_goes_with_it(self) -> None:
        api = memory_api(TEMPLATE, templated("p"))
        await ClaimController(api).reconcile()
        await api.delete(PODS, ObjectKey("ns", "p"))
        await ClaimController(api).reconcile()
        assert await claims(api) == ()

    async def test_a_running_pod_keeps_everything(self) -> None:
        api = self.shared()
        before = await claims(api)
        await ClaimController(api).reconcile()
        assert await claims(api) == before

    async def test_a_deleted_claim_is_gone_when_it_is_released(self) -> None:
        there = claim("gpu", allocated=["n/gpu-0"], users=["p"], metadata={"finalizers": [FINALIZER]})
        api = memory_api(there, pod("p", "gpu", on="n"))
        await api.delete(CLAIMS, ObjectKey("ns", "gpu"))
        await self.finish(api, "p")
        assert await claims(api) == ()

    async def test_a_deleted_claim_that_nobody_uses_loses_its_protection_and_nothing_else(self) -> None:
        deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER, "x/y"]}
        api = memory_api(claim("gpu", metadata=deleted))
        await ClaimController(api).reconcile()
        (kept,) = await claims(api)
        assert kept["metadata"]["finalizers"] == ["x/y"]
        await ClaimController(api).reconcile()
        assert await claims(api) == (kept,)
