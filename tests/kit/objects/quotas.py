"""DeviceQuotas and their limits, and ResourceQuotas."""

from collections.abc import Mapping
from typing import Any

from tests.kit.objects.parts import Object, api_object


def limited(device_class: str = "gpu", **fields: Any) -> Object:
    """A limit named ``gpu`` for what claims are allocated of a device class, such as ``devices=2``."""
    return {"name": "gpu", "deviceClassName": device_class, **fields}


def selecting(expression: str, **fields: Any) -> Object:
    """A limit for the devices that a selector takes."""
    return {"name": "gpu", "selectors": [{"cel": {"expression": expression}}], **fields}


def quota(*limits: Object, name: str = "gold", namespace: str = "ns", **spec: Any) -> Object:
    """A DeviceQuota; for two devices of class gpu, if nothing else is said."""
    found = list(limits) or [limited(devices=2)]
    return api_object("DeviceQuota", name, namespace=namespace, spec={"limits": found, **spec})


def resource_quota(hard: Mapping[str, str], *, name: str = "quota", namespace: str = "ns", **spec: Any) -> Object:
    """A ResourceQuota."""
    return api_object("ResourceQuota", name, namespace=namespace, spec={"hard": dict(hard), **spec})
