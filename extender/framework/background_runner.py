"""The background tasks, with one life cycle: each hears what filter has answered, and each gets a turn."""

import asyncio
import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.lease import SharedLease
from extender.framework.asked import Asked
from extender.framework.bind_errors import BindError
from extender.framework.filter import FilterResult
from extender.framework.task import BackgroundTask, Rejection
from extender.framework.victims import Victims
from extender.framework.wire import FilterArgs
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.tools.faults import Faults

PAUSE_SECONDS: Final = 0.2
"""Between two turns of the tasks, while something happens."""

REST_SECONDS: Final = 1.0
"""Between two turns at most, while nothing happens."""

LONGEST_SECONDS: Final = 10.0
"""Between two turns at most, of a task that says that it has nothing to do."""

_REST_SHARE: Final = 0.25
"""The time between two turns, as a share of the time for which nothing has happened: so much too late, for how long it
waits, comes what a task does after some time."""

_WORK_SECONDS: Final = 0.01
"""A round that takes longer has done something, and there may be more of it to do."""

TURN_SECONDS: Final = 0.05
"""How long a round waits in all for turns that wait for something. They go on beside those of the others then."""

_YIELD_SECONDS: Final = 0.001
"""Of turns without a pause, after which other work on the event loop goes first."""


class BackgroundRunner:
    """Runs the tasks. Filter calls of a scheduler give them work; explanations and sessions do not.

    The turns follow what happens: a change of the cluster, what the tasks are told, and what they have begun. While
    nothing happens, there are fewer of them, for what has to be done at some time.

    Attributes:
        asked: is told of each call, and of each pod that the tasks are told of.
        tasks: in the order of their turns. Those who make the tasks add them, before the first call.
        leases: of the tasks; they are given back in the end, so that no replica waits until they have expired.

    Args:
        state: the cluster.
        faults: gets unexpected errors, each with its task.
    """

    def __init__(self, state: ClusterState, asked: Asked, faults: Faults, tasks: Iterable[BackgroundTask] = ()) -> None:
        self._state = state
        self._seen: tuple[object, ...] = ()
        """What there was in the cluster at the last turns, and whether a task had begun something."""
        self._is_told = False
        self._is_resting = False
        """Nothing happens, and the next turn is due at some time only."""
        self._awake = asyncio.Event()
        """Set when it is time, and by what happens while this rests."""
        self.asked = asked
        self.tasks = list(tasks)
        self.leases: list[SharedLease] = []
        self._faults = faults
        self._run: asyncio.Task[None] | None = None
        self._rounds: set[asyncio.Task[None]] = set()
        self._in_turn: set[BackgroundTask] = set()
        self._turns_begun = 0
        self._is_stopping = False

    def note(self, args: FilterArgs, result: FilterResult, snapshot: Snapshot) -> None:
        """Tell the tasks what filter has decided on a snapshot. The answer to the scheduler does not depend on them."""
        self.asked.note(args.pod)
        self._note_told()
        if result.passed:
            for task in self.tasks if self.asked.may_be_known(args.pod.uid) else ():
                task.on_passed(args.pod)
            return
        rejection = Rejection(args.pod, args.names, result, snapshot)
        self.asked.remember(args.pod, snapshot)
        subject = f"pod {args.pod}"
        for task in self.tasks:
            with self._faults.of(subject):
                task.on_rejected(rejection)

    def note_held(self, pod: Pod, reasons: Collection[str]) -> None:
        """Tell the tasks that a pod is not tried, for these reasons; without any, that it is going to be."""
        for task in self.tasks:
            with self._faults.of(f"pod {pod}"):
                task.on_held(pod, reasons)

    async def before_preempt(self, pod: Pod, nodes: Collection[str], snapshot: Snapshot) -> None:
        """Tell the tasks that the scheduler of a pod would evict others on these nodes of a snapshot."""
        self._note_told()
        self.asked.remember(pod, snapshot)
        for task in self.tasks:
            with self._faults.of(f"pod {pod}"):
                await task.before_preempt(pod, nodes)

    async def allowed(self, pod: Pod, offered: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Tell the tasks whom preempt has chosen; returns the evictions that all tasks allow."""
        self._note_told()
        for task in self.tasks:
            with self._faults.of(f"pod {pod}"):
                offered = await task.allowed(pod, offered)
        for task in self.tasks if offered else ():
            task.on_victims(pod)
        return offered

    def make_way(self, uid: str) -> bool:
        """Whether a task ends something now that kept the pod of this uid from being bound."""
        return any(task.make_way(uid) for task in self.tasks)

    def note_bind_failed(self, uid: str, node: str, error: BindError) -> None:
        """Tell the tasks that the pod of this uid was not bound to a node."""
        self._note_told()
        for task in self.tasks:
            with self._faults.of(f"pod {uid}"):
                task.on_bind_failed(uid, node, error)

    def judge_anew(self, pod: Pod) -> None:
        """Tell the tasks that a rejected pod may fit now, although no snapshot says so."""
        self._note_told()
        for task in self.tasks:
            task.judge_anew(pod)

    def note_woken(self, pod: Pod) -> None:
        """Tell the tasks that one of them has woken a pod."""
        self._note_told()
        for task in self.tasks:
            task.on_woken(pod)

    def note_released(self, controller: str) -> None:
        """Tell the tasks that a controller has released a claim."""
        self._note_told()
        for task in self.tasks:
            task.on_released(controller)

    async def prepare(self, pod: Pod) -> None:
        """Let the tasks do at once what a pod of a simulation would wait for."""
        for task in self.tasks:
            await task.prepare(pod)

    async def run(self) -> None:
        """Give the tasks their turns until `finish` is called."""
        self._run = asyncio.current_task()
        clock = asyncio.get_running_loop().time
        told = happened = due = all_due = clock()
        wanted: list[float] = []
        try:
            with self._state.telling(self._note_happening):
                while (has_news := await self._pause(due)) is not None:
                    now = clock()
                    if has_news:
                        told = happened = now
                    if has_news or not wanted or now >= all_due:
                        tasks, all_due = self.tasks, now + LONGEST_SECONDS
                    else:
                        tasks = [task for task, at in zip(self.tasks, wanted, strict=False) if at <= now]
                    await self.tick(TURN_SECONDS, tasks)
                    ended = clock()
                    if ended - now > _WORK_SECONDS:
                        happened = ended
                    wanted = self._wanted(ended) if ended - told >= REST_SECONDS else []
                    rest = min(REST_SECONDS, _REST_SHARE * (ended - happened))
                    due = min(all_due, max(ended + rest, min(wanted, default=ended)))
        except asyncio.CancelledError:
            for each in self._rounds:
                each.cancel()
            raise

    def _wanted(self, now: float) -> list[float]:
        """When each task may have something to do although nothing happens."""
        with self._faults.of("the times of background tasks"):
            return [now + task.idle_seconds for task in self.tasks]
        return [now for _ in self.tasks]

    async def _pause(self, due: float) -> bool | None:
        """Wait for a pause, and for more of them while nothing happens and it is not time.

        Returns:
            whether something has happened; None: no turn is to begin any more.
        """
        clock = asyncio.get_running_loop().time
        began, pauses = clock(), 1
        while True:
            await self._sleep(began + pauses * PAUSE_SECONDS)
            if self._is_stopping:
                return None
            if (has_news := self._has_news()) or clock() >= due:
                return has_news
            rest = max(pauses + 1, _pauses(due - began))
            self._is_resting = True
            await self._sleep(began + rest * PAUSE_SECONDS)
            self._is_resting = False
            pauses = min(rest, max(pauses + 1, _pauses(clock() - began)))

    async def _sleep(self, until: float) -> None:
        """Sleep until some time, until the service stops, or, while this rests, until something happens."""
        loop = asyncio.get_running_loop()
        if self._is_stopping or until <= loop.time():
            return
        self._awake.clear()
        timer = loop.call_at(until, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()

    def _note_told(self) -> None:
        self._is_told = True
        self._note_happening()

    def _note_happening(self) -> None:
        """Something has happened: the next turn comes after the pause that goes on."""
        if self._is_resting:
            self._awake.set()

    def _has_news(self) -> bool:
        """Whether something has happened since this was asked last, or a task has begun something."""
        snapshot, has_begun = self._state.snapshot, bool(self._rounds or self.unfinished)
        before, self._seen = self._seen, (snapshot.version, snapshot.answers, self._state.not_ready, has_begun)
        is_told, self._is_told = self._is_told, False
        return is_told or has_begun or before != self._seen

    async def finish(self, seconds: float) -> int:
        """Begin no turn any more, let what was begun come to its end, and give the leases back.

        Returns:
            how much has not ended in time. It is cut off: the next process, or another replica, goes on with it.
        """
        self._is_stopping = True
        self._awake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while begun := self._begun():
                    await asyncio.wait(begun)
                await asyncio.gather(*map(_release, self.leases))
        begun = self._begun()
        for each in begun:
            each.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        return len(begun)

    @property
    def unfinished(self) -> list[asyncio.Task[None]]:
        """What the tasks have begun, and what goes on between the turns."""
        return [work for task in self.tasks for work in task.unfinished]

    def _begun(self) -> list[asyncio.Task[None]]:
        """The rounds, and what their turns have begun."""
        run = [] if self._run is None or self._run.done() else [self._run]
        return [*run, *self._rounds, *self.unfinished]

    async def tick(self, seconds: float | None = None, tasks: Sequence[BackgroundTask] | None = None) -> None:
        """Give each task a turn, unless its last one goes on. What fails in one task keeps no other from its work.

        The turns are given one after the other. If one waits for something, and the time for that is over, it goes on
        beside those that are left: however many tasks wait, the others have their turns.

        Args:
            seconds: how long to wait for all turns; None: until they are over.
            tasks: get a turn; None: all do.
        """
        clock = asyncio.get_running_loop().time
        left, until = deque(self.tasks if tasks is None else tasks), None if seconds is None else clock() + seconds
        while left:
            turns, left = left, deque()
            round_ = asyncio.create_task(self._round(turns))
            self._rounds.add(round_)
            round_.add_done_callback(self._rounds.discard)
            while not round_.done():
                begun = self._turns_begun
                await asyncio.wait([round_], timeout=None if until is None else max(0.0, until - clock()))
                if begun == self._turns_begun and not round_.done():
                    left = deque(turns)
                    turns.clear()
                    break

    async def _round(self, turns: deque[BackgroundTask]) -> None:
        """Give tasks their turns, as long as there are some. Calls on the event loop come in between."""
        clock = asyncio.get_running_loop().time
        since = clock()
        while turns:
            task = turns.popleft()
            if task in self._in_turn:
                continue
            self._turns_begun += 1
            self._in_turn.add(task)
            try:
                with self._faults.of(type(task).__name__):
                    await task.tick()
            finally:
                self._in_turn.discard(task)
            if clock() - since >= _YIELD_SECONDS:
                await asyncio.sleep(0)
                since = clock()


def _pauses(seconds: float) -> int:
    """The number of pauses that take some seconds."""
    return math.ceil(seconds / PAUSE_SECONDS)


async def _release(lease: SharedLease) -> None:
    with suppress(WriteRefusedError, OutcomeUnknownError):  # it expires otherwise
        await lease.release()
