"""Pods whose claims a ResourceQuota has refused: who of them may have devices kept, although it may be in vain.

dra-extender does not follow ResourceQuotas, so nothing says that one of them has room again. A claim of the namespace
that is gone is a sign of it; otherwise only another try tells.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from allocator import Clock
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach
from extender.framework.passed_over_nodes import FIRST_PAUSE, MOST_PAUSE, MOST_PODS
from extender.framework.pods.extended_resources import wanted
from extender.tools.fairness import FairMemory

TURN_SECONDS: Final = 30.0
"""From one pod of a namespace to the next one, if the first one gets no claim. Devices are kept for half of this time
at most."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """A pod of which a quota has refused a claim, or that has had a turn in place of such a pod.

    Attributes:
        pause: seconds from its latest refusal for which nothing is kept.
        until: when that ends.
        turn: when devices were kept for it last.
    """

    pause: float = 0.0
    until: float = -math.inf
    turn: float = -math.inf


class OverQuota:
    """Pods for which no devices are kept, because a ResourceQuota refuses their claims.

    After a pause such a pod may have devices kept again: of each namespace one pod at a time. A pod that was not
    refused yet, and whose claim is made at bind, waits for the same turns.

    Args:
        clock: seconds, from any point.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods = FairMemory[_Refused](MOST_PODS)

    def __len__(self) -> int:
        """The number of pods that are remembered."""
        return len(self._pods)

    def note(self, pod: Pod) -> None:
        """A quota has refused a claim of a pod. The pause is twice as long after each refusal."""
        before = self._pods.get(pod.uid) or _Refused()
        pause = min(2 * before.pause, MOST_PAUSE) if before.pause else FIRST_PAUSE
        self._pods.keep(pod.namespace, pod.uid, _Refused(pause, self._clock() + pause, before.turn))

    def take_turn(self, pod: Pod) -> bool:
        """Whether devices may be kept for a pod now. If its namespace has turns, this is its turn."""
        known, now = self._pods.get(pod.uid), self._clock()
        others = self._pods.of_namespace(pod.namespace)
        if known is None and not (others and wanted(pod)):
            return True
        known = known or _Refused()
        if now < known.until or any(now < each.turn + TURN_SECONDS for _, each in others):
            return False
        self._pods.keep(pod.namespace, pod.uid, replace(known, turn=now))
        return True

    def follow(self, reach: Reach, before: Snapshot, after: Snapshot) -> None:
        """Forget pods that have their claims or are gone. End the pauses where a claim of the namespace is gone.

        Args:
            reach: of all changes between the two snapshots.
            before: the cluster at the last call.
            after: the cluster as it is now.
        """
        for uid in list(self._pods):
            pod = after.pod(uid)
            if pod is None or not pod.is_pending or after.special_claims(uid):
                self._pods.pop(uid)
        for namespace in self._relieved(reach, before, after):
            for uid, each in self._pods.of_namespace(namespace):
                if each.pause:
                    self._pods.replace(uid, _Refused(turn=each.turn))

    def _relieved(self, reach: Reach, before: Snapshot, after: Snapshot) -> Iterable[str]:
        """The namespaces that may have given back what a quota counts."""
        changed = reach.keys(Topic.CLAIM)
        if changed is None:
            return self._pods.namespaces
        found = set()
        for key in changed:
            old, new = before.claims.get(key), after.claims.get(key)
            if old is not None and (new is None or new.claim.uid != old.claim.uid):
                found.add(key.namespace)
        return found
