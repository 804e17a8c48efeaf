"""A client for autoscalers and simulations, async and sync (httpx). It shares no code with the service."""

from extender.client.call import (
    AddedNodes,
    AutoscalerError,
    Filtered,
    NodeGroup,
    Plan,
    ProtocolError,
    Readiness,
    UnknownSessionError,
    UnreachableError,
)
from extender.client.verbs import (
    AsyncAutoscalerClient,
    AsyncJointSession,
    AsyncSession,
    AutoscalerClient,
    JointSession,
    Session,
)

__all__ = [
    "AddedNodes",
    "AsyncAutoscalerClient",
    "AsyncJointSession",
    "AsyncSession",
    "AutoscalerClient",
    "AutoscalerError",
    "Filtered",
    "JointSession",
    "NodeGroup",
    "Plan",
    "ProtocolError",
    "Readiness",
    "Session",
    "UnknownSessionError",
    "UnreachableError",
]
