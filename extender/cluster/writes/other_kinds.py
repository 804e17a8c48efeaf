"""Writes of other kinds: PodSchedulingContexts, statuses of DeviceQuotas, pool requests, and Workloads of Kueue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allocator import InvalidObjectError
from extender.cluster.objects.kueue import ACTIVE, AdmissionCheck, Workload, parse_workload
from extender.cluster.objects.scheduling_contexts import SchedulingContext, parse_scheduling_context
from extender.kube.api import Api, ApiError, ObjectKey, RawObject, revision_of
from extender.kube.resources import ADMISSION_CHECKS, CONTEXTS, DEVICE_QUOTAS, PODS, POOL_REQUESTS, WORKLOADS


@dataclass(frozen=True, slots=True)
class ContextWrites:
    """Writes PodSchedulingContexts: their spec for a pod, and their status for a controller.

    All methods raise `ApiError` and `OutcomeUnknownError`, as the API does.
    """

    api: Api

    async def create(self, key: ObjectKey, pod_uid: str, spec: RawObject) -> RawObject:
        """The context of a pod with this spec.

        A context of an earlier pod of that name is deleted first, and so is one with answers, if other nodes are asked
        about: a status does not say about which nodes it is.
        """
        try:
            return await self.api.create(CONTEXTS, self._new_context(key, pod_uid, spec))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        raw = await self.api.get(CONTEXTS, key)
        found = parse_scheduling_context(raw)
        is_own, asks = found.pod_uid == pod_uid, "potentialNodes" in spec
        if is_own and asks and found.potential:
            return raw  # another replica asks already
        if is_own and not (asks and found.unsuitable):
            return await self.merge(key, spec)
        await self.remove(found)  # of an earlier pod, or with answers about other nodes
        return await self.api.create(CONTEXTS, self._new_context(key, pod_uid, spec))

    async def merge(self, key: ObjectKey, spec: Mapping[str, object]) -> RawObject:
        """Change fields of the spec; None removes one."""
        return await self.api.patch(CONTEXTS, key, {"spec": dict(spec)})

    async def remove(self, context: SchedulingContext) -> None:
        """Delete a context; refused if it has changed since it was read."""
        await self.api.delete(CONTEXTS, context.key, resource_version=str(context.revision))

    async def tell(self, context: SchedulingContext, unsuitable: Mapping[str, Sequence[str]]) -> None:
        """Write the answers of a controller, by the names of claims in the pod, beside those of other controllers."""
        raw = await self.api.get(CONTEXTS, context.key)
        now = parse_scheduling_context(raw)
        if (now.uid, now.potential) != (context.uid, context.potential):
            return  # it asks about other nodes
        entries = {each["name"]: each for each in (raw.get("status") or {}).get("resourceClaims") or ()}
        entries |= {name: {"name": name, "unsuitableNodes": [*nodes]} for name, nodes in unsuitable.items()}
        await self.api.update_status(CONTEXTS, {**raw, "status": {"resourceClaims": list(entries.values())}})

    async def still_selects(self, context: SchedulingContext) -> bool:
        """Whether the API server still has a context, with the same selected node."""
        try:
            now = parse_scheduling_context(await self.api.get(CONTEXTS, context.key))
        except ApiError as error:
            if error.is_missing:
                return False
            raise
        return (now.uid, now.selected) == (context.uid, context.selected)

    def _new_context(self, key: ObjectKey, pod_uid: str, spec: RawObject) -> RawObject:
        owner = {"apiVersion": "v1", "kind": PODS.kind, "name": key.name, "uid": pod_uid}
        metadata = {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]}
        version = self.api.api_version(CONTEXTS)
        return {"apiVersion": version, "kind": CONTEXTS.kind, "metadata": metadata, "spec": spec}


async def write_quota_status(api: Api, key: ObjectKey, status: RawObject) -> None:
    """Write what is used of a quota, whatever others have written.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.patch_status`.
    """
    await api.patch_status(DEVICE_QUOTAS, key, {"status": status})


async def write_pool_status(api: Api, request: RawObject, status: RawObject) -> None:
    """Write an answer, unless the request was answered meanwhile: an answer is final.

    Args:
        api: the API server.
        request: as it was read, without a status.
        status: the answer.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.update_status`.
    """
    try:
        await api.update_status(POOL_REQUESTS, {**request, "status": status})
    except ApiError as error:
        if not (error.is_conflict or error.is_missing):
            raise


async def write_check_states(api: Api, workload: Workload, entries: Mapping[str, RawObject]) -> int:
    """Replace entries of checks, and leave those of other controllers as they are.

    A merge patch replaces the whole list, so it has the version from which the other entries are.

    Args:
        api: the API server.
        workload: as it was decided about.
        entries: by the name of the check; a count of retries stays.

    Returns:
        The revision that has them; 0 if the workload has changed since, or cannot be read: nothing is written.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.patch_status`.
    """
    raw = await api.get(WORKLOADS, workload.key)
    try:
        if parse_workload(raw) != workload:
            return 0
    except InvalidObjectError:
        return 0
    checks = [_merged(each, entries.get(each["name"])) for each in raw["status"]["admissionChecks"]]
    metadata = {name: raw["metadata"][name] for name in ("uid", "resourceVersion")}
    patch = {"metadata": metadata, "status": {"admissionChecks": checks}}
    return revision_of(await api.patch_status(WORKLOADS, workload.key, patch))


def _merged(old: RawObject, new: RawObject | None) -> RawObject:
    if new is None:
        return old
    counted = {"retryCount": old["retryCount"]} if "retryCount" in old else {}
    return {"name": old["name"], **counted, **new}


async def write_active(api: Api, check: AdmissionCheck, at: str) -> None:
    """Tell Kueue that somebody decides about a check. Conditions of others stay.

    Args:
        api: the API server.
        check: the check.
        at: the time, in the format of the API.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.patch_status`.
    """
    raw = await api.get(ADMISSION_CHECKS, ObjectKey("", check.name))
    before = (raw.get("status") or {}).get("conditions") or ()
    was_true = any(each["type"] == ACTIVE and each["status"] == "True" for each in before)
    since = next((each["lastTransitionTime"] for each in before if each["type"] == ACTIVE and was_true), at)
    condition = {
        "type": ACTIVE,
        "status": "True",
        "reason": ACTIVE,
        "message": "dra-extender decides about it",
        "observedGeneration": raw["metadata"].get("generation", 0),
        "lastTransitionTime": since,
    }
    conditions = [*(each for each in before if each["type"] != ACTIVE), condition]
    metadata = {name: raw["metadata"][name] for name in ("uid", "resourceVersion")}
    await api.patch_status(
        ADMISSION_CHECKS, ObjectKey("", check.name), {"metadata": metadata, "status": {"conditions": conditions}}
    )
