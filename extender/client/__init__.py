"""A client for autoscalers and simulations, async and sync (httpx). It shares no code with the service."""

from extender.client.aio import AsyncAutoscalerClient, AsyncSession
from extender.client.errors import AutoscalerError, ProtocolError, UnknownSessionError, UnreachableError
from extender.client.joint import AsyncJointSession, JointSession
from extender.client.sync import AutoscalerClient, Session
from extender.client.values import AddedNodes, Filtered, NodeGroup, Plan, Readiness

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
