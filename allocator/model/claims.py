"""Claims, claim templates, and what they ask for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Final, Self, TypeAlias

from allocator.model.allocations import AllocationResult, ClaimConfig
from allocator.model.devices import Toleration
from allocator.model.quantity import Quantity

MAX_RESULTS: Final = 32
"""Devices in one claim (``resource.k8s.io`` AllocationResultsMaxSize); as many requests (DeviceRequestsMaxSize)."""

MAX_CONSTRAINTS: Final = 32
"""Of one claim (DeviceConstraintsMaxSize)."""

SCHEDULING_GROUP: Final = "scheduling.k8s.io"
POD_GROUPS: Final = "podgroups"
"""The API group of PodGroups, and their name as a resource."""


class AllocationMode(Enum):
    """The number of devices that a request takes: some, or all."""

    EXACT_COUNT = "ExactCount"
    ALL = "All"


@dataclass(frozen=True, slots=True)
class DerivedAttribute:
    """An attribute that a request computes for its constraints (KEP-6080)."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One way to satisfy a request: the ``exactly`` part, or an entry of ``firstAvailable``.

    Attributes:
        name: empty for ``exactly``, the subrequest's name otherwise.
        mode: None for an unknown value.
        capacity: name of a capacity, as in the claim, to the amount; None when the field is absent.
    """

    device_class: str
    name: str = ""
    selectors: tuple[str, ...] = ()
    mode: AllocationMode | None = AllocationMode.EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, Quantity], ...] | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A request for devices: ``alternatives`` in order of preference, only one unless ``prioritized``.

    A request without alternatives has neither ``exactly`` nor ``firstAvailable``, but an unknown field.

    Its hash is found once: each decision looks up what is known of requests.
    """

    name: str
    alternatives: tuple[DeviceRequest, ...]
    prioritized: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.alternatives, self.prioritized)))

    def __hash__(self) -> int:
        return self._hash

    def label(self, alternative: DeviceRequest) -> str:
        """The name of one of the alternatives in results: ``request``, or ``request/subrequest``."""
        return f"{self.name}/{alternative.name}" if self.prioritized else self.name


ValuesOfDevices: TypeAlias = Sequence[frozenset[object]]
"""The values that each device of a constraint has of its attribute: one, or the elements of a list."""


def _have_one_in_common(values: ValuesOfDevices) -> bool:
    return bool(frozenset.intersection(*values))


def _share_none(values: ValuesOfDevices) -> bool:
    return sum(map(len, values)) == len(frozenset().union(*values))


class ConstraintKind(Enum):
    """The demand of a constraint on its attribute. The value of a member is its field in JSON.

    The search knows each kind in another way (`allocator.search.constraints`): it adds one device after the other. The
    audit judges by the definition here.

    Attributes:
        holds: the definition: whether devices with these values, one device at least, satisfy the constraint.
        broken: what is wrong with them otherwise; ``{}`` stands for the attribute.
    """

    _value_: str
    holds: Callable[[ValuesOfDevices], bool]
    broken: str

    MATCH = "matchAttribute", _have_one_in_common, "no value of {} is common to all devices"
    DISTINCT = "distinctAttribute", _share_none, "values of {} are not distinct"

    def __new__(cls, key: str, holds: Callable[[ValuesOfDevices], bool], broken: str) -> Self:
        """A kind by its field in JSON, its definition, and the words for what does not satisfy it."""
        kind = object.__new__(cls)
        kind._value_, kind.holds, kind.broken = key, holds, broken
        return kind


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """A constraint over the devices of ``requests`` (empty: all of the claim); ``kind`` is None if it is unknown."""

    kind: ConstraintKind | None
    attribute: str = ""
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The spec of a claim or a claim template: what it asks for.

    Attributes:
        optional: the names of optional requests, as an annotation has them, the most wanted first
            (`allocator.model.optional`).
        asked: what decides about devices: all but the configuration.
    """

    requests: tuple[Request, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()
    configs: tuple[ClaimConfig, ...] = ()
    optional: tuple[str, ...] = ()
    asked: tuple[tuple[Request, ...], tuple[ConstraintSpec, ...], tuple[str, ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", (self.requests, self.constraints, self.optional))


@dataclass(frozen=True, slots=True)
class Consumer:
    """An entry of ``status.reservedFor``."""

    resource: str
    name: str
    uid: str
    api_group: str = ""

    @property
    def is_pod_group(self) -> bool:
        """A PodGroup: all its pods that name the claim use it."""
        return self.resource == POD_GROUPS and self.api_group == SCHEDULING_GROUP

    def __str__(self) -> str:
        return f"{'PodGroup' if self.is_pod_group else self.resource} {self.name}"


_UID: Final = attrgetter("uid")


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim.

    Attributes:
        owner_uid: uid of the controlling owner (the pod, for claims made from templates). None for claims of PodGroups.
        owner_name: its name.
        pod_group: the PodGroup that it was made for; its pods share it. Empty for other claims.
        deleting: a deletionTimestamp is set.
        finalizers: those who have something to do before it is gone.
    """

    namespace: str
    name: str
    uid: str
    spec: ClaimSpec
    allocation: AllocationResult | None = None
    reserved_for: tuple[Consumer, ...] = ()
    owner_uid: str | None = None
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_name: str = ""
    pod_group: str = ""
    finalizers: tuple[str, ...] = ()

    def is_reserved_for(self, pod_uid: str, pod_group: str) -> bool:
        """Whether it is reserved for a pod, or for the PodGroup of the pod: pods know only the name of their group."""
        if pod_uid in map(_UID, self.reserved_for):
            return True
        return bool(pod_group) and any(each.is_pod_group and each.name == pod_group for each in self.reserved_for)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """A ResourceClaimTemplate; ``labels`` and ``annotations`` are those of the claims made from it."""

    namespace: str
    name: str
    spec: ClaimSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
