"""ResourceQuotas: what the claims and pods of a namespace may ask for, and whether one more is within it.

Source: the admission plugin ResourceQuota of Kubernetes 1.36.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from allocator import DeviceClass, Quantity
from allocator.model.json import ObjectReader
from allocator.tools import Fields, shown
from extender.cluster.objects.pods import IMPLICIT_PREFIX
from extender.cluster.resource_quotas.scopes import QuotaScope, read_scopes

CLAIM_COUNT: Final = "count/resourceclaims.resource.k8s.io"
"""Resource of a quota: the number of claims."""

PER_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
"""Suffix of the resource of a quota that counts the devices of a device class, after the name of the class."""

REQUESTS: Final = "requests."
"""Prefix of the resource of a quota that counts an extended resource, before the name of the extended resource."""

Charges: TypeAlias = Mapping[str, Quantity]
"""Resource of a quota to the amount that an object, or a namespace, takes of it."""


class Extended(NamedTuple):
    """The extended resources that device classes serve.

    Attributes:
        resources: name of a device class to its extended resource; classes without one are absent.
        served: the extended resources that a class serves, with the implicit names of all classes.
    """

    resources: Mapping[str, str]
    served: frozenset[str]

    @classmethod
    def of(cls, classes: Iterable[DeviceClass]) -> "Extended":
        """The extended resources of all device classes of a cluster."""
        own = {each.name: each.extended_resource_name for each in classes}
        resources = {name: resource for name, resource in own.items() if resource}
        return cls(resources, frozenset((*resources.values(), *(f"{IMPLICIT_PREFIX}{name}" for name in own))))


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """A ResourceQuota.

    Attributes:
        hard: resource to the limit, of all resources of the quota.
        used: resource to the amount in use, as the status says; resources that are not counted yet are absent.
        scopes: only pods in all of these scopes count. A claim is in no scope.
    """

    namespace: str
    name: str
    hard: Charges = field(default_factory=dict)
    used: Charges = field(default_factory=dict)
    scopes: tuple[QuotaScope, ...] = ()

    def limits_claims(self, extended: Extended) -> bool:
        """Whether the API server compares claims with this quota: one of its resources is about claims."""
        return not self.scopes and any(_is_about_claims(name, extended) for name in self.hard)

    @property
    def limits_pods(self) -> bool:
        """Whether the quota has extended resources, which pods are charged for."""
        return any(map(is_request, self.hard))


class Excess(NamedTuple):
    """A quota has too little of a resource left."""

    resource: str
    asked: Quantity
    used: Quantity
    hard: Quantity

    def __str__(self) -> str:
        return f"{self.used} of {self.hard} of {self.resource}"


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """A quota keeps an object from being made; ``excesses`` by name of the resource."""

    quota: ResourceQuota
    excesses: tuple[Excess, ...]

    def __str__(self) -> str:
        used = ", ".join(f"{each} are used and {each.asked} more asked for" for each in self.excesses)
        return f"quota {self.quota.name} of namespace {self.quota.namespace}: {used}"

    @property
    def message(self) -> str:
        """The refusal in the words of the API server."""
        columns = {
            "requested": [(each.resource, each.asked) for each in self.excesses],
            "used": [(each.resource, each.used) for each in self.excesses],
            "limited": [(each.resource, each.hard) for each in self.excesses],
        }
        told = (f"{title}: {','.join(f'{name}={amount}' for name, amount in row)}" for title, row in columns.items())
        return f"exceeded quota: {self.quota.name}, {', '.join(told)}"


def refusal(quotas: Iterable[ResourceQuota], charges: Charges) -> QuotaRefusal | None:
    """The first quota, by name, that keeps an object from being made.

    Args:
        quotas: those in which the object counts.
        charges: what the object is charged for.
    """
    for quota in sorted(quotas, key=lambda each: each.name):
        excesses = tuple(_excesses(quota, charges))
        if excesses:
            return QuotaRefusal(quota, excesses)
    return None


def is_request(resource: str) -> bool:
    """Whether a resource of a quota counts an extended resource, by its own name or by the implicit one."""
    name = resource.removeprefix(REQUESTS)
    if name == resource or "/" not in name:
        return False
    return name.startswith(IMPLICIT_PREFIX) or "kubernetes.io/" not in name


def parse_resource_quota(obj: Mapping[str, object]) -> ResourceQuota:
    """A core/v1 ResourceQuota; ``apiVersion`` and ``kind`` may be absent, as in a list.

    Raises:
        InvalidObjectError: all fields with a wrong type or value.
    """
    reader = ObjectReader("ResourceQuota", obj if "apiVersion" in obj else {**obj, "apiVersion": "v1"}, ("v1",))
    spec, status = reader.top.child("spec"), reader.top.child("status")
    quota = ResourceQuota(
        namespace=reader.metadata.text("namespace") or "default",
        name=reader.name,
        hard=_amounts(spec, "hard"),
        used=_amounts(status, "used"),
        scopes=read_scopes(spec),
    )
    reader.finish()
    return quota


def _excesses(quota: ResourceQuota, charges: Charges) -> Iterator[Excess]:
    for name in sorted(quota.hard.keys() & charges.keys()):
        asked, used, hard = charges[name], quota.used.get(name, Quantity(0)), quota.hard[name]
        if asked.nano and used + asked > hard:
            yield Excess(name, asked, used, hard)


def _is_about_claims(resource: str, extended: Extended) -> bool:
    if resource == CLAIM_COUNT or resource.endswith(PER_CLASS):
        return True
    return is_request(resource) and resource.removeprefix(REQUESTS) in extended.served


def _amounts(fields: Fields, name: str) -> Charges:
    """Amounts by resource; an API server takes numbers as well as texts."""
    found = {}
    for resource, value in fields.mapping(name).items():
        try:
            found[resource] = Quantity.parse(value if isinstance(value, str) else str(value))
        except ValueError:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is not a quantity")
            continue
        if found[resource].nano < 0:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is negative")
        elif "/" in resource and not found[resource].is_integer:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is not a whole number")
    return found
