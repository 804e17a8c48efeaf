"""What takes time on a stage: the watch is behind the API server, and searches end after other things have happened."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from extender.cluster.cluster_state import Sink
from extender.kube.api import Event, RawObject
from extender.kube.resources import Resource
from tests.kit import virtualtime

_T = TypeVar("_T")

_WATCH_SECONDS: Final = 0.03
_SEARCH_SECONDS: Final = 0.05
_GAP: Final = 1e-6
"""Between two events that come at the same time, which a loop takes up in any order otherwise."""


class LateWatch:
    """Tells a sink of each event some time after it has happened; implements `extender.cluster.cluster_state.Sink`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._last = 0.0

    def apply(self, event: Event) -> None:
        loop = asyncio.get_running_loop()
        self._last = max(self._last + _GAP, loop.time() + _WATCH_SECONDS)
        loop.call_at(self._last, self._sink.apply, event)

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        return self._sink.replace(resource, objects, at)


async def after_a_while(work: Callable[[], _T]) -> _T:
    """An `extender.tools.offload.Offload` whose results come when other things have happened."""
    found = work()
    await virtualtime.elapse(_SEARCH_SECONDS)
    return found
