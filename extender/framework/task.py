"""A background task: it is told what filter has answered, and gets turns while something happens.

What a task asks of controllers goes on between the turns, as `ControllerWork`.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from sys import intern
from typing import Final, Generic, TypeVar

from allocator.tools import Recent
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.bind_errors import BindError
from extender.framework.cycle import refreshed
from extender.framework.filter import FilterResult
from extender.framework.victims import Victims
from extender.tools.faults import Faults

UNTIL_NEWS: Final = math.inf
"""Seconds for which a task has nothing to do that does so only after something has happened."""

UNSEEN: Final = ""
"""The share of the pods that the watch has not shown yet: a caller may make up any number of pods and namespaces."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A pod for which filter has left no node.

    Attributes:
        sent: the pod as its scheduler sent it.
        names: the nodes that filter was asked about.
        result: why each node was rejected.
        snapshot: the cluster when filter decided.
    """

    sent: Pod
    names: Sequence[str]
    result: FilterResult
    snapshot: Snapshot

    @property
    def pod(self) -> Pod:
        """The pod with the claims that have been made for it since its scheduler looked."""
        return refreshed(self.sent, self.snapshot)

    @property
    def share(self) -> str:
        """The share in which the pod is remembered; see `share_of`."""
        return share_of(self.sent, self.snapshot)

    @property
    def is_final(self) -> bool:
        """Whether the scheduler now gives up: after a call for the nominated node alone comes one for all nodes."""
        return not self.result.failed and list(self.names) != [self.sent.nominated_node]


def share_of(pod: Pod, snapshot: Snapshot) -> str:
    """The share of a memory in which a pod is remembered: its namespace, or `UNSEEN`."""
    shown = snapshot.pod(pod.uid)
    return UNSEEN if shown is None else shown.namespace


class Found(IntEnum):
    """The answer of a task about a waiting pod that this process was not asked about. The highest answer counts."""

    KNOWN = 0
    """The task knows the pod now, or has nothing to do with it."""

    ASK = 1
    """The task has to know which nodes the pod's scheduler takes: the scheduler is to ask about the pod."""

    FULL = 2
    """There is no room now: later."""


class BackgroundTask:
    """One thing that is done in the background. A task overrides what concerns it."""

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """What goes on between the turns, and is to come to its end before the process stops."""
        return ()

    @property
    def idle_seconds(self) -> float:
        """Seconds from now on for which the task has nothing to do while nothing happens; 0 if it may have."""
        return 0.0

    def on_rejected(self, rejection: Rejection) -> None:
        """Filter has left a pod no node. Nothing is written here: the answer goes first."""

    def on_held(self, pod: Pod, reasons: Collection[str]) -> None:
        """A pod is not tried, for these reasons; without any, it is going to be."""

    def on_passed(self, pod: Pod) -> None:
        """Filter has left a pod a node."""

    def on_found(self, _pod: Pod, _snapshot: Snapshot) -> Found:
        """A pod waits, and filter may have rejected it before this process started, or before it was forgotten."""
        return Found.KNOWN

    def missed(self) -> Collection[str]:
        """The shares whose pods were forgotten for want of room and may be helped now; each is told once.

        A share has the name of its namespace, or is `UNSEEN`.
        """
        return ()

    async def before_preempt(self, pod: Pod, nodes: Collection[str]) -> None:
        """A scheduler asks preempt about a pod: it would evict others on these nodes. The answer waits for this."""

    async def allowed(self, pod: Pod, offered: Mapping[str, Victims]) -> Mapping[str, Victims]:  # noqa: ARG002 - a default
        """Return those of the evictions that preempt may offer to the pod's scheduler now, by node."""
        return offered

    def on_victims(self, pod: Pod) -> None:
        """Preempt has named victims: the pod's scheduler evicts them, and nominates the pod."""

    def make_way(self, _uid: str) -> bool:
        """Whether something is ended now that kept the pod of this uid from being bound."""
        return False

    def on_bind_failed(self, uid: str, node: str, error: BindError) -> None:
        """The pod of this uid was not bound to a node."""

    def judge_anew(self, pod: Pod) -> None:
        """Something has changed that no snapshot tells: the pod may fit now."""

    def on_woken(self, pod: Pod) -> None:
        """Another task has woken the pod."""

    def on_released(self, controller: str) -> None:
        """A controller has released a claim, so it may allocate others."""

    async def prepare(self, pod: Pod) -> None:
        """A simulation is going to ask filter about a pod, and gives no turns: do what the pod would wait for."""

    async def tick(self) -> None:
        """Do what there is to do now."""


_MOST: Final = 64
"""Different lists that are looked for."""


class NodeLists:
    """The lists that came lately. Names come anew with each request, and a list of 5,000 takes 350 KB."""

    def __init__(self) -> None:
        self._known: Recent[tuple[str, ...]] = Recent(_MOST)

    def shared(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names in their order, as they are in memory already."""
        found = tuple(map(intern, names))
        return self._known.find(found) or self._known.keep(found, found)


_K = TypeVar("_K", bound=Hashable)


class ControllerWork(Generic[_K]):
    """The work of one background task that waits for controllers: one piece at a time for each object.

    A controller may take minutes for an answer. No task waits for it in a turn, because all pods need the other tasks.

    Each controller has a limit of its own, so a controller that hangs keeps no other from work.

    Args:
        faults: gets unexpected errors, each with its object.
        most: the highest number of pieces that wait for one controller at the same time.
    """

    def __init__(self, faults: Faults, most: int) -> None:
        self._faults = faults
        self._most = most
        self._running: dict[_K, tuple[Collection[str], asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, key: _K) -> bool:
        return key in self._running

    @property
    def running(self) -> Sequence[asyncio.Task[None]]:
        """The pieces that run."""
        return [task for _, task in self._running.values()]

    def has_room(self, controllers: Collection[str], most: Callable[[str], int] | None = None) -> bool:
        """Whether work that waits for these controllers may begin.

        Args:
            controllers: by name.
            most: of each controller, the highest number of pieces, where that is lower than the limit for all.
        """
        used = [name for names, _ in self._running.values() for name in names]
        return all(used.count(name) < min(self._most, most(name) if most else self._most) for name in controllers)

    def begin(self, key: _K, subject: str, controllers: Collection[str], work: Callable[[], Awaitable[None]]) -> None:
        """Begin a piece of work.

        Args:
            key: names the object. It has no work that runs.
            subject: the object, as `extender.tools.faults` names it.
            controllers: those that the work may wait for.
            work: does it.
        """
        task = asyncio.create_task(self._run(subject, work))
        self._running[key] = (controllers, task)
        task.add_done_callback(lambda _: self._running.pop(key))

    async def _run(self, subject: str, work: Callable[[], Awaitable[None]]) -> None:
        with self._faults.of(subject):
            await work()
