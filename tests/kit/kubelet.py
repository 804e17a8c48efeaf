"""A kubelet as a plugin meets it: calls on the sockets of a driver."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from extender.node import sockets
from extender.node.plugin import SERVICE
from extender.node.sockets import REGISTRATION

_SECONDS = 10.0


async def ask(path: Path, service: str, method: str, data: bytes) -> bytes:
    """One call on a socket; raises grpc.aio.AioRpcError: it failed."""
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        return bytes(await channel.unary_unary(f"/{service}/{method}")(data, timeout=_SECONDS))


async def plugin_info(path: Path) -> Any:
    """What a plugin says of itself."""
    return sockets.read_message("PluginInfo", await ask(path, REGISTRATION, "GetInfo", b""))


async def tell_registered(path: Path, error: str = "") -> None:
    """Tell a plugin whether it was accepted."""
    status = sockets.new_message("RegistrationStatus", plugin_registered=not error, error=error)
    await ask(path, REGISTRATION, "NotifyRegistrationStatus", status.SerializeToString())


async def prepare(path: Path, *claims: Mapping[str, str]) -> Mapping[str, Any]:
    """The answer for each claim, by uid. A claim has namespace, uid and name."""
    request = sockets.new_message("NodePrepareResourcesRequest")
    for each in claims:
        request.claims.add(**each)
    data = await ask(path, SERVICE, "NodePrepareResources", request.SerializeToString())
    return dict(sockets.read_message("NodePrepareResourcesResponse", data).claims)


async def unprepare(path: Path, *claims: Mapping[str, str]) -> Mapping[str, str]:
    """The error for each claim, by uid."""
    request = sockets.new_message("NodeUnprepareResourcesRequest")
    for each in claims:
        request.claims.add(**each)
    data = await ask(path, SERVICE, "NodeUnprepareResources", request.SerializeToString())
    found = sockets.read_message("NodeUnprepareResourcesResponse", data).claims
    return {uid: each.error for uid, each in found.items()}
