"""The client that blocks; `extender.client.aio` is the same with ``await``."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar

import httpx

from extender.client import calls
from extender.client.calls import Call
from extender.client.errors import UnreachableError
from extender.client.values import Filtered, NodeGroup, Plan, RawObject, Readiness

_T = TypeVar("_T")

TIMEOUT_SECONDS = 60.0
"""More than the service takes: it ends its calls itself, and says why."""


class Session:
    """What is asked of the service within a session, or (with no id) of the cluster as it is at each call.

    All of it raises AutoscalerError: UnknownSessionError when the session is gone, UnreachableError when nothing
    answers, ProtocolError when something else does.
    """

    def __init__(self, http: httpx.Client, session_id: str | None = None) -> None:
        self._http = http
        self.id = session_id

    def filter(self, pod: RawObject, nodes: Iterable[RawObject]) -> Filtered:
        """Which nodes, real or not, can have a pod, as far as its devices go."""
        return self.call(calls.filter_nodes(pod, nodes))

    def prioritize(self, pod: RawObject, nodes: Iterable[RawObject]) -> dict[str, int]:
        """How well nodes suit, 0 to 10, by name."""
        return self.call(calls.prioritize(pod, nodes))

    def book(self, pod: RawObject, node: RawObject) -> None:
        """Hold the pod's devices on a node for the rest of the session; needs one."""
        return self.call(calls.book(pod, node))

    def node_ready(self, name: str) -> Readiness:
        """Whether a node's slices are all there."""
        return self.call(calls.node_ready(name))

    def estimate(
        self, pods: Iterable[RawObject], groups: Iterable[NodeGroup], *, expander: str = "least-waste"
    ) -> Plan:
        """Which nodes of which groups to add for pods that fit on no node that is there. Nothing is booked."""
        return self.call(calls.estimate(pods, groups, expander))

    def call(self, call: Call[_T]) -> _T:
        """Make a call."""
        headers = {} if self.id is None else {"session": self.id}
        try:
            reply = self._http.post(call.path, json=call.body, headers=headers)
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"{call.verb}: {self._http.base_url}: {str(error) or type(error).__name__}"
            ) from error
        return call.answer(reply.status_code, reply.content)


class AutoscalerClient:
    """The service at an address.

    Args:
        http: a client whose base URL is the service's; it is closed with this one.
    """

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.latest = Session(http)

    @classmethod
    def at(cls, url: str) -> "AutoscalerClient":
        """The service at a URL, such as ``http://127.0.0.1:8888``."""
        return cls(httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS))

    def start(self) -> Session:
        """A session on the cluster as it is now."""
        return Session(self._http, self.latest.call(calls.start()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()
