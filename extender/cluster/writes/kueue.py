"""Writes to objects of Kueue: the entries of checks in the status of a Workload, and the condition of a check."""

from collections.abc import Mapping

from allocator import InvalidObjectError
from extender.cluster.objects.kueue import ACTIVE, AdmissionCheck, Workload, parse_workload
from extender.kube.api import Api, ObjectKey, RawObject, revision_of
from extender.kube.resources import ADMISSION_CHECKS, WORKLOADS


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
