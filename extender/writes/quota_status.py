"""Writes the status of a DeviceQuota."""

from extender.kube.api import Api, ObjectKey, RawObject
from extender.kube.resources import DEVICE_QUOTAS


async def write_quota_status(api: Api, key: ObjectKey, status: RawObject) -> None:
    """Write what is used of a quota, whatever others have written.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.patch_status`.
    """
    await api.patch_status(DEVICE_QUOTAS, key, {"status": status})
