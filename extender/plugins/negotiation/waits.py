"""Controller waits: pods that controllers keep from nodes. The controllers are asked again from time to time.

If a controller then accepts a node that it has refused, the pod is judged anew, and woken if it fits.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import refreshed
from extender.framework.pods.claims import Blocked, claims_of
from extender.framework.task import UNTIL_NEWS, BackgroundTask, ControllerWork, Found, NodeLists, Rejection, share_of
from extender.plugins.negotiation.known_controller import MOST_AT_ONCE
from extender.plugins.negotiation.negotiation import Negotiation
from extender.tools.fairness import ReportingMemory
from extender.tools.faults import Faults

_PAUSE_SECONDS: Final = 1.0
_SHORT_PAUSE_SECONDS: Final = 3.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""Pauses between questions about a pod. The pause doubles each time: up to the short one if few pods wait for the
controller, and up to the longest one if many do."""

_QUESTIONS_A_SECOND: Final = 4
"""One controller is asked so often, however many pods wait, unless each of them has waited for the longest pause."""

_MOST_PODS: Final = 1024


@dataclass(slots=True)
class _Waiting:
    """A pod that waits for controllers.

    Attributes:
        names: the nodes that filter was asked about, and those where the pod's scheduler would evict others. They are
            asked about together, because an answer takes the place of the one before.
        refused: controllers, with the nodes that they refuse. Empty: the pod's claims are not there, so nobody knows
            which controllers serve it.
        again: when to ask again, by the clock.
        pause: the seconds until the time after that.
        for_preempt: a call of preempt has not waited for the answer. The next answers are asked for as long as the pod
            waits, also if no controller refuses a node: nothing but time makes the scheduler call again.
    """

    pod: Pod
    names: Sequence[str]
    refused: Mapping[str, frozenset[str]]
    again: float
    pause: float = _PAUSE_SECONDS
    for_preempt: bool = False


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
        self._work = ControllerWork[str](faults, MOST_AT_ONCE)
        self._judge_anew = judge_anew
        self._waiting = ReportingMemory[_Waiting](_MOST_PODS)
        self._lists = NodeLists()
        self._seen = 0
        self._numbers: Counter[str] = Counter()
        self._asked: dict[str, float] = {}
        """By controller, when it was asked last, by the clock."""
        self._turn = 0
        self._served: dict[str, int] = {}
        """By namespace, the number of its latest turn."""

    @property
    def unfinished(self) -> Sequence[asyncio.Task[None]]:
        """Questions, also those for which filter has not waited."""
        return [*self._work.running, *self._negotiation.running]

    def waiting(self) -> Counter[str]:
        """The number of pods that wait for each controller."""
        return Counter(name for each in self._waiting.values() for name, nodes in each.refused.items() if nodes)

    def on_released(self, controller: str) -> None:
        """All pods that wait for the controller may be helped."""
        for each in self._waiting.values():
            if controller in each.refused:
                each.again, each.pause = self._clock(), _PAUSE_SECONDS

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod, if controllers keep it from nodes."""
        if rejection.snapshot.controllers:
            self._remember(rejection.pod, self._names(rejection.pod, rejection.names))

    async def before_preempt(self, pod: Pod, nodes: Collection[str]) -> None:
        """Ask about the nodes where a scheduler would evict others: filter is not asked about a node that lacks CPU."""
        if not self._state.snapshot.controllers:
            return
        names = self._names(pod, nodes)
        before = self._negotiation.refused_by(pod, names)
        await self._negotiation.ask(pod, names, in_verb=True)
        self._remember(pod, names, for_preempt=self._negotiation.is_asking(pod))
        if before != self._negotiation.refused_by(pod, names):
            self._judge_anew(pod)

    def _names(self, pod: Pod, names: Collection[str]) -> Sequence[str]:
        """The given nodes, and those of the cluster with which the pod is remembered."""
        last, there = self._waiting.get(pod.uid), self._state.snapshot.nodes
        before = () if last is None else (each for each in last.names if each in there)
        return tuple(dict.fromkeys((*names, *before)))

    def _remember(self, pod: Pod, names: Sequence[str], *, for_preempt: bool = False) -> None:
        """Remember a pod, if controllers keep it from nodes, or may do so once its claims are there."""
        last = self._waiting.pop(pod.uid)
        for_preempt = for_preempt or (last is not None and last.for_preempt)
        refused, snapshot = self._refused(pod, names, for_preempt=for_preempt), self._state.snapshot
        if refused or isinstance(claims_of(refreshed(pod, snapshot), snapshot), Blocked):
            pause = last.pause if last else _PAUSE_SECONDS
            # What a verb has not waited for is heard as soon as it is there.
            again = self._clock() + (0.0 if self._negotiation.is_asking(pod) else pause)
            again = min(last.again if last else math.inf, again) if refused else math.inf
            waiting = _Waiting(pod, self._lists.shared(names), refused, again, pause, for_preempt)
            self._waiting.keep(share_of(pod, snapshot), pod.uid, waiting)

    def _refused(self, pod: Pod, names: Sequence[str], *, for_preempt: bool) -> Mapping[str, frozenset[str]]:
        """The controllers that are to be asked again, with the nodes that they refuse."""
        refused = self._negotiation.refused_by(pod, names)
        return dict.fromkeys(self._negotiation.awaited(pod), frozenset()) | refused if for_preempt else refused

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
        return self._waiting.missed()

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node."""
        self._waiting.pop(pod.uid)

    @property
    def idle_seconds(self) -> float:
        """Until a pod is rejected, if none waits and there is no controller."""
        return 0.0 if self._waiting or self._negotiation.controllers else UNTIL_NEWS

    async def tick(self) -> None:
        """Begin to ask for pods that are due. The answers come between the turns."""
        self._negotiation.sweep()
        if self._state.not_ready:
            return
        if not self._waiting:
            self._seen = self._state.snapshot.version
            return
        now, snapshot = self._clock(), self._state.snapshot
        self._note_answered_contexts(snapshot, now)
        for uid, each in self._waiting.items():
            if not self._state.still_waits(each.pod):
                self._waiting.pop(uid)
        for uid, each in self._waiting.items():
            if not each.refused and not self._finds_controllers(each, now):
                self._waiting.pop(uid)
        self._numbers = self.waiting()
        namespaces = set(self._waiting.namespaces)
        self._served = {name: turn for name, turn in self._served.items() if name in namespaces}
        # Perhaps a caller has made up a pod that the watch has not shown yet: no controller is asked about it.
        shown = [each for each in self._waiting.values() if each.refused and snapshot.pod(each.pod.uid) is not None]
        for each in (*self._in_turns([each for each in shown if each.again <= now]), *self._probes(shown, now)):
            if each.pod.uid not in self._work and self._work.has_room(each.refused, self._negotiation.at_once):
                self._turn += 1
                self._asked |= dict.fromkeys(each.refused, now)
                self._served[each.pod.namespace] = self._turn
                self._work.begin(each.pod.uid, f"pod {each.pod}", tuple(each.refused), partial(self._ask_again, each))

    def _finds_controllers(self, each: _Waiting, now: float) -> bool:
        """Look which controllers serve a pod whose claims were not there; False: none does."""
        snapshot = self._state.snapshot
        pod = refreshed(each.pod, snapshot)
        if isinstance(claims_of(pod, snapshot), Blocked):
            return True
        each.refused, each.again = dict.fromkeys(self._negotiation.awaited(pod), frozenset(each.names)), now
        return bool(each.refused)

    def _note_answered_contexts(self, snapshot: Snapshot, now: float) -> None:
        """A controller has answered, or may have, by a PodSchedulingContext: its pod is asked for at once."""
        keys = self._state.since(self._seen).keys(Topic.CONTEXT)
        self._seen = snapshot.version
        for each in self._waiting.values() if keys is None or keys else ():
            if keys is None or each.pod.key in keys:
                each.again = now

    def _in_turns(self, due: Iterable[_Waiting]) -> Sequence[_Waiting]:
        """Pods for which no question runs: the first of each namespace, then the second of each, and so on.

        The namespace that was served longest ago is first. Of one namespace, the pod that is due longest is first.
        """
        numbers: Counter[str] = Counter(each.pod.namespace for each in due if each.pod.uid in self._work)
        turns = []
        for each in sorted(due, key=lambda each: each.again):
            if each.pod.uid not in self._work:
                namespace = each.pod.namespace
                turns.append((numbers[namespace], self._served.get(namespace, 0), each))
                numbers[namespace] += 1
        return [each for *_, each in sorted(turns, key=lambda turn: turn[:2])]

    def _probes(self, pods: Iterable[_Waiting], now: float) -> Sequence[_Waiting]:
        """One of these pods for each controller that was not asked lately, and for which the pod waits.

        If its answer has changed, it is asked about the other pods, too.
        """
        quiet = {name for name in self._numbers if self._asked.get(name, 0.0) + _SHORT_PAUSE_SECONDS <= now}
        quiet -= {name for name in quiet if self._negotiation.tells_changes(name)}
        found: dict[str, _Waiting] = {}
        for each in self._in_turns(pods) if quiet else ():
            for name in quiet & each.refused.keys():
                found.setdefault(name, each)
        return tuple(found.values())

    def _longest_pause(self, controllers: Iterable[str]) -> float:
        """The longest pause between questions about a pod: longer, the more pods wait for its controllers."""
        if any(map(self._negotiation.tells_changes, controllers)):
            return _LONGEST_PAUSE_SECONDS
        pods = max((self._numbers[name] for name in controllers), default=0)
        return min(_LONGEST_PAUSE_SECONDS, max(_SHORT_PAUSE_SECONDS, pods / _QUESTIONS_A_SECOND))

    async def _ask_again(self, each: _Waiting) -> None:
        each.pause = min(each.pause, longest := self._longest_pause(each.refused))
        each.again, each.pause = self._clock() + each.pause, min(2 * each.pause, longest)
        pod = refreshed(each.pod, self._state.snapshot)
        await self._negotiation.ask(pod, each.names, anew=True, may_wait=True)
        before, each.refused = each.refused, self._refused(pod, each.names, for_preempt=each.for_preempt)
        accepting = {name for name in before if before[name] - each.refused.get(name, frozenset())}
        if accepting:
            self._judge_anew(pod)
            for other in self._waiting.values():
                if not accepting.isdisjoint(other.refused):
                    other.again = min(other.again, self._clock())
        if not each.refused and self._waiting.get(pod.uid) is each:
            self._waiting.pop(pod.uid)  # it waits for something else
