"""Writes the answer to a ResourcePoolStatusRequest."""

from extender.kube.api import Api, RawObject
from extender.kube.errors import ApiError
from extender.kube.resources import POOL_REQUESTS


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
