"""A call as a value: what is sent and answered, how the answer is read, and the errors of calls. No I/O.

Pods and Nodes are raw API objects: JSON as kubectl prints it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, TypeAlias, TypeVar

ApiObject: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that fit, by name in the order asked; and the other nodes, each with the reason."""

    passed: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether all slices of a node are published, and if not, why."""

    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that can be added.

    Attributes:
        template: a Node as the group's next one will be; its allocatable is what is left for pods.
        limit: how many can be added.
        priority: for the expander "priority"; the highest goes first.
    """

    name: str
    template: ApiObject
    limit: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """Nodes to add of one group.

    Attributes:
        nodes: for each new node, its pods as namespace/name.
        devices: from where it is known what devices such a node has; empty: it is not known.
    """

    group: str
    nodes: tuple[tuple[str, ...], ...] = ()
    devices: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to add, for each group of the call; and the pods that no group helps, each with the reason."""

    groups: tuple[AddedNodes, ...]
    failed: Mapping[str, str] = field(default_factory=dict)


UNKNOWN_SESSION: Final = "UnknownSession"
TOO_LARGE: Final = "SessionTooLarge"


class AutoscalerError(Exception):
    """The service did not do what was asked; its own text says why.

    Attributes:
        code: identifies the error for programs; empty for errors that are for people only.
    """

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class UnknownSessionError(AutoscalerError):
    """The session is gone: expired, dropped, or lost in a restart of the service. Start another one."""


class UnreachableError(AutoscalerError):
    """The service could not be reached, or did not answer in time: the outcome of the call is unknown."""


class ProtocolError(AutoscalerError):
    """The answer is not from the service, or from another version of it."""


_T = TypeVar("_T")


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


def _shown(content: bytes) -> str:
    text = content[:200].decode(errors="replace").strip()
    return text or "an empty body"
