"""Starts the gRPC server; the error of a server that cannot be started."""

from collections.abc import Awaitable, Callable

from extender.autoscaler.autoscaler import Autoscaler
from extender.metrics.groups import Metrics
from extender.tools.user_error import UserError

Start = Callable[[Autoscaler, Metrics], Awaitable[None]]
"""Starts the server; from then on calls are answered."""


class GrpcError(UserError):
    """The settings ask for a gRPC server, and there can be none."""
