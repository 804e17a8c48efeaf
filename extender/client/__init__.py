"""A client for autoscalers and simulations, async and sync (httpx). It shares no code with the service."""

from extender.client.verbs import (
    AddedNodes,
    AsyncAutoscalerClient,
    AsyncJointSession,
    AsyncSession,
    AutoscalerClient,
    AutoscalerError,
    Filtered,
    JointSession,
    NodeGroup,
    Plan,
    ProtocolError,
    Readiness,
    Session,
    UnknownSessionError,
    UnreachableError,
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
