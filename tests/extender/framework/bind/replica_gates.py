"""Places at which a task of an extender stops, and the watch that tells it of changes."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import orjson

from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ApiError, Event, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, RESOURCES, Resource
from extender.lab.api import MemoryApi
from tests.kit.servers.memory import Transport

_T = TypeVar("_T")


class Watch:
    """A watch that tells what happens when it is told to, claims apart from everything else."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.news: dict[str, deque[Event]] = {"claims": deque(), "pods": deque()}
        self.heard = dict.fromkeys(self.news, 0)

    def apply(self, event: Event) -> None:
        self.news["claims" if event.resource == CLAIMS else "pods"].append(event)

    def tell(self, of: str, count: int = 1) -> None:
        """The next pieces of news."""
        self.heard[of] += count
        for _ in range(count):
            self.state.apply(self.news[of].popleft())

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        return self.state.replace(resource, objects, at)


@dataclass(frozen=True, eq=False)
class Stop:
    """Where a task waits until it may go on.

    Attributes:
        name: what it is about to do.
        looks_from: it is about to look at what is known, and claims must be known up to this revision; None: it is
            about to call the API server.
        future: the fault that befalls the call, empty for none.
    """

    name: str
    looks_from: int | None
    future: asyncio.Future[str]

    @property
    def is_write(self) -> bool:
        """It is about to call what changes something."""
        return self.looks_from is None and not self.name.startswith(("get", "list"))


class Late(NamedTuple):
    """A write on its way; its writer was told that the outcome is unknown.

    Attributes:
        history: of its writer, from which it follows what is written.
    """

    name: str
    history: int
    call: Callable[[], Awaitable[object]]


class Records:
    """What was written, kind by kind. Nobody compares revisions of different kinds, so their order does not matter."""

    def __init__(self) -> None:
        self.written = dict.fromkeys(RESOURCES, 0)
        self._versions: dict[bytes, bytes] = {}

    def apply(self, event: Event) -> None:
        """From here on the revision has a name, which says how the kind came there, and nothing of other kinds."""
        kind, raw = event.resource.kind, event.object
        without = {**raw, "metadata": {**raw["metadata"], "resourceVersion": ""}}
        self.written[kind] = hash((self.written[kind], event.type, self.text(without)))
        self._versions[raw["metadata"]["resourceVersion"].encode()] = b"%d" % self.written[kind]

    def replace(self, _resource: Resource, _objects: Iterable[RawObject], _at: int) -> bool:
        return True

    def text(self, obj: object) -> bytes:
        """What an object says, with names of revisions instead of revisions."""
        return _REVISION.sub(lambda found: self._versions.get(found[0], found[0]), orjson.dumps(obj))


_REVISION: Final = re.compile(rb'(?<="resourceVersion":")\d+|(?<=as of revision )\d+|(?<=uid-\w )\d+')


class Gate(Transport):
    """Before each call, it stops; whoever lets it go on says what befalls the call."""

    def __init__(self, api: MemoryApi, records: Records, note: Callable[[Hashable], int]) -> None:
        super().__init__(api)
        self._records = records
        self._note = note
        self.stops: list[Stop] = []
        self.landing: list[Late] = []

    async def stop(self, name: str, looks_from: int | None = None) -> str:
        """Wait until it may go on; returns the fault, empty for none."""
        self._note(name)
        stop = Stop(name, looks_from, asyncio.get_running_loop().create_future())
        self.stops.append(stop)
        fault = await stop.future
        self.stops.remove(stop)
        return fault

    async def _call(self, name: str, resource: Resource, call: Callable[[], Awaitable[_T]]) -> _T:
        name = f"{name} {resource.plural}"
        fault = await self.stop(name)
        try:
            reply = await self._befallen(name, fault, call)
        except (ApiError, OutcomeUnknownError) as error:
            self._note((name, str(error)))
            raise
        self._note((name, self._records.text(reply)))
        return reply

    async def _befallen(self, name: str, fault: str, call: Callable[[], Awaitable[_T]]) -> _T:
        if fault == "conflict":
            raise ApiError(409, "Conflict", "changed")
        if fault == "refused":
            raise ApiError(403, "Forbidden", "not allowed")
        if fault == "late":
            self.landing.append(Late(name, self._note("late"), call))
            raise OutcomeUnknownError(name, "timed out")
        reply = await call()
        if fault == "lost answer":
            raise OutcomeUnknownError(name, "connection reset")
        return reply


class Known(ClusterState):
    """What an extender knows: it stops before it looks at that, and looks at no other time."""

    def __init__(self, *, has_group_claims: bool = False) -> None:
        super().__init__(has_group_claims=has_group_claims)
        self.gate: Gate | None = None
        self.may_look = True

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as it is known."""
        assert self.may_look, "what is known is looked at, not just after a stop for it: news before would matter"
        return super().snapshot

    @property
    def flights(self) -> Hashable:
        """What is in flight."""
        return tuple(sorted(map(str, super().snapshot.assumed.values())))

    async def passed(self, resource: Resource, at: int) -> None:
        """Stop until somebody lets it go on, who sees to it that the revision of a claim is known.

        The news of pods come one by one, at any moment, where an extender waits for them.
        """
        assert self.gate is not None
        await self.gate.stop(f"look at {resource.plural}", at if resource == CLAIMS else 0)
        await super().passed(resource, at)
