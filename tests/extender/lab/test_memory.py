"""The API server in memory refuses what a real one refuses."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import all_kinds
from extender.cluster.objects.claims import POD_CLAIM_NAME, ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ApiError, ObjectKey, RawObject, key_of
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, RESOURCES
from extender.lab.api import MemoryApi, merge_patch
from extender.lab.cluster import ClaimController, EmbeddedCluster
from extender.lab.manifests import load_objects
from tests.kit.clusters import (
    GPU,
    budget,
    claim,
    claim_template,
    device_class,
    local_slice,
    node,
    pod,
    request,
    taint_rule,
)
from tests.kit.servers.memory import NOW, NOW_TEXT, memory_api

KEY = ObjectKey("ns", "gpu")
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
ALLOCATION = {"devices": {"results": [RESULT]}}


def consumer(number: int) -> RawObject:
    return {"resource": "pods", "name": f"p{number}", "uid": f"uid-p{number}"}


class TestCreation:
    async def test_system_fields_are_the_servers(self) -> None:
        made = await memory_api().create(CLAIMS, claim("gpu", allocated=["node-1/gpu-0"]))
        assert made["metadata"]["uid"] == "00001-made"
        assert made["metadata"]["creationTimestamp"] == NOW_TEXT
        assert made["metadata"]["resourceVersion"] == "1"
        assert made["metadata"]["generation"] == 1
        assert "status" not in made

    async def test_what_is_loaded_keeps_uid_times_and_status(self) -> None:
        api = memory_api(claim("gpu", allocated=["node-1/gpu-0"]))
        got = await api.get(CLAIMS, KEY)
        assert got["metadata"]["uid"] == "uid-gpu"
        assert got["status"]["allocation"] == ALLOCATION

    async def test_name_from_generate_name(self) -> None:
        raw = claim("")
        raw["metadata"] = {"generateName": "p-gpu-", "namespace": "ns"}
        assert (await memory_api().create(CLAIMS, raw))["metadata"]["name"] == "p-gpu-00001"

    async def test_an_object_without_namespace_gets_the_default_one(self) -> None:
        raw = claim("gpu")
        del raw["metadata"]["namespace"]
        assert (await memory_api().create(CLAIMS, raw))["metadata"]["namespace"] == "default"

    async def test_a_new_pod_is_pending(self) -> None:
        assert (await memory_api().create(PODS, pod("p")))["status"] == {"phase": "Pending"}

    async def test_a_second_one_of_that_name(self) -> None:
        with pytest.raises(ApiError, match='"gpu" already exists') as refused:
            await memory_api(claim("gpu")).create(CLAIMS, claim("gpu"))
        assert (refused.value.status, refused.value.reason) == (409, "AlreadyExists")
        assert not refused.value.is_conflict

    async def test_what_can_not_be_read(self) -> None:
        raw = device_class("gpu") | {"spec": {"selectors": "all"}}
        with pytest.raises(
            ApiError, match=r'DeviceClass "gpu" is invalid: spec.selectors: "all" is not a list'
        ) as refused:
            await memory_api().create(CLASSES, raw)
        assert (refused.value.status, refused.value.reason) == (422, "Invalid")


class TestUpdate:
    async def test_an_update_of_an_object_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(ApiError, match='"gpu" not found') as refused:
            await memory_api().update(CLAIMS, claim("gpu"))
        assert refused.value.is_missing

    @pytest.mark.parametrize(
        ("metadata", "message"),
        [({"resourceVersion": "7"}, "has been modified"), ({"uid": "other"}, "UID in precondition: other")],
    )
    @pytest.mark.parametrize("call", ["update", "update_status"])
    async def test_an_update_with_an_old_version_or_another_uid_is_a_conflict(
        self, call: str, metadata: RawObject, message: str
    ) -> None:
        api = memory_api(claim("gpu"))
        stale = await api.get(CLAIMS, KEY)
        with pytest.raises(ApiError, match=message) as refused:
            await getattr(api, call)(CLAIMS, {**stale, "metadata": {**stale["metadata"], **metadata}})
        assert refused.value.is_conflict

    async def test_without_a_version_there_is_no_precondition(self) -> None:
        api = memory_api(claim("gpu"))
        labelled = claim("gpu", metadata={"labels": {"a": "b"}, "resourceVersion": ""})
        assert (await api.update(CLAIMS, labelled))["metadata"]["labels"] == {"a": "b"}

    async def test_status_and_the_rest_are_written_apart(self) -> None:
        api = memory_api(claim("gpu"))
        read = await api.get(CLAIMS, KEY)
        both = {**read, "metadata": {**read["metadata"], "labels": {"a": "b"}}, "status": {"allocation": ALLOCATION}}
        after_update = await api.update(CLAIMS, both)
        assert "allocation" not in after_update["status"]
        both["metadata"] = {**after_update["metadata"], "labels": {"a": "c"}}
        after_status = await api.update_status(CLAIMS, both)
        assert after_status["status"]["allocation"] == ALLOCATION
        assert after_status["metadata"]["labels"] == {"a": "b"}

    async def test_each_change_has_a_revision_of_its_own_and_no_change_has_none(self) -> None:
        api = memory_api(node("n"), claim("gpu"))
        read = await api.get(CLAIMS, KEY)
        same = await api.update(CLAIMS, read)
        changed = await api.patch(CLAIMS, KEY, {"metadata": {"labels": {"a": "b"}}})
        versions = [obj["metadata"]["resourceVersion"] for obj in (read, same, changed)]
        assert versions == ["2", "2", "3"]

    async def test_the_caller_can_not_reach_what_is_stored(self) -> None:
        api = memory_api(claim("gpu"))
        (await api.get(CLAIMS, KEY))["spec"]["devices"] = {}
        assert (await api.get(CLAIMS, KEY))["spec"]["devices"]["requests"]

    async def test_generation_counts_changes_of_the_spec(self) -> None:
        api = memory_api(device_class("gpu"))
        patched = await api.patch(CLASSES, ObjectKey("", "gpu"), {"spec": {"extendedResourceName": "example.com/gpu"}})
        assert patched["metadata"]["generation"] == 2


class TestClaimRules:
    """Validation of ResourceClaims, as far as a scheduler can break it."""

    async def test_the_spec_is_immutable(self) -> None:
        with pytest.raises(ApiError, match="spec: field is immutable"):
            await memory_api(claim("gpu")).patch(CLAIMS, KEY, {"spec": {"devices": {"requests": []}}})

    @pytest.mark.parametrize(
        ("before", "after", "problem"),
        [
            pytest.param({}, {"reservedFor": [consumer(1)]}, "without an allocation", id="reserved, not allocated"),
            pytest.param(
                {"allocation": ALLOCATION},
                {"allocation": {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}},
                "status.allocation: field is immutable",
                id="another allocation",
            ),
            pytest.param(
                {"allocation": ALLOCATION, "reservedFor": [consumer(i) for i in range(256)]},
                {"allocation": ALLOCATION, "reservedFor": [consumer(i) for i in range(257)]},
                "257 entries, at most 256 are allowed",
                id="too many consumers",
            ),
            pytest.param(
                {"allocation": ALLOCATION},
                {"allocation": ALLOCATION, "reservedFor": [consumer(1), consumer(1)]},
                "duplicate uid",
                id="reserved twice",
            ),
            pytest.param(
                {"allocation": ALLOCATION, "devices": [{k: RESULT[k] for k in ("driver", "pool", "device")}]},
                {
                    "allocation": ALLOCATION,
                    "devices": [{"driver": RESULT["driver"], "pool": "node-1", "device": "gpu-9"}],
                },
                r"status.devices\[0\]: must be an allocated device",
                id="status of a device that is not allocated",
            ),
        ],
    )
    async def test_a_status_that_breaks_a_rule_is_refused(
        self, before: RawObject, after: RawObject, problem: str
    ) -> None:
        api = memory_api({**claim("gpu"), "status": before})
        read = await api.get(CLAIMS, KEY)
        with pytest.raises(ApiError, match=problem) as refused:
            await api.update_status(CLAIMS, {**read, "status": after})
        assert refused.value.status == 422

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            pytest.param({}, {"allocation": ALLOCATION, "reservedFor": [consumer(1)]}, id="allocate and reserve"),
            pytest.param({"allocation": ALLOCATION, "reservedFor": [consumer(1)]}, {}, id="release"),
            pytest.param(
                {"allocation": ALLOCATION, "reservedFor": [consumer(i) for i in range(255)]},
                {"allocation": ALLOCATION, "reservedFor": [consumer(i) for i in range(256)]},
                id="the 256th consumer",
            ),
        ],
    )
    async def test_a_status_within_the_rules_is_stored(self, before: RawObject, after: RawObject) -> None:
        api = memory_api({**claim("gpu"), "status": before})
        written = await api.update_status(CLAIMS, {**await api.get(CLAIMS, KEY), "status": after})
        assert written.get("status", {}) == after

    async def test_no_new_consumers_while_deleting(self) -> None:
        api = memory_api(claim("gpu", allocated=["node-1/gpu-0"], metadata={"finalizers": ["example.com/x"]}))
        await api.delete(CLAIMS, KEY)
        with pytest.raises(ApiError, match="while the claim is being deleted"):
            await api.patch_status(CLAIMS, KEY, {"status": {"reservedFor": [consumer(1)]}})


class TestDeletion:
    async def test_without_finalizers_it_is_gone(self) -> None:
        api = memory_api(claim("gpu"))
        await api.delete(CLAIMS, KEY)
        with pytest.raises(ApiError, match="not found"):
            await api.get(CLAIMS, KEY)

    async def test_with_finalizers_it_is_marked_until_they_are_off(self) -> None:
        api = memory_api(claim("gpu", metadata={"finalizers": ["example.com/x"]}))
        await api.delete(CLAIMS, KEY)
        await api.delete(CLAIMS, KEY)
        marked = await api.get(CLAIMS, KEY)
        assert marked["metadata"]["deletionTimestamp"] == NOW_TEXT
        await api.patch(CLAIMS, KEY, {"metadata": {"finalizers": []}})
        assert (await api.list(CLAIMS)).items == ()

    @pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resource_version": "77"}])
    async def test_a_deletion_with_another_version_or_uid_is_a_conflict(self, precondition: dict[str, Any]) -> None:
        api = memory_api(claim("gpu"))
        with pytest.raises(ApiError) as refused:
            await api.delete(CLAIMS, KEY, **precondition)
        assert refused.value.is_conflict


class TestBinding:
    KEY = ObjectKey("ns", "p")

    async def test_a_binding_sets_the_node(self) -> None:
        api = memory_api(pod("p"))
        await api.bind_pod(self.KEY, "n", uid="uid-p", resource_version="1")
        bound = await api.get(PODS, self.KEY)
        assert bound["spec"]["nodeName"] == "n"
        assert [c["type"] for c in bound["status"]["conditions"]] == ["PodScheduled"]

    @pytest.mark.parametrize(
        ("there", "arguments", "status", "message"),
        [
            (pod("p", on="m"), {"uid": "uid-p"}, 409, "already assigned to node 'm'"),
            (pod("p", deleting=True), {"uid": "uid-p"}, 409, "is being deleted"),
            (pod("p"), {"uid": "other"}, 409, "UID in precondition"),
            (pod("p"), {"uid": "uid-p", "resource_version": "7"}, 409, "has been modified"),
            (pod("q"), {"uid": "uid-p"}, 404, "not found"),
        ],
    )
    async def test_a_binding_that_cannot_be_made_is_refused(
        self, there: RawObject, arguments: dict[str, Any], status: int, message: str
    ) -> None:
        with pytest.raises(ApiError, match=message) as refused:
            await memory_api(there).bind_pod(self.KEY, "n", **arguments)
        assert refused.value.status == status


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "foo"}, {"b": {"c": None}}, {"a": "foo", "b": {}}),
    ],
)
def test_merge_patch_as_in_rfc_7386(target: object, patch: object, merged: object) -> None:
    assert merge_patch(target, patch) == merged


async def test_a_follower_hears_what_is_there_and_what_changes() -> None:
    api, state = memory_api(node("n"), claim("gpu")), ClusterState()
    api.follow(state)
    assert not state.not_ready
    assert KEY in state.snapshot.claims
    await api.delete(CLAIMS, KEY)
    await api.create(NODES, node("m"))
    assert KEY not in state.snapshot.claims
    assert set(state.snapshot.nodes) == {"n", "m"}


async def assert_each_object_is_known_as_it_is(api: MemoryApi, snapshot: Snapshot) -> None:
    """Text is compared: it has all fields, also those that an equality ignores."""
    for name, kind in all_kinds().items():
        for raw in (await api.list(RESOURCES[name])).items:
            known, read = kind.find(snapshot, key_of(raw)), kind.parse(raw)
            if isinstance(known, ClaimObject):
                known = replace(known, allocated_at=None, listed_at=0)
            assert repr(known) == repr(read)


async def test_a_follower_knows_each_object_as_it_is_after_every_write() -> None:
    made_before = {"generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}
    old, asking = local_slice("b"), pod("p")
    old["metadata"] |= made_before
    asking["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    manifests = (
        *(GPU, node("a", labels={"x": "y"}), node("b") | {"metadata": {"name": "b"} | made_before}),
        *(local_slice("a", 2), old, claim("c"), claim("d", allocated=["a/gpu-0"]), pod("q", "c"), asking),
        *(claim_template(), taint_rule("t", driver="gpu.example.com"), budget("some", {"x": "y"}, 1)),
    )
    loaded = load_objects(manifests, "objects")
    assert not loaded.problems
    cluster = EmbeddedCluster((), now=lambda: NOW)
    cluster.load(loaded.objects)
    await assert_each_object_is_known_as_it_is(cluster.api, cluster.state.snapshot)
    await cluster.settle()
    await cluster.api.patch(NODES, ObjectKey("", "a"), {"metadata": {"labels": {"x": "z"}}})
    await cluster.api.patch_status(CLAIMS, KEY._replace(name="c"), {"status": {"allocation": ALLOCATION}})
    await cluster.api.bind_pod(KEY._replace(name="p"), "a", uid="uid-p")
    await assert_each_object_is_known_as_it_is(cluster.api, cluster.state.snapshot)


async def test_an_object_that_is_loaded_is_not_changed() -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    given = copy.deepcopy(raw)
    await memory_api(given).bind_pod(ObjectKey("default", "p"), "n", uid="00001-made")
    assert given == raw


# What a cluster's own controllers do for claims.


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
