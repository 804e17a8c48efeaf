"""What the statuses of DeviceQuotas say on a control plane."""

from tests.kit.controlplane.client import Condition


def says(summary: str) -> Condition:
    """Whether the status of a quota has this summary."""
    return lambda obj: obj is not None and obj.get("status", {}).get("summary") == summary
