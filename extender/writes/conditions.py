"""Our conditions in a pod's status. Each write of one changes the pod, so that its scheduler notices it."""

from datetime import datetime
from typing import Final

from extender.kube.api import RawObject
from extender.kube.raw import timestamp

DEVICES_CHANGED: Final = "dra-extender/DevicesChanged"
"""A node that was rejected for the pod may have the devices that it needs now."""


def condition_patch(pod: RawObject, kind: str, reason: str, message: str, at: datetime) -> RawObject:
    """A patch of a pod's status that sets a condition of type ``kind``, and is refused if the pod has changed.

    The message of the condition ends with the revision of the pod, so that no two messages are equal.
    """
    version = pod["metadata"]["resourceVersion"]
    others = [each for each in (pod.get("status") or {}).get("conditions") or [] if each.get("type") != kind]
    condition = {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": f"{message} as of revision {version}",
        "lastTransitionTime": timestamp(at),
    }
    preconditions = {"uid": pod["metadata"]["uid"], "resourceVersion": version}
    return {"metadata": preconditions, "status": {"conditions": [*others, condition]}}
