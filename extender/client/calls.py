"""Each call as a value: what is sent, and how its answer is read. No I/O."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, TypeAlias, TypeVar

from extender.client.errors import (
    TOO_LARGE,
    UNKNOWN_SESSION,
    AutoscalerError,
    ProtocolError,
    UnknownSessionError,
    UnreachableError,
)
from extender.client.values import AddedNodes, ApiObject, Filtered, NodeGroup, Plan, Readiness

_T = TypeVar("_T")

_Reply: TypeAlias = "dict[str, Any]"

TIMEOUT_SECONDS: Final = 60.0
"""Longer than the service's own limit, so that the service ends a call first and says why."""


@dataclass(frozen=True, slots=True)
class Call(Generic[_T]):
    """A verb, the body of the request, and what the reply's JSON means."""

    verb: str
    body: ApiObject
    read: Callable[[Any], _T]

    @property
    def path(self) -> str:
        """Path of the URL."""
        return f"/autoscaler/{self.verb}"

    def headers(self, session_id: str | None) -> dict[str, str]:
        """Headers that name the session."""
        return {} if session_id is None else {"session": session_id}

    def unreachable(self, url: object, error: Exception) -> UnreachableError:
        """The error for a call without an answer."""
        return UnreachableError(f"{self.verb}: {url}: {str(error) or type(error).__name__}")

    def answer(self, status: int, content: bytes) -> _T:
        """The value of a reply.

        Raises:
            UnknownSessionError: the session is gone.
            AutoscalerError: the service refuses, and why.
            ProtocolError: this is no reply of the service.
        """
        try:
            reply = json.loads(content)
            if isinstance(reply, dict) and isinstance(error := reply.get("Error"), str) and error:
                code = str(reply.get("Code", ""))
                gone = code in {UNKNOWN_SESSION, TOO_LARGE}
                raise UnknownSessionError(error, code) if gone else AutoscalerError(error, code)
            if isinstance(reply, dict) and reply.get("kind") == "Status":
                raise AutoscalerError(f"{self.verb}: {reply['message']}", str(reply["reason"]))
            if status != HTTPStatus.OK:
                raise ProtocolError(f"{self.verb}: status {status}: {_shown(content)}")
            return self.read(reply)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProtocolError(
                f"{self.verb}: status {status}, not an answer of the service: {_shown(content)}"
            ) from error


def start(drivers: Iterable[str] | None = None) -> Call[str]:
    """The id of a new session, which judges some drivers; None: all."""
    body = {} if drivers is None else {"Drivers": list(drivers)}
    return Call("start", body, lambda reply: _text(reply["Session"]))


def filter_nodes(pod: ApiObject, nodes: Iterable[ApiObject]) -> Call[Filtered]:
    """Which nodes, real or not, can have a pod, as far as its devices go."""

    def read(reply: _Reply) -> Filtered:
        names = tuple(node["metadata"]["name"] for node in reply["Nodes"]["items"])
        return Filtered(names, {**reply["FailedAndUnresolvableNodes"], **reply["FailedNodes"]})

    return Call("filter", _asked(pod, nodes), read)


def prioritize(pod: ApiObject, nodes: Iterable[ApiObject]) -> Call[dict[str, int]]:
    """How well nodes suit, 0 to 10, by name."""
    return Call("prioritize", _asked(pod, nodes), lambda reply: {each["Host"]: int(each["Score"]) for each in reply})


def book(pod: ApiObject, node: ApiObject) -> Call[None]:
    """Hold the pod's devices on a node for the rest of the session; needs a session."""
    return Call("NodeSelected", {"Pod": pod, "Node": node}, lambda reply: reply.get("Error"))


def node_ready(name: str) -> Call[Readiness]:
    """Whether all slices of a node are published."""
    return Call("NodeReady", {"NodeName": name}, lambda reply: Readiness(reply["Ready"], reply.get("Reason", "")))


def estimate(pods: Iterable[ApiObject], groups: Iterable[NodeGroup], *, expander: str = "least-waste") -> Call[Plan]:
    """How many nodes to add to each group for pods that fit on no existing node. Nothing is booked."""
    entries = [
        {"Name": each.name, "Template": each.template, "Limit": each.limit, "Priority": each.priority}
        for each in groups
    ]
    body = {"Pods": {"items": list(pods)}, "NodeGroups": entries, "Expander": expander}

    def read(reply: _Reply) -> Plan:
        return Plan(tuple(map(_added, reply["NodeGroups"])), dict(reply["FailedPods"]))

    return Call("estimate", body, read)


def _added(entry: _Reply) -> AddedNodes:
    return AddedNodes(entry["Name"], tuple(tuple(node["Pods"]) for node in entry["Nodes"]), entry["Devices"])


def _asked(pod: ApiObject, nodes: Iterable[ApiObject]) -> ApiObject:
    return {"Pod": pod, "Nodes": {"items": list(nodes)}, "NodeNames": None}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _shown(content: bytes) -> str:
    text = content[:200].decode(errors="replace").strip()
    return text or "an empty body"
