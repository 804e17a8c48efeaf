"""Conditions of ours in a pod's status. Writing one always changes the pod, so that whoever waits for that notices."""

from datetime import datetime
from typing import Final

from extender.kube.api import RawObject
from extender.kube.raw import timestamp

DEVICES_CHANGED: Final = "dra-extender/DevicesChanged"
"""A node that was rejected for the pod has the devices that it needs: its scheduler is to look again."""


def condition_patch(pod: RawObject, kind: str, reason: str, message: str, at: datetime) -> RawObject:
    """A patch of a pod's status that sets one condition; its message names the revision that it was made from.

    Args:
        pod: as it was read. The patch is refused if it has changed since.
        kind: type of the condition.
        reason: CamelCase.
        message: to which the revision is added.
        at: now.
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
