"""The service at an address, for programs that block and for asyncio."""

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

import httpx

from extender.client.verbs import AsyncSession, Session, start

TIMEOUT_SECONDS: Final = 60.0
"""Longer than the service's own limit, so that the service ends a call first and says why."""


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
        return Session(self._http, self.latest.call(start(drivers)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()


class AsyncAutoscalerClient:
    """The asyncio variant of `AutoscalerClient`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.latest = AsyncSession(http)

    @classmethod
    def at(cls, url: str) -> "AsyncAutoscalerClient":
        """The service at a URL, such as ``http://127.0.0.1:8888``."""
        return cls(httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS))

    async def start(self, drivers: Iterable[str] | None = None) -> AsyncSession:
        """A session on the cluster as it is now, which judges some drivers; None: all."""
        session_id = await self.latest.call(start(drivers))
        return AsyncSession(self._http, session_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()
