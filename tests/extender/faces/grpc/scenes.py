"""The expander's server, and a call of it as Cluster Autoscaler makes it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from prometheus_client import CollectorRegistry

from extender.autoscaler.autoscaler import Autoscaler
from extender.config.settings import Settings
from extender.faces.grpc.opening import open_grpc
from extender.framework.metrics import Metrics
from extender.tools.intake import Budget
from tests.kit.certificates import HOST
from tests.kit.process import free_port

METHOD = "/grpcplugin.Expander/BestOptions"


@asynccontextmanager
async def serving(subject: Autoscaler, **settings: Any) -> AsyncIterator[str]:
    """The address of a server."""
    port = free_port()
    budget = settings.pop("budget", None)
    wanted = Settings.model_validate({"grpc": {"host": "127.0.0.1", "port": port, **settings}})
    async with open_grpc(wanted, budget or Budget()) as start:
        await start(subject, Metrics(CollectorRegistry()))
        yield f"127.0.0.1:{port}"


async def call(address: str, body: bytes, credentials: grpc.ChannelCredentials | None = None) -> bytes:
    options = [("grpc.ssl_target_name_override", HOST)] if credentials else []
    channel = (
        grpc.aio.secure_channel(address, credentials, options=options)
        if credentials
        else grpc.aio.insecure_channel(address)
    )
    async with channel:
        return bytes(await channel.unary_unary(METHOD)(body, timeout=5))
