"""Conditions that we write into a pod's status. Each write of one changes the pod, so that its scheduler notices it."""

from datetime import datetime
from typing import Final

from allocator.tools import Printable, printable
from extender.kube.api import RawObject
from extender.kube.raw import timestamp

DEVICES_CHANGED: Final = "dra-extender/DevicesChanged"
"""A node that was rejected for the pod may have the devices that it needs now."""


def condition_patch(
    pod: RawObject, kind: str, reason: str, message: Printable, at: datetime, *, status: str = "True"
) -> RawObject:
    """A patch of a pod's status that sets a condition of type ``kind``, and is refused if the pod has changed."""
    others = [each for each in (pod.get("status") or {}).get("conditions") or [] if each.get("type") != kind]
    condition = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(at),
    }
    preconditions = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    return {"metadata": preconditions, "status": {"conditions": [*others, condition]}}


def marking_patch(pod: RawObject, kind: str, reason: str, message: Printable, at: datetime) -> RawObject:
    """As `condition_patch`; the message ends with the revision of the pod, so that no two messages are equal."""
    version = pod["metadata"]["resourceVersion"]
    return condition_patch(pod, kind, reason, printable(f"{message} as of revision {version}"), at)
