"""Leased work: one replica at a time serves what waits. What needs a controller goes on between the turns."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Generic, TypeVar

from extender.cluster.objects.pods import Pod
from extender.cluster.writes.lease import SharedLease
from extender.framework.bind_errors import ControllerRefusesError
from extender.framework.decisions.solver import Solver
from extender.framework.pods.negotiated_claims import awaited
from extender.framework.rejected_pods import AGAIN_SECONDS, LONGEST_SECONDS, LOOK_SECONDS, RejectedPod
from extender.framework.task import ControllerWork
from extender.kube.api import OutcomeUnknownError, WriteRefusedError
from extender.tools.fairness import Turns

_CONTROLLER_SECONDS: Final = 30.0
"""The longest pause between two tries of what needs a controller. No event says that a controller can allocate now."""

_WRITE_SECONDS: Final = 10.0
"""The longest pause after a write that failed. No event says that the API server takes writes again."""

_MOST_AT_ONCE: Final = 16
"""Pieces that wait for one controller at the same time."""

PIECE_SECONDS: Final = 0.1
"""How long a turn waits for one piece. A piece that takes longer goes on after the turn."""

MOST_LONG: Final = 16
"""Pieces that go on after the turn, without a controller; of each namespace, there is one at most."""


@dataclass(slots=True)
class WaitingWork:
    """A pod or a claim that is to be served.

    Attributes:
        subject: the object, as `extender.tools.faults` names it.
        rejected: its pod, or the stand-in of a claim; and when to try it again.
        since: when it was found.
        reason: why the last try failed; empty if there was no try.
        heeds_changes: changes of the cluster may help. False after a failed write, and if a controller does not
            allocate: its own assumed allocation, or its own mark, came and went, and that is a change, too.
        is_unwritten: the last try failed because of a write.
    """

    subject: str
    rejected: RejectedPod
    since: datetime
    reason: str = ""
    heeds_changes: bool = True
    is_unwritten: bool = False

    @property
    def uid(self) -> str:
        """The uid of the pod, or of the stand-in."""
        return self.rejected.pod.uid

    @property
    def was_tried(self) -> bool:
        """Whether it has been served, perhaps in vain, or is being served."""
        return self.rejected.again < math.inf

    def fail(self, error: Exception) -> None:
        """A try has failed."""
        self.reason = str(error)
        self.is_unwritten = isinstance(error, WriteRefusedError | OutcomeUnknownError)
        self.heeds_changes = not (self.is_unwritten or isinstance(error, ControllerRefusesError))

    def is_due(self, now: float, *, is_helped: bool) -> bool:
        """Whether it is time to try again; ``is_helped``: a change of the cluster may help."""
        return self.rejected.again <= now or (self.heeds_changes and is_helped)


_W = TypeVar("_W", bound=WaitingWork)


class LeasedWork(Generic[_W]):
    """Serves what is due, while this replica holds the lease.

    Args:
        lease: this replica holds it while it serves.
        solver: has the clock and the faults.
        awaited: the controllers that a pod, or a stand-in, waits for while it is served.
        serve: serves one.
    """

    def __init__(
        self,
        lease: SharedLease,
        solver: Solver,
        awaited: Callable[[Pod], Collection[str]],
        serve: Callable[[_W], Awaitable[None]],
    ) -> None:
        self._awaited = awaited
        self._lease = lease
        self._solver = solver
        self._serve = serve
        self._work = ControllerWork[str](solver.faults, _MOST_AT_ONCE)
        self._turns = Turns(solver.clock)
        self._again = 0.0
        """When to try to take the lease again, by the solver's clock."""
        self._long: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """By uid: the namespace, and the piece that is served."""
        self._asking: dict[str, str] = {}
        """By uid: the namespace of a piece that waits for controllers."""

    def __contains__(self, each: _W) -> bool:
        """Whether it is being served, and takes its time."""
        return self.has(each.uid)

    def has(self, uid: str) -> bool:
        """Whether the work of this uid is being served, and takes its time."""
        return uid in self._work or uid in self._long

    def was_in_vain(self, each: _W) -> bool:
        """Whether it was served in vain, and is not being served: it may give its place to another."""
        return each.rejected.was_judged and each not in self

    @property
    def running(self) -> Sequence[asyncio.Task[None]]:
        """The work that goes on between the turns."""
        return [*self._work.running, *(task for _, task in self._long.values())]

    @property
    def has_lease(self) -> bool:
        """Whether this replica has the lease, which it gives back after a while."""
        return self._lease.is_held

    async def turn(self, due: Sequence[_W]) -> None:
        """Serve what is due in fair turns of the namespaces, as long as there is time.

        Args:
            due: in the order that counts while no namespace has used much time. What is being served is left alone.
        """
        due = [each for each in due if each not in self]
        if not await self._may_serve(due):
            return
        until = self._solver.clock() + LOOK_SECONDS
        for each in self._turns.ordered(due, lambda work: work.rejected.pod.namespace):
            await self._begin(each)
            if self._solver.clock() > until:
                return

    async def _may_serve(self, due: Sequence[_W]) -> bool:
        """Whether this replica holds the lease. After a while without work, it gives the lease back.

        What is due stays due while the lease cannot be had: that says nothing about the next try.
        """
        if self._solver.clock() < self._again:
            return False
        try:
            if due or self.running:
                return await self._lease.take()
            await self._lease.give_back()
        except (WriteRefusedError, OutcomeUnknownError) as error:
            self._again = self._solver.clock() + AGAIN_SECONDS
            for each in due:
                each.reason = str(error)
        return False

    async def _begin(self, each: _W) -> None:
        """Serve one. If it needs a controller or takes long, that goes on after the turn; without room, it waits."""
        controllers = self._awaited(each.rejected.pod)
        if not (self._has_controllers(controllers, each) if controllers else self._has_room(each)):
            return
        each.rejected.postpone(self._solver.clock(), _CONTROLLER_SECONDS if controllers else LONGEST_SECONDS)
        if controllers:
            each.reason = each.reason or ", ".join(awaited(name).in_words() for name in sorted(controllers))
            self._asking[each.uid] = each.rejected.pod.namespace
            self._work.begin(each.uid, each.subject, controllers, partial(self._served, each))
            return
        task = asyncio.create_task(self._served(each))
        self._long[each.uid] = each.rejected.pod.namespace, task
        task.add_done_callback(lambda _: self._long.pop(each.uid))
        await asyncio.wait([task], timeout=PIECE_SECONDS)

    def _has_controllers(self, controllers: Collection[str], each: _W) -> bool:
        """Whether one more piece may wait for controllers. A namespace leaves others as many places as it has."""
        self._asking = {uid: namespace for uid, namespace in self._asking.items() if uid in self._work}
        own = sum(namespace == each.rejected.pod.namespace for namespace in self._asking.values())
        return self._work.has_room(controllers) and own < max(1, _MOST_AT_ONCE - len(self._asking))

    def _has_room(self, each: _W) -> bool:
        """Whether one more piece may take long."""
        namespaces = [namespace for namespace, _ in self._long.values()]
        return len(namespaces) < MOST_LONG and each.rejected.pod.namespace not in namespaces

    async def _served(self, each: _W) -> None:
        with self._turns.of(each.rejected.pod.namespace), self._solver.faults.of(each.subject):
            await self._serve(each)
            if each.is_unwritten:
                each.rejected.again = min(each.rejected.again, self._solver.clock() + _WRITE_SECONDS)
