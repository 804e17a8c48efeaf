"""Opens the gRPC server if the settings ask for one. Only then are the packages of the extra ``grpc`` imported."""

import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from extender.autoscaler.autoscaler import Autoscaler
from extender.config.settings import Settings
from extender.framework.metrics import Metrics
from extender.tools.intake import Budget
from extender.tools.user_error import UserError, installing

Start = Callable[[Autoscaler, Metrics], Awaitable[None]]
"""Starts the server; from then on calls are answered."""


class GrpcError(UserError):
    """The settings ask for a gRPC server, and there can be none."""


@asynccontextmanager
async def open_grpc(settings: Settings, budget: Budget) -> AsyncIterator[Start]:
    """Within the context, a server listens. Without ``grpc.port`` there is none, and its start does nothing.

    Args:
        settings: for the port and its limits.
        budget: for the memory of messages.

    Raises:
        GrpcError: the extra is not installed, a certificate cannot be used, or the address is in use.
    """
    if not settings.grpc.port:
        yield _nothing
        return
    # The library writes lines about failed handshakes that are no JSON, and whoever connects could fill the log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        server = importlib.import_module("extender.faces.grpc.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"grpc", "google"}:
            raise
        raise GrpcError(
            f"grpc.port is set, but gRPC is not installed: {installing('grpc')}, or set grpc.port to 0"
        ) from error
    async with server.listening(settings, budget) as start:
        yield start


async def _nothing(_: Autoscaler, __: Metrics) -> None:
    pass
