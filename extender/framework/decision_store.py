"""Filter's latest results, for prioritize and bind."""

from dataclasses import dataclass

from allocator.tools import Recent
from extender.cluster.objects.pods import Pod
from extender.framework.ranking import Merits


@dataclass(frozen=True, slots=True)
class Decision:
    """The pod as filter was given it, and the merits of its nodes.

    Only a proposal: the cluster may have changed since.
    """

    pod: Pod
    merits: Merits


class DecisionStore:
    """Decisions on the pods filtered last, by the pod's uid.

    Args:
        size: the most pods to remember.
        scored: the most pods whose merits are remembered as well: prioritize comes right after filter, and there may be
            thousands of nodes.
    """

    def __init__(self, *, size: int = 1024, scored: int = 32) -> None:
        self._pods: Recent[Pod] = Recent(size)
        self._merits: Recent[Merits] = Recent(scored)

    def keep(self, decision: Decision) -> None:
        """Replace what is known of a pod."""
        uid = decision.pod.uid
        self._pods.keep(uid, decision.pod)
        if decision.merits:
            self._merits.keep(uid, decision.merits)
        else:
            self._merits.forget(uid)

    def of(self, uid: str) -> Decision | None:
        """What filter found for a pod; without merits, or None, if many pods were filtered after it."""
        pod = self._pods.find(uid)
        return None if pod is None else Decision(pod, self._merits.find(uid) or Merits())

    def drop(self, uid: str) -> None:
        """Forget a pod, which is bound or gone."""
        self._pods.forget(uid)
        self._merits.forget(uid)
