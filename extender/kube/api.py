"""The protocol of an API server, in raw JSON objects. The one in memory and the one behind HTTP implement it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

RawObject: TypeAlias = dict[str, Any]
"""An API object as decoded JSON, with ``apiVersion`` and ``kind``. The receiver may change it."""


class ObjectKey(NamedTuple):
    """Namespace and name of an object; ``namespace`` is empty for kinds without namespaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, and its place in the API.

    Attributes:
        versions: API versions that we can read, best first. Discovery tells which of them is served.
        optional: a server may lack the kind: then there are no such objects.
        is_foreign: the settings name the kind, with its only version.
    """

    kind: str
    plural: str
    group: str
    versions: tuple[str, ...]
    namespaced: bool
    optional: bool = False
    is_foreign: bool = False

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

NAMESPACES: Final = Resource("Namespace", "namespaces", "", ("v1",), namespaced=False)
"""Read by the cluster in memory and for explanations: in a live cluster, the API server checks their labels."""

QUOTAS: Final = Resource("ResourceQuota", "resourcequotas", "", ("v1",), namespaced=True)
"""The cluster in memory and explanations read them. In a live cluster, the API server enforces them."""

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
    )
}
"""The watched kinds, by name; `extender.state.kinds` says how each is kept."""


class ApiError(Exception):
    """The API server refused: the call has had no effect.

    Attributes:
        status: HTTP status, 400 to 499; 0 if no request was sent.
        reason: e.g. ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Invalid``.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(message)

    @property
    def is_conflict(self) -> bool:
        """The object has changed since it was read."""
        return self.status == 409 and self.reason == "Conflict"

    @property
    def is_missing(self) -> bool:
        """There is no such object."""
        return self.status == 404

    @property
    def is_over_quota(self) -> bool:
        """Whether a ResourceQuota has too little left for the object. The API server says so only in the message."""
        return self.status == 403 and "exceeded quota: " in self.message


class UnreachableError(ApiError):
    """No connection could be made, so no request was sent."""

    def __init__(self, operation: str, cause: str) -> None:
        super().__init__(0, "Unreachable", f"{operation}: {cause}")


class OutcomeUnknownError(Exception):
    """No answer, or a 5xx: the call may have had its effect, may have it later, or never."""

    def __init__(self, operation: str, cause: str) -> None:
        self.operation = operation
        self.cause = cause
        super().__init__(f"{operation}: outcome unknown: {cause}")


class ConnectError(Exception):
    """There is no usable API server; each problem names what a person has to change."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, as of one revision."""

    items: tuple[RawObject, ...]
    revision: int


class Api(Protocol):
    """The calls of the extender.

    All methods raise `ApiError` for a refusal, and `OutcomeUnknownError` if the outcome is not known. In a written
    object, ``metadata.resourceVersion`` and ``metadata.uid`` are preconditions.
    """

    def api_version(self, resource: Resource) -> str:
        """The ``apiVersion`` of a kind's objects, read and written."""
        ...

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        """One object, never from a cache of the server."""
        ...

    async def list(self, resource: Resource) -> Listing:
        """All objects of a kind, of all namespaces."""
        ...

    async def select(self, resource: Resource, namespace: str, fields: Mapping[str, str]) -> tuple[RawObject, ...]:
        """The first objects of a namespace whose fields have these values; a field is named by its path, with dots.

        The API server decides which fields of a kind can be selected.
        """
        ...

    async def create(self, resource: Resource, obj: RawObject) -> RawObject:
        """Create an object; its status is ignored."""
        ...

    async def update(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace an object, except its status."""
        ...

    async def update_status(self, resource: Resource, obj: RawObject) -> RawObject:
        """Replace an object's status."""
        ...

    async def patch(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge (RFC 7386) into an object, except its status."""
        ...

    async def patch_status(self, resource: Resource, key: ObjectKey, patch: RawObject) -> RawObject:
        """Merge (RFC 7386) into an object's status."""
        ...

    async def delete(self, resource: Resource, key: ObjectKey, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object, or mark it deleted while it has finalizers; uid and version are preconditions."""
        ...

    async def bind_pod(self, key: ObjectKey, node: str, *, uid: str, resource_version: str = "") -> None:
        """Post the Binding of a pod; uid and version are preconditions."""
        ...
