"""A client for autoscalers and simulations, async and sync (httpx). It shares no code with the service."""

from extender.client.call import AutoscalerError, ProtocolError, UnknownSessionError, UnreachableError
from extender.client.clients import AsyncAutoscalerClient, AutoscalerClient
from extender.client.values import AddedNodes, Filtered, NodeGroup, Plan, Readiness
from extender.client.verbs import AsyncJointSession, AsyncSession, JointSession, Session

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
