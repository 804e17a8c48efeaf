"""Keeps a device class for each ResourceClass, and says in its status what became of it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import structlog

from allocator import InvalidObjectError
from allocator.model.json import MATCH_ATTRIBUTE, MEMBERS
from extender.cluster.objects.resource_classes import ResourceClass, parse_resource_class
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject, timestamp
from extender.kube.resources import CLASSES, RESOURCE_CLASSES
from extender.plugins.resource_classes.device_class import ClassJudgement, judge

logger = structlog.get_logger()

_LONGEST_MESSAGE: Final = 4096
"""Characters of the message of a condition; the definition allows more."""


async def keep_device_classes(api: Api, now: Callable[[], datetime]) -> bool:
    """Create and change device classes, and write the statuses that are not right.

    A class that is not accepted keeps the device class that it had. The API server deletes the device class of a
    ResourceClass that is deleted: it is its owner.

    Returns:
        Whether all is done; otherwise the log says what is left.

    Raises:
        ApiError, OutcomeUnknownError: the objects could not be listed.
    """
    raw = {each["metadata"]["name"]: each for each in (await api.list(RESOURCE_CLASSES)).items}
    existing = {each["metadata"]["name"]: each for each in (await api.list(CLASSES)).items}
    is_done = True
    for judgement in judge(_readable(raw), list(existing.values()), api.api_version(CLASSES)):
        name = judgement.resource_class.name
        try:
            refusal = await _written(api, judgement.device_class, existing.get(name))
            status = _status(judgement, refusal, raw[name].get("status") or {}, now())
            if {field: value for field, value in status.items() if value is not None} != raw[name].get("status"):
                await api.patch_status(RESOURCE_CLASSES, ObjectKey("", name), {"status": status})
        except (ApiError, OutcomeUnknownError) as error:
            logger.warning("resource class not kept", resource_class=name, error=str(error))
            is_done = False
    return is_done


def _readable(raw: Mapping[str, RawObject]) -> list[ResourceClass]:
    found = []
    for each in raw.values():
        try:
            found.append(parse_resource_class(each))
        except InvalidObjectError as error:
            logger.warning("resource class not read", error=str(error))
    return found


async def _written(api: Api, wanted: RawObject | None, present: RawObject | None) -> str:
    """Write the device class if it is not as wanted. Returns why the API server has not taken it; empty if it has."""
    if wanted is None:
        return ""
    found = present
    try:
        if present is None:
            found = await api.create(CLASSES, wanted)
        elif (changed := _changed(present, wanted)) is not None:
            found = await api.update(CLASSES, changed)
    except ApiError as error:
        if error.reason != "Invalid":
            raise
        return error.message
    is_whole = found is not None and "extendedResourceName" in found["spec"]
    return "" if is_whole else "it drops spec.extendedResourceName, as without the feature gate DRAExtendedResource"


def _changed(present: RawObject, wanted: RawObject) -> RawObject | None:
    """A device class as it is wanted, with the annotations of others; None if it is so already."""
    annotations = present["metadata"].get("annotations") or {}
    others = {name: value for name, value in annotations.items() if name not in (MEMBERS, MATCH_ATTRIBUTE)}
    own = {**others, **wanted["metadata"].get("annotations", {})}
    if (present["spec"], annotations) == (wanted["spec"], own):
        return None
    return {**present, "metadata": {**present["metadata"], "annotations": own}, "spec": wanted["spec"]}


def _status(judgement: ClassJudgement, refusal: str, old: Mapping[str, Any], at: datetime) -> RawObject:
    """The status of a ResourceClass; None removes a field.

    Args:
        judgement: of the class.
        refusal: why the API server refuses its device class.
        old: the status so far.
        at: the time.
    """
    reason, message = judgement.reason, judgement.message
    if refusal:
        reason, message = "Refused", f"the API server does not take the device class: {refusal}"
    is_accepted = judgement.device_class is not None and not refusal
    condition = {
        "type": "Accepted",
        "status": "True" if is_accepted else "False",
        "observedGeneration": judgement.resource_class.generation,
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
    }
    kept = ("type", "status")
    same = (each for each in old.get("conditions") or () if all(each.get(field) == condition[field] for field in kept))
    since = next((each.get("lastTransitionTime") for each in same), None)
    return {
        "deviceClassName": judgement.resource_class.name if is_accepted else None,
        "extendedResourceName": judgement.resource_class.asked_as if is_accepted else None,
        "conditions": [{**condition, "lastTransitionTime": since or timestamp(at)}],
    }
