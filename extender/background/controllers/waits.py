"""Controller waits: pods that controllers keep from nodes. The controllers are asked again from time to time.

If a controller then accepts a node that it has refused, the pod is judged anew, and woken if it fits.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sys import intern
from typing import Final

from extender.background.controllers.work import ControllerWork
from extender.background.task import BackgroundTask, Found, Rejection
from extender.fairness.fair_memory import FairMemory
from extender.faults import Faults
from extender.negotiation.negotiation import Negotiation
from extender.pods.decision_case import refreshed
from extender.state.cluster_state import ClusterState
from extender.state.kinds import Topic
from extender.state.objects.pods import Pod
from extender.state.snapshot import Snapshot

_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""Pauses between questions about a pod. The pause doubles each time."""

_MOST_PODS: Final = 1024
_MOST_AT_ONCE: Final = 8
"""Questions to one controller that run at the same time."""


@dataclass(slots=True)
class _Waiting:
    """A pod that waits for controllers.

    Attributes:
        names: the nodes that filter was asked about.
        refused: controllers, with the nodes that they refuse.
        again: when to ask again, by the clock.
        pause: the seconds until the time after that.
    """

    pod: Pod
    names: Sequence[str]
    refused: Mapping[str, frozenset[str]]
    again: float
    pause: float = _PAUSE_SECONDS


class ControllerWaits(BackgroundTask):
    """Asks controllers again for pods that wait for them.

    Args:
        state: the cluster.
        negotiation: asks the controllers.
        clock: measures durations, in seconds.
        faults: gets unexpected errors, each with its pod.
        judge_anew: told of each pod that may fit now.
    """

    def __init__(
        self,
        state: ClusterState,
        negotiation: Negotiation,
        clock: Callable[[], float],
        faults: Faults,
        judge_anew: Callable[[Pod], None],
    ) -> None:
        self._state = state
        self._negotiation = negotiation
        self._clock = clock
        self._work = ControllerWork[str](faults, _MOST_AT_ONCE)
        self._judge_anew = judge_anew
        self._waiting = FairMemory[_Waiting](_MOST_PODS)
        self._seen = 0

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """Questions."""
        return self._work.running

    def waiting(self) -> Mapping[str, int]:
        """The number of pods that wait for each controller."""
        return Counter(name for each in self._waiting.values() for name in each.refused)

    def released(self, controller: str) -> None:
        """A controller has released a claim: all pods that wait for it may be helped."""
        for each in self._waiting.values():
            if controller in each.refused:
                each.again, each.pause = self._clock(), _PAUSE_SECONDS

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod, if controllers keep it from nodes."""
        if not rejection.snapshot.controllers:
            return
        pod = rejection.pod
        refused = self._negotiation.refused_by(pod, rejection.names)
        last = self._waiting.pop(pod.uid)
        if refused:
            pause = last.pause if last else _PAUSE_SECONDS
            again = min(last.again if last else math.inf, self._clock() + pause)
            waiting = _Waiting(rejection.sent, tuple(map(intern, rejection.names)), refused, again, pause)
            self._waiting.keep(pod.namespace, pod.uid, waiting)

    def on_found(self, pod: Pod, snapshot: Snapshot) -> Found:
        """Remember the pod, if controllers may keep it from nodes."""
        if not snapshot.controllers or pod.uid in self._waiting:
            return Found.KNOWN
        names = tuple(snapshot.nodes)
        refused = dict.fromkeys(self._negotiation.awaited(pod), frozenset(names))
        if refused and not self._waiting.has_room(pod.namespace):
            return Found.FULL
        if refused:
            self._waiting.keep(pod.namespace, pod.uid, _Waiting(pod, names, refused, self._clock()))
        return Found.KNOWN

    def missed(self) -> Collection[str]:
        """The namespaces of which pods were forgotten, once there is room."""
        has_room = any(map(self._waiting.has_room, self._waiting.forgotten))
        return self._waiting.look_again() if has_room else ()

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node."""
        self._waiting.pop(pod.uid)

    async def tick(self) -> None:
        """Begin to ask for pods that are due. The answers come between the turns."""
        self._negotiation.sweep()
        if not self._waiting or self._state.not_ready:
            return
        now, snapshot = self._clock(), self._state.snapshot
        self._hear(snapshot, now)
        for uid in [uid for uid in self._waiting if (pod := snapshot.pod(uid)) is None or not pod.is_pending]:
            self._waiting.pop(uid)
        due = sorted((each for each in self._waiting.values() if each.again <= now), key=lambda each: each.again)
        for each in due:
            if each.pod.uid not in self._work and self._work.has_room(each.refused):
                self._work.begin(each.pod.uid, f"pod {each.pod}", tuple(each.refused), partial(self._ask, each))

    def _hear(self, snapshot: Snapshot, now: float) -> None:
        """A controller has answered by a PodSchedulingContext: its pod is asked for at once."""
        changes = self._state.changes_since(self._seen) or ()
        self._seen = snapshot.version
        keys = {each.key for each in changes if each.topic is Topic.CONTEXT}
        for each in self._waiting.values() if keys else ():
            if each.pod.key in keys:
                each.again = now

    async def _ask(self, each: _Waiting) -> None:
        each.again, each.pause = self._clock() + each.pause, min(2 * each.pause, _LONGEST_PAUSE_SECONDS)
        pod = refreshed(each.pod, self._state.snapshot)
        await self._negotiation.ask(pod, each.names, anew=True, may_wait=True)
        before, each.refused = each.refused, self._negotiation.refused_by(pod, each.names)
        if any(before[name] - each.refused.get(name, frozenset()) for name in before):
            self._judge_anew(pod)
