"""Nodes where a ResourceQuota leaves no room for the special claim that a pod would get there.

dra-extender does not follow ResourceQuotas: the API server compares the claim when a bind makes it. What the claim asks
for may differ from node to node, so another node may do. Filter then passes over the node while another node suits.
Otherwise the pod would be tried on the same node for ever, and its scheduler would spend its turns on it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from allocator import Clock, Reason
from allocator.reason import Cause
from extender.cluster.objects.pods import Pod
from extender.tools.fairness.fair_memory import FairMemory

OVER_QUOTA: Final = Reason(Cause("quota", "a ResourceQuota has no room for the claim that the pod would get there"))
"""Why filter passes over a node while another node suits."""

FIRST_PAUSE: Final = 10.0
MOST_PAUSE: Final = 300.0
"""Seconds for which a node is passed over; twice as long after each refusal."""

MOST_PODS: Final = 1024
"""Pods that are remembered, in shares by namespace."""

MOST_NODES: Final = 64
"""Nodes that are remembered for a pod, those of the latest binds."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """For how many seconds a node is passed over, and until when."""

    seconds: float
    until: float


class OverQuotaNodes:
    """The nodes that filter passes over, for each pod.

    Args:
        clock: seconds, from any point.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods = FairMemory[Mapping[str, _Pause]](MOST_PODS)

    def note(self, pod: Pod, node: str) -> None:
        """A quota has refused the claim with which the pod was to be bound to a node."""
        known = dict(self._pods.get(pod.uid) or {})
        before = known.pop(node, None)
        seconds = FIRST_PAUSE if before is None else min(2 * before.seconds, MOST_PAUSE)
        known[node] = _Pause(seconds, self._clock() + seconds)
        if len(known) > MOST_NODES:
            del known[next(iter(known))]
        self._pods.keep(pod.namespace, pod.uid, known)

    def among(self, pod: Pod, names: Collection[str]) -> frozenset[str]:
        """Those of the nodes that are passed over for the pod now."""
        known = self._pods.get(pod.uid)
        if known is None:
            return frozenset()
        now = self._clock()
        return frozenset({name for name, pause in known.items() if now < pause.until}.intersection(names))
