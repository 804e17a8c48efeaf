"""Calls of CCI drivers at their sockets."""

from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from extender.node import sockets
from extender.node.cci.protocol import (
    SERVICE,
    Ask,
    CciError,
    ClaimName,
    End,
    Grant,
    Start,
    admit_request,
    grant_of,
    refusal,
)

_WORDS: Final = {
    grpc.StatusCode.UNAVAILABLE: "does not run",
    grpc.StatusCode.DEADLINE_EXCEEDED: "does not answer in time",
    grpc.StatusCode.UNIMPLEMENTED: "does not know this call",
}


async def call(path: Path, method: str, request: Any, answer: str, seconds: float) -> Any:  # noqa: ANN401  # messages
    """One call. Each has a connection of its own, so a driver that comes back is reached at once.

    Args:
        path: the socket.
        method: with its service: ``service/method``.
        request: a message.
        answer: name of the message that comes back.
        seconds: how long it may take.

    Raises:
        CciError: it failed.
    """
    try:
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            data = await channel.unary_unary(f"/{method}")(request.SerializeToString(), timeout=seconds)
        return sockets.read_message(answer, data)
    except grpc.aio.AioRpcError as error:
        words = _WORDS.get(error.code(), error.details() or error.code().name)
        raise CciError(f"{method.rpartition('/')[2]}: {words}") from error
    except DecodeError as error:
        raise CciError(f"{method.rpartition('/')[2]}: the answer is no {answer}") from error


async def admit(path: Path, ask: Ask, seconds: float) -> Grant:
    """CCIAdmit. Raises RefusedError: the driver says no. Raises CciError: the call failed."""
    response = await call(path, f"{SERVICE}/CCIAdmit", admit_request(ask), "AdmitResponse", seconds)
    try:
        return grant_of(response)
    except ValueError as error:
        raise CciError(f"CCIAdmit: {error}") from error


async def add(path: Path, start: Start, seconds: float) -> None:
    """CCIAddContainerResource. Raises as `admit`."""
    request = sockets.new_message(
        "AddResourceRequest",
        cgroup=start.cgroup,
        pod=start.pod,
        container=start.container,
        container_id=start.container_id,
    )
    method = f"{SERVICE}/CCIAddContainerResource"
    _check(await call(path, method, request, "AddResourceResponse", seconds))


async def remove(path: Path, end: End, seconds: float) -> None:
    """CCIRemoveContainerResource. Raises as `admit`."""
    request = sockets.new_message(
        "RemoveResourceRequest",
        namespace=end.claim.namespace,
        claim_uid=end.claim.uid,
        claim_name=end.claim.name,
        container_id=end.container_id,
    )
    method = f"{SERVICE}/CCIRemoveContainerResource"
    _check(await call(path, method, request, "RemoveResourceResponse", seconds))


def claim_name(name: str, uid: str) -> ClaimName:
    """A claim by namespace and name, as the store has them."""
    namespace, _, own = name.partition("/")
    return ClaimName(namespace, own, uid)


def _check(response: Any) -> None:  # noqa: ANN401  # a message
    if response.err:
        raise refusal(response.err)
