"""PodDisruptionBudgets: how many pods that a selector matches may be evicted."""

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.tools import ObjectReader
from extender.cluster.objects.label_selectors import EVERYTHING, LabelSelector, read_label_selector
from extender.cluster.objects.pods import Pod
from extender.kube.api import ObjectKey


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget.

    Attributes:
        selector: an empty one covers no pod, as in the scheduler's preemption.
        allowed: how many more pods may be disrupted.
        disrupted: names of pods whose disruption is already counted.
    """

    namespace: str
    name: str
    selector: LabelSelector = EVERYTHING
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    def covers(self, pod: Pod) -> bool:
        """Whether evicting the pod takes from the budget."""
        if not self.selector.requirements or pod.namespace != self.namespace or pod.name in self.disrupted:
            return False
        return self.selector.matches(pod.labels)


def parse_budget(obj: Mapping[str, object]) -> Budget:
    """A policy/v1 PodDisruptionBudget. Raises InvalidObjectError: all fields with a wrong type."""
    reader = ObjectReader("PodDisruptionBudget", obj, ("policy/v1",))
    status = reader.top.child("status")
    budget = Budget(
        namespace=reader.metadata.text("namespace") or "default",
        name=reader.name,
        selector=read_label_selector(reader.top.child("spec").child("selector")),
        allowed=status.integer("disruptionsAllowed"),
        disrupted=frozenset(status.mapping("disruptedPods")),
    )
    reader.finish()
    return budget
