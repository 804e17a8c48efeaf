"""Reads DaemonSets from the API server when they are needed: they are not watched, because few calls ask for them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from extender.autoscaler.readiness.daemon_sets import DriverDaemonSets, read_daemon_sets
from extender.kube.api import Api
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import DAEMON_SETS

_FRESH_SECONDS: Final = 10.0
"""An answer of the API server, or its failure, counts for this time."""

_READING_SECONDS: Final = 5.0
"""The longest wait for the API server."""

logger = structlog.get_logger()


class DaemonSetReader:
    """The DaemonSets that run drivers. Calls that come at once share one request.

    Args:
        named: namespace/name of a DaemonSet to its drivers.
        clock: seconds, from any point.
    """

    def __init__(self, api: Api, named: Mapping[str, Sequence[str]], clock: Callable[[], float]) -> None:
        self._api = api
        self._named = named
        self._clock = clock
        self._turn = asyncio.Lock()
        self._read = DriverDaemonSets()
        self._until = float("-inf")

    async def latest(self) -> DriverDaemonSets:
        """The DaemonSets, a few seconds old at most. What cannot be read is said in the value."""
        async with self._turn:
            if self._clock() >= self._until:
                self._read = await self._list()
                self._until = self._clock() + _FRESH_SECONDS
            return self._read

    async def _list(self) -> DriverDaemonSets:
        try:
            async with asyncio.timeout(_READING_SECONDS):
                listing = await self._api.list(DAEMON_SETS)
        except (ApiError, OutcomeUnknownError) as error:
            return self._unread(f"DaemonSets can't be listed: {error}")
        except TimeoutError:
            return self._unread(f"DaemonSets can't be listed: no answer within {_READING_SECONDS:g} s")
        found, problems = read_daemon_sets(listing.items, self._named)
        if problems:
            self._unread("; ".join(problems))
        return DriverDaemonSets(found, "; ".join(problems))

    def _unread(self, why: str) -> DriverDaemonSets:
        if why != self._read.unread:
            logger.warning("daemon sets not read", error=why)
        return DriverDaemonSets(unread=why)
