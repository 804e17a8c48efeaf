"""Rejected pods, and which of them would fit now, in their order of priority."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.queueing_hints import QueueingHint

PATIENCE: Final = timedelta(seconds=5)
"""A pod that finds a node within this is not told of: its claim was not made yet, or devices were just released."""


MOST_AT_ONCE: Final = 10
"""Pods woken in one look."""


LOOK_SECONDS: Final = 0.5
"""How long one look may take; what it has not got to is for the next."""


POD_SECONDS: Final = 0.25
"""How long one look at one pod may take. The next look at the pod goes on where this one ended."""


AGAIN_SECONDS: Final = 2.0
"""A pod whose search was stopped is tried again after this time. After each further stop, the time doubles."""


LONGEST_SECONDS: Final = 300.0
"""Between two such looks: as long as kube-scheduler itself leaves a pod that it knows no hope for."""


FIRST_BACKOFF_SECONDS: Final = 1.0
LONGEST_BACKOFF_SECONDS: Final = 10.0
"""How long kube-scheduler leaves a rejected pod alone: the time doubles with each try. As in the file that we ship."""


def backoff(tries: int) -> float:
    """Seconds until a scheduler tries a pod again. The pod was rejected ``tries`` times in a row."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(tries - 1, 30), LONGEST_BACKOFF_SECONDS)


class Attention(Enum):
    """The time at which a rejected pod is to be looked at."""

    CHANGES = "when something changes that may help it"
    RELEASE = "also when a woken pod has not taken what it was woken for"
    NOW = "in any case"


@dataclass(slots=True)
class RejectedPod:
    """A pod that filter left no node.

    Attributes:
        names: the nodes asked about, sorted; the others the scheduler had ruled out itself. None for all.
        again: when to look at it in any case, by the solver's clock.
        pause: seconds from a search that is stopped until that time.
        ready: when its scheduler will have left it in its backoff for long enough, as far as is known.
        tries: how often filter was asked about it in a row.
        since: the cluster as filter saw it, until it was compared with a later one.
    """

    pod: Pod
    names: tuple[str, ...] | None
    attention: Attention = Attention.CHANGES
    ready: float = -math.inf
    tries: int = 0
    again: float = math.inf
    pause: float = AGAIN_SECONDS
    since: Snapshot | None = None

    def turn(self, now: float) -> tuple[object, ...]:
        """The pod's place in the order in which pods are woken: by priority, by the end of its backoff, then by age.

        A pod that is woken in its backoff leaves idle what it was woken for. The first backoff does not count.
        """
        priority, created = self.pod.order[:2]
        return priority, max(self.ready, now + FIRST_BACKOFF_SECONDS), created

    @property
    def was_judged(self) -> bool:
        """Whether it has had its turn in vain, and does not wait for the next one."""
        return self.attention is not Attention.NOW

    def refuse(self, attention: Attention) -> None:
        """No node will do, as things stand."""
        self.attention, self.again, self.pause = attention, math.inf, AGAIN_SECONDS

    def postpone(self, now: float, longest: float = LONGEST_SECONDS) -> None:
        """Try the pod later: its search was stopped, and would be at once again."""
        self.attention = Attention.CHANGES
        self.again = now + self.pause
        self.pause = min(2 * self.pause, longest)

    def targets(self, pod: Pod, news: QueueingHint, every: Sequence[str]) -> Sequence[str]:
        """The nodes to look at, of all that there are."""
        is_open = self.attention is Attention.NOW or news.everywhere or pod.namespace in news.namespaces
        if is_open or (news.claims and not news.claims.isdisjoint(claim_keys(pod))):
            return every if self.names is None else self.names
        found = [name for name in news.nodes if self.is_among(name)]
        return [*found, pod.kept.node] if found and pod.kept.node and self.is_among(pod.kept.node) else found

    def is_among(self, name: str) -> bool:
        """Whether the scheduler has asked about a node."""
        return self.names is None or _has(self.names, name)


Candidate: TypeAlias = tuple[RejectedPod, Pod, Sequence[str]]
"""A rejected pod, as it is now, and nodes that may take it."""


def _has(names: Sequence[str], name: str) -> bool:
    """Whether a sorted list has a name."""
    index = bisect_left(names, name)
    return index < len(names) and names[index] == name
