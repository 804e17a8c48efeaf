"""Writes of statuses: of DeviceQuotas, and of ResourcePoolStatusRequests."""

from extender.kube.api import Api, ApiError, ObjectKey, RawObject
from extender.kube.resources import DEVICE_QUOTAS, POOL_REQUESTS


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
