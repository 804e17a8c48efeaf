"""What filter found, kept for prioritize and bind."""

from collections import OrderedDict
from dataclasses import dataclass, field

from extender.state.objects import Pod
from extender.verbs.merits import Merits


@dataclass(frozen=True, slots=True)
class Decision:
    """The pod as filter was given it, and node name to what speaks for the node.

    A proposal: the cluster may have moved on, and who uses one checks it.
    """

    pod: Pod
    merits: Merits


@dataclass(slots=True)
class DecisionStore:
    """Decisions by the pod's uid, of the pods filtered last; those filtered longest ago are forgotten first.

    Attributes:
        size: pods to remember.
        scored: pods whose merits are remembered as well: prioritize comes right after filter, and there may be
            thousands of nodes.
    """

    size: int = 1024
    scored: int = 32
    _pods: OrderedDict[str, Pod] = field(default_factory=OrderedDict)
    _merits: OrderedDict[str, Merits] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._pods)

    def keep(self, decision: Decision) -> None:
        """Replace what is known of a pod."""
        uid = decision.pod.uid
        self.drop(uid)
        self._pods[uid] = decision.pod
        while len(self._pods) > self.size:
            self.drop(next(iter(self._pods)))
        if decision.merits:
            self._merits[uid] = decision.merits
            while len(self._merits) > self.scored:
                self._merits.popitem(last=False)

    def of(self, uid: str) -> Decision | None:
        """What filter found for a pod: after a while without merits, and None if it was too long ago, or not asked."""
        pod = self._pods.get(uid)
        return None if pod is None else Decision(pod, self._merits.get(uid, Merits()))

    def drop(self, uid: str) -> None:
        """Forget a pod, which is bound or gone."""
        self._pods.pop(uid, None)
        self._merits.pop(uid, None)
