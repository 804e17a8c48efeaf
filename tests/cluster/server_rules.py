"""What an API server does with objects of any kind, step by step: for the real one and for ours in memory."""

from collections.abc import Awaitable, Callable
from typing import Final

from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.claim_rules import ADMIN_LABEL
from extender.kube.resources import CLAIMS, NAMESPACES, PODS, TEMPLATES
from tests.cluster.claim_rules import FINALIZER, refusal_of
from tests.kit.controlplane.client import key_of
from tests.kit.objects.manifests import claim, pod, request, requests, template

Scenario = Callable[[Api, str], Awaitable[None]]


async def creating_sets_what_is_the_servers(api: Api, namespace: str) -> None:
    new = claim(namespace, "claim")
    made = await api.create(CLAIMS, {**new, "status": {"reservedFor": [{"name": "p", "resource": "pods", "uid": "u"}]}})
    metadata = made["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert not made.get("status"), "a status is written by itself"
    assert made == await api.get(CLAIMS, key_of(made))


async def a_name_can_be_generated(api: Api, namespace: str) -> None:
    new = claim(namespace, "")
    new["metadata"] = {"namespace": namespace, "generateName": "pod-gpu-"}
    first, second = await api.create(CLAIMS, new), await api.create(CLAIMS, new)
    names = {made["metadata"]["name"] for made in (first, second)}
    assert len(names) == 2
    assert all(name.startswith("pod-gpu-") and len(name) == len("pod-gpu-") + 5 for name in names)


async def creating_twice_is_a_conflict_of_its_own(api: Api, namespace: str) -> None:
    await api.create(CLAIMS, claim(namespace, "claim"))
    refusal = await refusal_of(api.create(CLAIMS, claim(namespace, "claim")))
    assert (refusal.status, refusal.reason) == (409, "AlreadyExists")
    assert not refusal.is_conflict


async def what_is_absent_is_not_found(api: Api, namespace: str) -> None:
    absent = claim(namespace, "absent")
    key = key_of(absent)
    for call in (
        api.get(CLAIMS, key),
        api.update(CLAIMS, absent),
        api.update_status(CLAIMS, absent),
        api.patch(CLAIMS, key, {}),
        api.patch_status(CLAIMS, key, {}),
        api.delete(CLAIMS, key),
        api.bind_pod(key, "node-0", uid="any"),
    ):
        refusal = await refusal_of(call)
        assert (refusal.status, refusal.reason) == (404, "NotFound")
        assert refusal.is_missing


async def a_write_that_changes_nothing_keeps_the_version(api: Api, namespace: str) -> None:
    made = await api.create(CLAIMS, claim(namespace, "claim"))
    version = made["metadata"]["resourceVersion"]
    for written in (
        await api.update(CLAIMS, made),
        await api.update_status(CLAIMS, made),
        await api.patch(CLAIMS, key_of(made), {}),
    ):
        assert written["metadata"]["resourceVersion"] == version


async def versions_grow_and_a_list_has_the_newest(api: Api, namespace: str) -> None:
    made = await api.create(CLAIMS, claim(namespace, "claim"))
    changed = await api.patch(CLAIMS, key_of(made), {"metadata": {"labels": {"a": "b"}}})
    listing = await api.list(CLAIMS)
    revisions = [int(obj["metadata"]["resourceVersion"]) for obj in (made, changed)]
    assert sorted({*revisions, listing.revision}) == [*revisions, *sorted({listing.revision} - set(revisions))]
    assert listing.revision >= revisions[1]
    assert [obj["metadata"]["labels"] for obj in listing.items if key_of(obj) == key_of(made)] == [{"a": "b"}]


async def only_one_of_two_writers_of_a_version_wins(api: Api, namespace: str) -> None:
    made = await api.create(CLAIMS, claim(namespace, "claim"))
    made["metadata"]["labels"] = {"writer": "first"}
    await api.update(CLAIMS, made)
    made["metadata"]["labels"] = {"writer": "second"}
    refusal = await refusal_of(api.update(CLAIMS, made))
    assert refusal.is_conflict
    assert (await api.get(CLAIMS, key_of(made)))["metadata"]["labels"] == {"writer": "first"}


async def a_finalizer_keeps_what_is_deleted(api: Api, namespace: str) -> None:
    made = await _with_finalizer(api, namespace)
    key = key_of(made)
    await api.delete(CLAIMS, key)
    marked = await api.get(CLAIMS, key)
    assert marked["metadata"]["deletionTimestamp"]
    await api.delete(CLAIMS, key)
    assert await api.get(CLAIMS, key) == marked, "deleted twice is deleted once"
    await api.update(CLAIMS, {**marked, "metadata": {**marked["metadata"], "finalizers": []}})
    assert (await refusal_of(api.get(CLAIMS, key))).is_missing


async def the_last_finalizer_can_go_by_a_patch(api: Api, namespace: str) -> None:
    made = await _with_finalizer(api, namespace)
    await api.delete(CLAIMS, key_of(made))
    await api.patch(CLAIMS, key_of(made), {"metadata": {"finalizers": None}})
    assert (await refusal_of(api.get(CLAIMS, key_of(made)))).is_missing


async def the_mark_of_deletion_cannot_be_written(api: Api, namespace: str) -> None:
    made = await _with_finalizer(api, namespace)
    await api.delete(CLAIMS, key_of(made))
    marked = await api.get(CLAIMS, key_of(made))
    metadata = {name: value for name, value in marked["metadata"].items() if not name.startswith("deletion")}
    written = await api.update(CLAIMS, {**marked, "metadata": metadata})
    assert written["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


async def deleting_heeds_uid_and_version(api: Api, namespace: str) -> None:
    made = await api.create(CLAIMS, claim(namespace, "claim"))
    key, uid = key_of(made), made["metadata"]["uid"]
    for call in (api.delete(CLAIMS, key, uid="other"), api.delete(CLAIMS, key, uid=uid, resource_version="987654321")):
        assert (await refusal_of(call)).is_conflict
    await api.delete(CLAIMS, key, uid=uid, resource_version=made["metadata"]["resourceVersion"])
    assert (await refusal_of(api.get(CLAIMS, key))).is_missing


async def a_name_used_again_is_another_object(api: Api, namespace: str) -> None:
    first = await api.create(CLAIMS, claim(namespace, "claim"))
    await api.delete(CLAIMS, key_of(first))
    second = await api.create(CLAIMS, claim(namespace, "claim"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    refusal = await refusal_of(api.update_status(CLAIMS, {**first, "status": {}}))
    assert refusal.is_conflict


async def a_pod_is_bound_once(api: Api, namespace: str) -> None:
    made = await _pod(api, namespace)
    key, uid = key_of(made), made["metadata"]["uid"]
    await api.bind_pod(key, "node-0", uid=uid, resource_version=made["metadata"]["resourceVersion"])
    bound = await api.get(PODS, key)
    assert bound["spec"]["nodeName"] == "node-0"
    conditions = {condition["type"]: condition["status"] for condition in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    for node in ("node-0", "node-1"):
        assert (await refusal_of(api.bind_pod(key, node, uid=uid))).is_conflict
    assert await api.get(PODS, key) == bound


async def a_binding_heeds_uid_and_version(api: Api, namespace: str) -> None:
    made = await _pod(api, namespace)
    key, uid = key_of(made), made["metadata"]["uid"]
    assert (await refusal_of(api.bind_pod(key, "node-0", uid="other"))).is_conflict
    await api.patch(PODS, key, {"metadata": {"annotations": {"a": "b"}}})
    old = made["metadata"]["resourceVersion"]
    assert (await refusal_of(api.bind_pod(key, "node-0", uid=uid, resource_version=old))).is_conflict
    assert "nodeName" not in (await api.get(PODS, key))["spec"]


async def a_deleted_pod_is_not_bound(api: Api, namespace: str) -> None:
    made = await _pod(api, namespace, FINALIZER)
    await api.delete(PODS, key_of(made))
    refusal = await refusal_of(api.bind_pod(key_of(made), "node-0", uid=made["metadata"]["uid"]))
    assert refusal.is_conflict
    await api.patch(PODS, key_of(made), {"metadata": {"finalizers": None}})


async def admin_access_needs_a_label_on_the_namespace(api: Api, namespace: str) -> None:
    for name, labels in ((f"{namespace}-open", {ADMIN_LABEL: "true"}), (f"{namespace}-shut", {ADMIN_LABEL: "yes"})):
        await api.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )
    watching = requests(request("all", "gpu", allocationMode="All", adminAccess=True))
    for resource, make in ((CLAIMS, claim), (TEMPLATES, template)):
        refusal = await refusal_of(api.create(resource, make(f"{namespace}-shut", "watching", watching)))
        assert (refusal.status, refusal.reason) == (422, "Invalid")
        assert "adminAccess" in refusal.message
        assert ADMIN_LABEL in refusal.message
        assert await api.create(resource, make(f"{namespace}-open", "watching", watching))
        assert await api.create(resource, make(f"{namespace}-shut", "using"))


async def _with_finalizer(api: Api, namespace: str) -> RawObject:
    new = claim(namespace, "claim")
    new["metadata"]["finalizers"] = [FINALIZER]
    return await api.create(CLAIMS, new)


async def _pod(api: Api, namespace: str, *finalizers: str) -> RawObject:
    # Of a scheduler that does not run: nobody else binds it.
    new = pod(namespace, "pod", scheduler="none")
    new["metadata"]["finalizers"] = list(finalizers)
    return await api.get(PODS, ObjectKey(namespace, (await api.create(PODS, new))["metadata"]["name"]))


SCENARIOS: Final[tuple[Scenario, ...]] = (
    creating_sets_what_is_the_servers,
    a_name_can_be_generated,
    creating_twice_is_a_conflict_of_its_own,
    what_is_absent_is_not_found,
    a_write_that_changes_nothing_keeps_the_version,
    versions_grow_and_a_list_has_the_newest,
    only_one_of_two_writers_of_a_version_wins,
    a_finalizer_keeps_what_is_deleted,
    the_last_finalizer_can_go_by_a_patch,
    the_mark_of_deletion_cannot_be_written,
    deleting_heeds_uid_and_version,
    a_name_used_again_is_another_object,
    a_pod_is_bound_once,
    a_binding_heeds_uid_and_version,
    a_deleted_pod_is_not_bound,
    admin_access_needs_a_label_on_the_namespace,
)
