"""ResourceQuotas: what the claims and pods of a namespace ask for, as an API server counts it.

A quota has limits and scopes; an object is charged in each quota in which it counts; the account of a namespace adds
its charges up. Source: the admission plugin ResourceQuota and the quota evaluators of claims and pods of Kubernetes
1.36 (KEP-5004 for extended resources). Rules of an API server for scopes are not checked here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from allocator import MAX_RESULTS, AllocationMode, Claim, DeviceClass, DeviceRequest, Quantity, Request
from allocator.model.validation import is_whole
from allocator.tools import Fields, ObjectReader, shown
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.extended_resources import IMPLICIT_PREFIX, MARKER, asked
from extender.cluster.objects.pods import Pod

_TERMINATING: Final = "Terminating"
_BEST_EFFORT: Final = "BestEffort"
_PRIORITY_CLASS: Final = "PriorityClass"
_CROSS_NAMESPACE: Final = "CrossNamespacePodAffinity"
_OPPOSITES: Final = {"NotTerminating": _TERMINATING, "NotBestEffort": _BEST_EFFORT}
_NAMES: Final = frozenset({_TERMINATING, _BEST_EFFORT, _PRIORITY_CLASS, _CROSS_NAMESPACE, *_OPPOSITES})
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_COMPUTE: Final = frozenset({"cpu", "memory"})
"""A pod that requests or limits one of these resources is not of the class BestEffort."""


class QuotaScope(NamedTuple):
    """A requirement on a pod; ``operator`` and ``values`` are about its priority class."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def has(self, spec: Mapping[str, object]) -> bool:
        """Whether a pod with this spec is in the scope."""
        if self.name in _OPPOSITES:
            return not QuotaScope(_OPPOSITES[self.name]).has(spec)
        fields = Fields(spec, "spec", [])
        match self.name:
            case "Terminating":
                return fields.has("activeDeadlineSeconds") and fields.integer("activeDeadlineSeconds") >= 0
            case "BestEffort":
                return not any(_computes(each) for each in _containers(fields))
            case "CrossNamespacePodAffinity":
                return any(each.has("namespaceSelector") or each.items("namespaces") for each in _terms(fields))
        return self._has_priority(fields.text("priorityClassName"))

    def _has_priority(self, name: str) -> bool:
        match self.operator:
            case "In":
                return name in self.values
            case "NotIn":
                return name not in self.values
            case "DoesNotExist":
                return not name
        return bool(name)


def read_scopes(spec: Fields) -> tuple[QuotaScope, ...]:
    """The scopes in the spec of a ResourceQuota; notes those that do not exist."""
    found = [QuotaScope(name) for name in spec.texts("scopes")]
    for each in spec.child("scopeSelector").children("matchExpressions"):
        found.append(QuotaScope(each.required_text("scopeName"), each.required_text("operator"), each.texts("values")))
        if found[-1].operator not in _OPERATORS:
            each.problem("operator", f'"{found[-1].operator}" is none of {", ".join(sorted(_OPERATORS))}')
    for scope in found:
        if scope.name not in _NAMES:
            spec.problem("scopes", f'"{scope.name}" is none of {", ".join(sorted(_NAMES))}')
    return tuple(found)


def _containers(spec: Fields) -> Iterator[Fields]:
    for name in ("initContainers", "containers"):
        yield from spec.children(name)


def _computes(container: Fields) -> bool:
    resources = container.child("resources")
    return any(not _COMPUTE.isdisjoint(resources.mapping(name)) for name in ("requests", "limits"))


def _terms(spec: Fields) -> Iterator[Fields]:
    """The terms of affinity and anti-affinity between pods."""
    for name in ("podAffinity", "podAntiAffinity"):
        affinity = spec.child("affinity").child(name)
        yield from affinity.children("requiredDuringSchedulingIgnoredDuringExecution")
        for weighted in affinity.children("preferredDuringSchedulingIgnoredDuringExecution"):
            yield weighted.child("podAffinityTerm")


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
        elif is_whole(resource) and not found[resource].is_integer:
            fields.problem(f"{name}[{resource}]", f"{shown(value)} is not a whole number")
    return found


NOTHING: Final[Charges] = {}


def claim_charges(claim: Claim, extended: Extended, of_pod: Charges = NOTHING) -> Charges:
    """What a claim is charged for: itself, and devices of each class as claims and as extended resources.

    Whether a device is for administrative access makes no difference.

    Args:
        claim: allocated or not.
        extended: the extended resources of classes.
        of_pod: the charge of the pod of a special claim. The claim is charged only for the rest.
    """
    devices: Counter[str] = Counter()
    for request in claim.spec.requests:
        devices.update(_worst(request))
    found = {CLAIM_COUNT: Quantity.from_int(1)}
    for name, count in devices.items():
        found[f"{name}{PER_CLASS}"] = amount = Quantity.from_int(count)
        for resource in filter(None, (f"{IMPLICIT_PREFIX}{name}", extended.resources.get(name))):
            rest = amount - of_pod.get(f"{REQUESTS}{resource}", Quantity(0))
            if rest.nano > 0:
                found[f"{REQUESTS}{resource}"] = rest
    return found


def pod_charges(pod: Pod) -> Charges:
    """What a pod is charged for: its extended resources and the marker, at their peak; nothing once it has finished."""
    if pod.is_finished:
        return NOTHING
    charges = {f"{REQUESTS}{name}": Quantity(nano) for name, nano in asked(pod.containers).items()}
    return charges if pod.marker is None else {**charges, f"{REQUESTS}{MARKER}": Quantity(pod.marker)}


def charged_before(claim: ClaimObject, pod: Pod | None, special: Iterable[ClaimObject]) -> Charges:
    """What the pod of a special claim is charged for, so that the claim is not charged for it again.

    Args:
        claim: any claim; other claims have no such pod.
        pod: the owner of the claim; None if it is gone.
        special: all special claims of the pod.
    """
    if pod is None or claim.special_of != pod.uid:
        return NOTHING
    if pod.extended_claim is not None:
        is_first = pod.extended_claim.claim_name == claim.claim.name
    else:
        mine = (claim.created, claim.claim.name)
        is_first = all(mine <= (each.created, each.claim.name) for each in special)
    return pod_charges(pod) if is_first else NOTHING


def total(all_charges: Iterable[Charges]) -> Charges:
    """The sum."""
    nano: Counter[str] = Counter()
    for charges in all_charges:
        nano.update({name: amount.nano for name, amount in charges.items()})
    return {name: Quantity(amount) for name, amount in nano.items()}


def _worst(request: Request) -> Mapping[str, int]:
    """The most devices of each class that a request may get. It is not known which alternative will be taken."""
    most: dict[str, int] = {}
    for each in request.alternatives:
        most[each.device_class] = max(_count(each), most.get(each.device_class, 0))
    return most


def _count(request: DeviceRequest) -> int:
    if request.mode is AllocationMode.ALL:
        return MAX_RESULTS
    return request.count if request.mode is AllocationMode.EXACT_COUNT else 0


class Charge(NamedTuple):
    """The amounts that one object is charged for. ``spec`` is the spec of a pod; it is None for a claim."""

    amounts: Charges
    spec: Mapping[str, object] | None = None


class Account:
    """Compares charges with the quotas of a namespace, and adds them up.

    Args:
        quotas: the quotas of the namespace. What their statuses say counts as used.
        extended: the extended resources of device classes.
    """

    def __init__(self, quotas: Iterable[ResourceQuota], extended: Extended) -> None:
        self._quotas = {each.name: each for each in quotas}
        self._extended = extended

    @classmethod
    def empty(cls, quotas: Iterable[ResourceQuota], extended: Extended) -> "Account":
        """An account in which nothing is used yet, whatever the statuses of the quotas say."""
        unused = (replace(each, used=dict.fromkeys(each.hard, Quantity(0))) for each in quotas)
        return cls(unused, extended)

    @property
    def quotas(self) -> tuple[ResourceQuota, ...]:
        """The quotas, each with the amounts that are used."""
        return tuple(self._quotas.values())

    def refusal(self, charge: Charge) -> QuotaRefusal | None:
        """The quota that keeps an object from being made; None if the object is within all quotas."""
        return refusal(self._counting(charge), charge.amounts)

    def add(self, charge: Charge) -> None:
        """Count an object that exists."""
        for quota in tuple(self._counting(charge)):
            taken = {name: charge.amounts[name] for name in quota.hard.keys() & charge.amounts.keys()}
            used = {name: quota.used.get(name, Quantity(0)) + amount for name, amount in taken.items()}
            self._quotas[quota.name] = replace(quota, used={**quota.used, **used})

    def _counting(self, charge: Charge) -> Iterator[ResourceQuota]:
        """The quotas in which an object counts."""
        for quota in self._quotas.values():
            if charge.spec is None:
                if quota.limits_claims(self._extended):
                    yield quota
            elif quota.limits_pods and all(scope.has(charge.spec) for scope in quota.scopes):
                yield quota


def charges_of(
    pods: Iterable[tuple[Pod, Mapping[str, object]]], claims: Iterable[ClaimObject], extended: Extended
) -> Iterator[Charge]:
    """The charges for all pods, each with its spec, and for all claims of a namespace."""
    by_uid: dict[str, Pod] = {}
    for pod, spec in pods:
        by_uid[pod.uid] = pod
        yield Charge(pod_charges(pod), spec)
    special: dict[str, list[ClaimObject]] = {}
    claims = tuple(claims)
    for each in claims:
        if each.special_of is not None:
            special.setdefault(each.special_of, []).append(each)
    for each in claims:
        owner = each.special_of
        before = NOTHING if owner is None else charged_before(each, by_uid.get(owner), special[owner])
        yield Charge(claim_charges(each.claim, extended, before))
