"""DeviceQuotas on a control plane, and what their statuses say."""

from typing import Any

from extender.kube.api import RawObject
from tests.kit.controlplane.client import Condition
from tests.kit.objects.parts import api_object


def quota(namespace: str, *limits: RawObject, name: str = "gold", **spec: Any) -> RawObject:
    return api_object("DeviceQuota", name, namespace=namespace, spec={"limits": list(limits), **spec})


def says(summary: str) -> Condition:
    """Whether the status of a quota has this summary."""
    return lambda obj: obj is not None and obj.get("status", {}).get("summary") == summary
