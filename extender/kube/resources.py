"""The kinds of objects that we read or write, with their places in the API; `RESOURCES` has those that are watched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, and its place in the API.

    Attributes:
        versions: API versions that we can read, best first. Discovery tells which of them is served.
        optional: a server may lack the kind: then there are no such objects.
        is_foreign: the settings name the kind, with its only version.
        is_aside: pods are decided without it: if it is in doubt, only what concerns it waits.
    """

    kind: str
    plural: str
    group: str
    versions: tuple[str, ...]
    namespaced: bool
    optional: bool = False
    is_foreign: bool = False
    is_aside: bool = False

    def api_versions(self) -> tuple[str, ...]:
        """The versions with their group, as in ``apiVersion``."""
        return tuple(f"{self.group}/{version}" if self.group else version for version in self.versions)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


_DRA: Final = "resource.k8s.io"
_DRA_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")

NODES: Final = Resource("Node", "nodes", "", ("v1",), namespaced=False)
PODS: Final = Resource("Pod", "pods", "", ("v1",), namespaced=True)
CLAIMS: Final = Resource("ResourceClaim", "resourceclaims", _DRA, _DRA_VERSIONS, namespaced=True)
TEMPLATES: Final = Resource("ResourceClaimTemplate", "resourceclaimtemplates", _DRA, _DRA_VERSIONS, namespaced=True)
SLICES: Final = Resource("ResourceSlice", "resourceslices", _DRA, _DRA_VERSIONS, namespaced=False)
CLASSES: Final = Resource("DeviceClass", "deviceclasses", _DRA, _DRA_VERSIONS, namespaced=False)
TAINT_RULES: Final = Resource(
    "DeviceTaintRule", "devicetaintrules", _DRA, (*_DRA_VERSIONS, "v1alpha3"), namespaced=False, optional=True
)
BUDGETS: Final = Resource(
    "PodDisruptionBudget", "poddisruptionbudgets", "policy", ("v1",), namespaced=True, optional=True
)

DEVICE_QUOTAS: Final = Resource(
    "DeviceQuota", "devicequotas", "dra-extender.dev", ("v1alpha1",), namespaced=True, optional=True
)
"""Our own kind (deploy/crds)."""

RESOURCE_CLASSES: Final = Resource(
    "ResourceClass", "resourceclasses", "dra-extender.dev", ("v1alpha1",), namespaced=False, optional=True
)
"""Our own kind (deploy/crds)."""

CONTEXTS: Final = Resource(
    "PodSchedulingContext", "podschedulingcontexts", "dra-extender.dev", ("v1alpha1",), namespaced=True, optional=True
)
"""Our own kind (deploy/crds)."""

POD_GROUPS: Final = Resource(
    "PodGroup",
    "podgroups",
    "scheduling.k8s.io",
    ("v1beta1", "v1alpha3", "v1alpha2"),
    namespaced=True,
    optional=True,
)
"""Pods that are scheduled together; served only with the feature gate GenericWorkload."""

_KUEUE: Final = "kueue.x-k8s.io"

ADMISSION_CHECKS: Final = Resource(
    "AdmissionCheck", "admissionchecks", _KUEUE, ("v1beta2",), namespaced=False, optional=True, is_aside=True
)
"""Of Kueue: something that jobs wait for before they are admitted."""

FLAVORS: Final = Resource(
    "ResourceFlavor", "resourceflavors", _KUEUE, ("v1beta2",), namespaced=False, optional=True, is_aside=True
)
"""Of Kueue: it says which nodes the pods of a job may have."""

WORKLOADS: Final = Resource(
    "Workload", "workloads", _KUEUE, ("v1beta2",), namespaced=True, optional=True, is_aside=True
)
"""Of Kueue: a job with the pods that it will have."""

OF_KUEUE: Final = (ADMISSION_CHECKS, FLAVORS, WORKLOADS)
"""Followed only if the settings turn admission checks on."""

NAMESPACES: Final = Resource("Namespace", "namespaces", "", ("v1",), namespaced=False)
"""Read by the cluster in memory and for explanations: in a live cluster, the API server checks their labels."""

QUOTAS: Final = Resource("ResourceQuota", "resourcequotas", "", ("v1",), namespaced=True)
"""The cluster in memory and explanations read them. In a live cluster, the API server enforces them."""

PRIORITY_CLASSES: Final = Resource("PriorityClass", "priorityclasses", "scheduling.k8s.io", ("v1",), namespaced=False)
"""Read where pods are asked about that no API server has admitted: in memory, by what-if and explanations."""

EVENTS: Final = Resource("Event", "events", "events.k8s.io", ("v1",), namespaced=True)
"""Written; read only for explanations."""

LEASES: Final = Resource("Lease", "leases", "coordination.k8s.io", ("v1",), namespaced=True)
"""One is read and written while there are pinned pods, so that one replica at a time serves them."""

DAEMON_SETS: Final = Resource("DaemonSet", "daemonsets", "apps", ("v1",), namespaced=True)
"""Listed when an autoscaler asks whether a node is complete: some are drivers."""

POOL_REQUESTS: Final = Resource(
    "ResourcePoolStatusRequest", "resourcepoolstatusrequests", _DRA, ("v1alpha3",), namespaced=False, optional=True
)
"""Listed and answered, if the API server serves the kind."""

RESOURCES: Final[Mapping[str, Resource]] = {
    r.kind: r
    for r in (
        NODES,
        PODS,
        CLAIMS,
        TEMPLATES,
        SLICES,
        CLASSES,
        TAINT_RULES,
        BUDGETS,
        DEVICE_QUOTAS,
        RESOURCE_CLASSES,
        CONTEXTS,
        POD_GROUPS,
        *OF_KUEUE,
    )
}
"""The watched kinds, by name; `extender.cluster.kinds` says how each is kept."""
