"""What filter found, kept for prioritize and bind."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator.outcome import Merit
from extender.cluster.objects import Pod


@dataclass(frozen=True, slots=True)
class Decision:
    """The pod as filter was given it, and node name to what speaks for the node.

    A proposal: the cluster may have moved on, and who uses one checks it.
    """

    pod: Pod
    merits: Mapping[str, Merit]


@dataclass(slots=True)
class DecisionStore:
    """Decisions by the pod's uid, of the pods filtered last.

    Attributes:
        size: pods to remember; the one filtered longest ago is forgotten first.
    """

    size: int = 1024
    _pods: OrderedDict[str, Decision] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._pods)

    def keep(self, decision: Decision) -> None:
        """Replace what is known of a pod."""
        self._pods[decision.pod.uid] = decision
        self._pods.move_to_end(decision.pod.uid)
        while len(self._pods) > self.size:
            self._pods.popitem(last=False)

    def of(self, uid: str) -> Decision | None:
        """What filter found for a pod; None if it was not asked, or too long ago."""
        return self._pods.get(uid)

    def drop(self, uid: str) -> None:
        """Forget a pod, which is bound or gone."""
        self._pods.pop(uid, None)
