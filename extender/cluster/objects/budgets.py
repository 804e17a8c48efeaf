"""PodDisruptionBudgets: how many pods that a selector matches may be evicted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from allocator.tools import ObjectReader
from extender.cluster.objects.pods import Pod
from extender.kube.api import ObjectKey

_OPERATORS: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One requirement of a label selector; ``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget.

    Attributes:
        requirements: the selector; an empty one covers no pod, as in the scheduler's preemption.
        allowed: how many more pods may be disrupted.
        disrupted: names of pods whose disruption is already counted.
    """

    namespace: str
    name: str
    requirements: tuple[LabelRequirement, ...] = ()
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    def covers(self, pod: Pod) -> bool:
        """Whether evicting the pod takes from the budget."""
        if not self.requirements or pod.namespace != self.namespace or pod.name in self.disrupted:
            return False
        return all(_holds(requirement, pod.labels) for requirement in self.requirements)


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    test = _OPERATORS.get(requirement.operator)
    return test is not None and test(labels.get(requirement.key), requirement.values)


def parse_budget(obj: Mapping[str, object]) -> Budget:
    """A policy/v1 PodDisruptionBudget. Raises InvalidObjectError: all fields with a wrong type."""
    reader = ObjectReader("PodDisruptionBudget", obj, ("policy/v1",))
    selector, status = reader.top.child("spec").child("selector"), reader.top.child("status")
    labels = selector.text_mapping("matchLabels")
    budget = Budget(
        namespace=reader.metadata.text("namespace") or "default",
        name=reader.name,
        requirements=(
            *(LabelRequirement(key, "In", (value,)) for key, value in labels.items()),
            *(
                LabelRequirement(each.required_text("key"), each.required_text("operator"), each.texts("values"))
                for each in selector.children("matchExpressions")
            ),
        ),
        allowed=status.integer("disruptionsAllowed"),
        disrupted=frozenset(status.mapping("disruptedPods")),
    )
    reader.finish()
    return budget
