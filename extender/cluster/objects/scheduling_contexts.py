"""PodSchedulingContexts (KEP-3063): what a scheduler and the controllers of negotiated claims tell each other of a pod.

The kind is our own; ``deploy/crds`` has its definition, with the fields of the proposal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from allocator.tools import ObjectReader, hint
from extender.kube.api import ObjectKey
from extender.kube.resources import CONTEXTS, PODS

_LONGEST_NAME: Final = 253
_SPEC_FIELDS: Final = frozenset({"selectedNode", "potentialNodes"})
_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
"""An API server drops other fields; in a manifest they are mistakes."""


@dataclass(frozen=True, slots=True)
class SchedulingContext:
    """A PodSchedulingContext. It has the name of its pod.

    Attributes:
        pod_uid: of the pod that owns it; empty if no pod does.
        uid: of the context itself.
        revision: of its latest change.
        selected: the node for which controllers are to allocate; empty if none is.
        potential: the nodes that controllers are to judge.
        unsuitable: what controllers have answered: by the name of the claim in the pod, the nodes that do not suit.
    """

    namespace: str
    name: str
    pod_uid: str
    uid: str = ""
    revision: int = 0
    created: str = ""
    selected: str = ""
    potential: tuple[str, ...] = ()
    unsuitable: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)


def parse_scheduling_context(obj: Mapping[str, object]) -> SchedulingContext:
    """A PodSchedulingContext.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader(CONTEXTS.kind, obj, CONTEXTS.api_versions())
    metadata, spec = reader.metadata, reader.top.child("spec")
    for name in sorted(reader.top.data.keys() - _FIELDS):
        reader.top.problem(name, f"unknown field{hint(name, _FIELDS)}")
    if not isinstance(reader.top.data.get("spec"), Mapping):
        reader.top.problem("spec", "is required")
    for name in sorted(spec.data.keys() - _SPEC_FIELDS):
        spec.problem(name, f"unknown field{hint(name, _SPEC_FIELDS)}")
    for each in (spec.text("selectedNode"), *spec.texts("potentialNodes")):
        if len(each) > _LONGEST_NAME:
            spec.problem("", f"a name of a node is longer than {_LONGEST_NAME}")
    owners = (each for each in metadata.children("ownerReferences") if each.text("kind") == PODS.kind)
    answers = reader.top.child("status").children("resourceClaims")
    version = metadata.text("resourceVersion")
    context = SchedulingContext(
        metadata.text("namespace") or "default",
        reader.name,
        next((each.text("uid") for each in owners), ""),
        metadata.text("uid"),
        int(version) if version.isdecimal() else 0,
        metadata.text("creationTimestamp"),
        spec.text("selectedNode"),
        spec.texts("potentialNodes"),
        {each.required_text("name"): frozenset(each.texts("unsuitableNodes")) for each in answers},
    )
    reader.finish()
    return context
