"""PodGroups of Kubernetes (scheduling.k8s.io): pods that are scheduled together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from allocator import Consumer
from allocator.tools import ObjectReader, shown
from extender.cluster.objects.pods import Pod, PodClaim, read_pod_claim
from extender.kube.api import ObjectKey
from extender.kube.resources import POD_GROUPS


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup.

    Attributes:
        size: the number of pods that are scheduled together (``minCount`` of the gang policy); 0 with another policy.
        topology: the label of nodes that its first topology constraint names; empty if there is none.
        priority: of the group, which Kubernetes 1.37 compares instead of its pods'; None: it has none.
        policy: its ``preemptionPolicy`` (gate PodGroupPreemptionPolicy); empty: it has none.
        claims: its own entries in ``spec.resourceClaims``. A pod of the group with an equal entry shares the claim.
    """

    namespace: str
    name: str
    size: int = 0
    topology: str = ""
    uid: str = ""
    claims: tuple[PodClaim, ...] = ()
    priority: int | None = None
    policy: str = ""

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def consumer(self) -> Consumer:
        """The group as a consumer of claims."""
        return Consumer(POD_GROUPS.plural, self.name, self.uid, POD_GROUPS.group)


NEVER: Final = "Never"
_POLICIES: Final = ("PreemptLowerPriority", NEVER)


def with_group_priority(pod: Pod, group: PodGroup | None) -> Pod:
    """A pod with the priority of its PodGroup; with its own, if there is no such group, or the group has none.

    Source: GetPodPriority of kube-scheduler 1.37.
    """
    own = pod.priority if pod.own_priority is None else pod.own_priority
    of_group = None if group is None else group.priority
    found = (own, None) if of_group is None else (of_group, own)
    if found == (pod.priority, pod.own_priority):
        return pod
    return replace(pod, priority=found[0], own_priority=found[1])


def parse_pod_group(obj: Mapping[str, object]) -> PodGroup:
    """A PodGroup of any version that is supported.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader("PodGroup", obj, POD_GROUPS.api_versions())
    spec = reader.top.child("spec")
    gang = spec.child("schedulingPolicy").child("gang")
    topology = spec.child("schedulingConstraints").children("topology")
    group = PodGroup(
        reader.metadata.text("namespace") or "default",
        reader.name,
        gang.integer("minCount"),
        topology[0].text("key") if topology else "",
        reader.metadata.text("uid"),
        tuple(map(read_pod_claim, spec.children("resourceClaims"))),
        spec.integer("priority") if spec.has("priority") else None,
        spec.text("preemptionPolicy"),
    )
    if group.policy and group.policy not in _POLICIES:
        spec.problem("preemptionPolicy", f"{shown(group.policy)} is none of {', '.join(_POLICIES)}")
    reader.finish()
    return group
