"""Records of who asks this process: which schedulers, and which pods the background tasks may know."""

import math
from collections.abc import Callable, Collection
from typing import Final

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.task import share_of
from extender.tools.fairness import FairMemory

_MOST_SCHEDULERS: Final = 1024
"""Schedulers that are remembered. Their names come with the calls."""

_MOST_PODS: Final = 16_384
"""Pods that are remembered: more than any task remembers, so that each task hears of the end of what it knows."""


class Asked:
    """The schedulers that ask this process, and the pods that have not simply passed.

    Most pods pass filter at once, and no task knows them.

    Attributes:
        named: the schedulers that call the extender, by the settings; empty: not known.
        schedulers: those that have asked, the first one first.
        at: when the last one has asked, by the clock; minus infinity: none has.

    Args:
        clock: measures durations, in seconds.
    """

    def __init__(self, clock: Callable[[], float], named: Collection[str] = ()) -> None:
        self._clock = clock
        self.named = named
        self._pods = FairMemory[str](_MOST_PODS)
        self.schedulers: dict[str, None] = {}
        self.at = -math.inf
        self._early = -math.inf

    def note_early(self) -> None:
        """A scheduler asks about a pod whose claims are not made yet."""
        self._early = self._clock()

    @property
    def seconds_since(self) -> float:
        """Since a scheduler has asked; infinite: none has."""
        return self._clock() - self.at

    @property
    def seconds_since_early(self) -> float:
        """Since a scheduler has asked about such a pod; infinite: none has."""
        return self._clock() - self._early

    def note(self, pod: Pod) -> None:
        """A scheduler asks about a pod."""
        self.at = self._clock()
        if pod.scheduler_name not in self.schedulers:
            if len(self.schedulers) >= _MOST_SCHEDULERS:
                del self.schedulers[next(iter(self.schedulers))]
            self.schedulers[pod.scheduler_name] = None

    def may_be_known(self, uid: str) -> bool:
        """Whether a task may remember something of the pod of this uid."""
        return uid in self._pods

    def remember(self, pod: Pod, snapshot: Snapshot) -> None:
        """The tasks are told of a pod, on a snapshot."""
        self._pods.keep(share_of(pod, snapshot), pod.uid, pod.uid)
