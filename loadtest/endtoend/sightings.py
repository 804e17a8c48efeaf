"""When pods got a node, as a watch shows it."""

from dataclasses import dataclass, field

from extender.kube.api import RawObject
from tests.kit.controlplane.aftermath import why_pending
from tests.kit.objects.manifests import is_bound


@dataclass(slots=True)
class Sightings:
    """When pods got a node.

    Attributes:
        expected: names of the pods that are to get one.
        at: seconds of a steady clock, by name, in the order of the events.
        moved: pods that were seen on two nodes.
        rejected: names of pods that were told to wait, whether they are to get a node or not.
    """

    expected: frozenset[str]
    at: dict[str, float] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    _node: dict[str, str] = field(default_factory=dict)

    def see(self, pod: RawObject, now: float) -> None:
        """A pod as it is at a time."""
        name = pod["metadata"]["name"]
        if not is_bound(pod):
            if why_pending(pod):
                self.rejected.add(name)
            return
        if name not in self.expected:
            return
        node = pod["spec"]["nodeName"]
        before = self._node.setdefault(name, node)
        if before != node:
            self.moved.append(f"pod {name} was bound to node {before}, and then to node {node}")
        self.at.setdefault(name, now)

    @property
    def progress(self) -> int:
        """Grows with each pod that is decided for the first time."""
        return len(self.at) + len(self.rejected)

    def since(self, began: float) -> tuple[float, ...]:
        """Seconds after a time of that clock at which pods were seen with a node, ascending, to a millisecond."""
        return tuple(sorted(round(now - began, 3) for now in self.at.values()))
