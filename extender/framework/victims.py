"""Victims: the pods that are evicted for another pod, and which of the pods on a node go first."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.cluster.objects.pods import Pod


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to evict from one node, by uid, and how many of them break a PodDisruptionBudget."""

    uids: tuple[str, ...]
    pdb_violations: int = 0


class VictimOrder:
    """Tells pods that are entitled to their devices from pods that only borrow them. Borrowers are evicted first.

    By itself, it knows no borrowers.
    """

    def may_borrow(self, namespace: str) -> bool:
        """Whether some pod of the namespace borrows devices."""
        return False

    def entitled(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        """The pods, among those that are evicted together, that give back more than borrowed devices.

        An entitled pod stays entitled if more pods are evicted.
        """
        return list(pods)

    def kind(self, pod: Pod) -> Hashable:
        """Equal for pods that give back the same amounts."""
        return None


@dataclass(frozen=True, slots=True)
class JoinedOrder(VictimOrder):
    """Several orders at once: a pod is entitled to its devices if it is entitled by each of them."""

    orders: Sequence[VictimOrder] = ()

    def may_borrow(self, namespace: str) -> bool:
        """Like `VictimOrder.may_borrow`, in one of the orders."""
        return any(each.may_borrow(namespace) for each in self.orders)

    def entitled(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        """Like `VictimOrder.entitled`, in each of the orders."""
        evicted = list(pods)
        found = [{pod.uid for pod in each.entitled(evicted)} for each in self.orders]
        return [pod for pod in evicted if all(pod.uid in uids for uids in found)]

    def kind(self, pod: Pod) -> Hashable:
        """Like `VictimOrder.kind`, in each of the orders."""
        return tuple(each.kind(pod) for each in self.orders)


NO_BORROWERS: Final = VictimOrder()
