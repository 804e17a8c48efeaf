"""The client that blocks; `extender.client.aio` is the same with ``await``."""

from collections.abc import Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from extender.client import calls
from extender.client.calls import TIMEOUT_SECONDS, Call

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _method(make: Callable[_P, Call[_T]]) -> Callable[Concatenate["Session", _P], _T]:
    """A call as a method of a session."""

    @wraps(make)
    def method(self: "Session", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self.call(make(*args, **kwargs))

    return method


class Session:
    """Calls within a session or, without an id, about the cluster as it is at each call.

    All methods raise AutoscalerError: UnknownSessionError if the session is gone, UnreachableError if nothing answers,
    ProtocolError if something else than the service answers.
    """

    def __init__(self, http: httpx.Client, session_id: str | None = None) -> None:
        self._http = http
        self.id = session_id

    filter = _method(calls.filter_nodes)
    prioritize = _method(calls.prioritize)
    book = _method(calls.book)
    node_ready = _method(calls.node_ready)
    estimate = _method(calls.estimate)

    def call(self, call: Call[_T]) -> _T:
        """Make a call."""
        try:
            reply = self._http.post(call.path, json=call.body, headers=call.headers(self.id))
        except httpx.HTTPError as error:
            raise call.unreachable(self._http.base_url, error) from error
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

    def start(self, drivers: Iterable[str] | None = None) -> Session:
        """A session on the cluster as it is now, which judges some drivers; None: all."""
        return Session(self._http, self.latest.call(calls.start(drivers)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()
