"""The client for asyncio; `extender.client.sync` is the same without ``await``."""

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from extender.client import calls
from extender.client.calls import TIMEOUT_SECONDS, Call

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _method(make: Callable[_P, Call[_T]]) -> Callable[Concatenate["AsyncSession", _P], Coroutine[Any, Any, _T]]:
    """A call as a method of a session."""

    @wraps(make)
    async def method(self: "AsyncSession", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self.call(make(*args, **kwargs))

    return method


class AsyncSession:
    """The asyncio variant of `extender.client.sync.Session`."""

    def __init__(self, http: httpx.AsyncClient, session_id: str | None = None) -> None:
        self._http = http
        self.id = session_id

    filter = _method(calls.filter_nodes)
    prioritize = _method(calls.prioritize)
    book = _method(calls.book)
    node_ready = _method(calls.node_ready)
    estimate = _method(calls.estimate)

    async def call(self, call: Call[_T]) -> _T:
        """Make a call."""
        try:
            reply = await self._http.post(call.path, json=call.body, headers=call.headers(self.id))
        except httpx.HTTPError as error:
            raise call.unreachable(self._http.base_url, error) from error
        return call.answer(reply.status_code, reply.content)


class AsyncAutoscalerClient:
    """The asyncio variant of `extender.client.sync.AutoscalerClient`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.latest = AsyncSession(http)

    @classmethod
    def at(cls, url: str) -> "AsyncAutoscalerClient":
        """The service at a URL, such as ``http://127.0.0.1:8888``."""
        return cls(httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS))

    async def start(self, drivers: Iterable[str] | None = None) -> AsyncSession:
        """A session on the cluster as it is now, which judges some drivers; None: all."""
        session_id = await self.latest.call(calls.start(drivers))
        return AsyncSession(self._http, session_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()
