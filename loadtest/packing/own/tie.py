"""kube-scheduler's choice of one of the nodes that score equally: any of them."""

import random
from collections.abc import Mapping, Sequence

from extender.cluster.objects.pods import Pod


class AnyNode:
    """One of the best nodes at random, as kube-scheduler's selectHost takes one; it rejects no node.

    Args:
        chance: decides.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def rejections(self, _: Pod) -> Mapping[str, str]:
        """No node."""
        return {}

    def choose(self, _: Pod, names: Sequence[str]) -> str:
        """Any of the nodes."""
        return self._chance.choice(names)

    def place(self, pod: Pod, node: str) -> None:
        """Nothing: pods of our traces need nothing but devices."""
