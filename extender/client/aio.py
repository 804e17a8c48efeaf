"""The client for asyncio; `extender.client.sync` is the same without ``await``."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar

import httpx

from extender.client import calls
from extender.client.calls import Call
from extender.client.errors import UnreachableError
from extender.client.sync import TIMEOUT_SECONDS
from extender.client.values import Filtered, NodeGroup, Plan, RawObject, Readiness

_T = TypeVar("_T")


class AsyncSession:
    """What is asked of the service within a session, or (with no id) of the cluster as it is at each call.

    All of it raises AutoscalerError: UnknownSessionError when the session is gone, UnreachableError when nothing
    answers, ProtocolError when something else does.
    """

    def __init__(self, http: httpx.AsyncClient, session_id: str | None = None) -> None:
        self._http = http
        self.id = session_id

    async def filter(self, pod: RawObject, nodes: Iterable[RawObject]) -> Filtered:
        """Which nodes, real or not, can have a pod, as far as its devices go."""
        return await self.call(calls.filter_nodes(pod, nodes))

    async def prioritize(self, pod: RawObject, nodes: Iterable[RawObject]) -> dict[str, int]:
        """How well nodes suit, 0 to 10, by name."""
        return await self.call(calls.prioritize(pod, nodes))

    async def book(self, pod: RawObject, node: RawObject) -> None:
        """Hold the pod's devices on a node for the rest of the session; needs one."""
        return await self.call(calls.book(pod, node))

    async def node_ready(self, name: str) -> Readiness:
        """Whether a node's slices are all there."""
        return await self.call(calls.node_ready(name))

    async def estimate(
        self, pods: Iterable[RawObject], groups: Iterable[NodeGroup], *, expander: str = "least-waste"
    ) -> Plan:
        """Which nodes of which groups to add for pods that fit on no node that is there. Nothing is booked."""
        return await self.call(calls.estimate(pods, groups, expander))

    async def call(self, call: Call[_T]) -> _T:
        """Make a call."""
        headers = {} if self.id is None else {"session": self.id}
        try:
            reply = await self._http.post(call.path, json=call.body, headers=headers)
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"{call.verb}: {self._http.base_url}: {str(error) or type(error).__name__}"
            ) from error
        return call.answer(reply.status_code, reply.content)


class AsyncAutoscalerClient:
    """The service at an address.

    Args:
        http: a client whose base URL is the service's; it is closed with this one.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.latest = AsyncSession(http)

    @classmethod
    def at(cls, url: str) -> "AsyncAutoscalerClient":
        """The service at a URL, such as ``http://127.0.0.1:8888``."""
        return cls(httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS))

    async def start(self) -> AsyncSession:
        """A session on the cluster as it is now."""
        session_id = await self.latest.call(calls.start())
        return AsyncSession(self._http, session_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()
