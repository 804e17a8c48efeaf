"""The resources of nodes: CPU, memory and huge pages, as kube-scheduler counts them.

Pods request them, and devices may take some (KEP-5517). Amounts are in nano units by the name of the resource. An
amount that cannot be read counts as absent, because the API server has none.

Policies prefer nodes by CPU, in thousandths of a core, but CPU never decides whether a pod fits.

Source: k8s.io/component-helpers/resource, Kubernetes 1.37. A resize of a running pod is not seen before it has changed
the pod's spec.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from allocator import Quantity, is_node_resource


class ContainerNeeds(NamedTuple):
    """A container's requests: amounts by resource; ``restarts`` says that its restartPolicy is Always."""

    amounts: Mapping[str, int]
    is_init: bool
    restarts: bool


def peak(containers: Iterable[ContainerNeeds]) -> Counter[str]:
    """Amounts by resource, for containers in the order of their start.

    Sidecars run beside everything that starts after them. Other init containers run one by one, before all else.
    """
    running: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for each in containers:
        if each.is_init and not each.restarts:
            starting |= running + Counter(each.amounts)
        else:
            running += Counter(each.amounts)
    return running | starting


Amounts: TypeAlias = Mapping[str, int]

NONE: Final[Amounts] = {}

_REMEMBERED: Final = 4096
_SHORT: Final = 32
"""Longer texts of amounts are not remembered: an API server writes none."""

_QUANTITIES: Final = (str, int, float)
"""The types of quantities in JSON."""

_NANO: Final = 10**9
_UNITS: Final[Mapping[str, int]] = {"cpu": 10**6}
"""What kube-scheduler counts in: thousandths of a core, and whole units of everything else."""


@dataclass(frozen=True, slots=True)
class ClaimResources:
    """The part of its node that a pod takes by a claim, an entry of ``status.nodeAllocatableResourceClaimStatuses``.

    Attributes:
        claim: the claim's name.
        containers: the containers with the claim, init containers first.
        mapping: what the claim's devices are of the node's resources.
        per_pod, per_container: what the pod, and each container with the claim, takes besides.
    """

    claim: str
    containers: tuple[str, ...] = ()
    mapping: Mapping[str, Quantity] = field(default_factory=dict)
    per_pod: Mapping[str, Quantity] = field(default_factory=dict)
    per_container: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def of_pod(self) -> Amounts:
        """What the whole pod takes by the claim."""
        return added(
            _nano(self.mapping),
            _nano(self.per_pod),
            {name: each.nano * len(self.containers) for name, each in self.per_container.items()},
        )

    @property
    def of_container(self) -> Amounts:
        """What one container with the claim may take."""
        return added(_nano(self.mapping), _nano(self.per_pod), _nano(self.per_container))

    def as_json(self) -> dict[str, object]:
        """The entry's JSON, in upstream's order."""
        extra = [
            {"name": name}
            | ({"perPod": str(self.per_pod[name])} if name in self.per_pod else {})
            | ({"perContainer": str(self.per_container[name])} if name in self.per_container else {})
            for name in sorted({*self.per_pod, *self.per_container})
        ]
        mapping = [{"name": name, "quantity": str(each)} for name, each in sorted(self.mapping.items())]
        return {
            "resourceClaimName": self.claim,
            "containers": list(self.containers),
            "mapping": mapping,
            "overhead": extra,
        }


@dataclass(frozen=True, slots=True)
class Envelope:
    """The resources of a whole pod (KEP-2837), and what they have to cover.

    Attributes:
        requests, limits: of the pod.
        container_limits: the limits of all containers together, at their peak.
        limits_of: the limits of each container that is no init container.
    """

    requests: Amounts
    limits: Amounts
    container_limits: Amounts
    limits_of: tuple[tuple[str, Amounts], ...]


@dataclass(frozen=True, slots=True)
class PodResources:
    """The resources that a pod requests of its node.

    Attributes:
        containers: by its containers, at their peak.
        overhead: by its runtime class.
        envelope: what is said of the whole pod; None: nothing.
        users: each container, init containers first, with its entries of ``spec.resourceClaims``.
        claims: what its claims take, as its status says.
    """

    containers: Amounts = field(default_factory=dict)
    overhead: Amounts = field(default_factory=dict)
    envelope: Envelope | None = None
    users: tuple[tuple[str, tuple[str, ...]], ...] = ()
    claims: tuple[ClaimResources, ...] = ()

    def with_claims(self, claims: tuple[ClaimResources, ...]) -> Amounts:
        """What the pod takes of its node if its claims take this."""
        found = dict(added(self.containers, *(each.of_pod for each in claims)))
        if self.envelope is not None:
            found |= self.envelope.requests
        return added(found, self.overhead)

    @property
    def total(self) -> Amounts:
        """What the pod takes of its node, as its status says."""
        return self.with_claims(self.claims)


NO_RESOURCES: Final = PodResources()


def read_pod_resources(spec: object) -> PodResources:
    """What a pod requests of its node, by its spec."""
    init, main = _items(spec, "initContainers"), _items(spec, "containers")
    is_plain = not init and len(main) == 1
    requests = _requested(main[0]) if is_plain else peak(_needs(init, main, _requested))
    own = _field_of(spec, "resources")
    return PodResources(
        requests,
        amounts_of(_field_of(spec, "overhead")),
        _envelope(own, init, main) if own else None,
        tuple([(str(_field_of(each, "name")), names) for each in (*init, *main) if (names := _claim_names(each))]),
    )


def read_claim_resources(status: object) -> tuple[ClaimResources, ...]:
    """What the claims of a pod take of its node, by the pod's status."""
    return tuple(map(_claim_resources, _items(status, "nodeAllocatableResourceClaimStatuses")))


def amounts_of(amounts: object) -> Amounts:
    """The amounts of the resources that devices may take, in nano units."""
    if not amounts or not isinstance(amounts, dict):
        return NONE
    return {
        name: amount.nano
        for name, value in amounts.items()
        if is_node_resource(name) and (amount := quantity_of(value)) is not None
    }


def counted(amounts: Amounts) -> Amounts:
    """The amounts as kube-scheduler counts them: rounded up, in thousandths of a core, and whole units of the rest."""
    return {name: -(-nano // _UNITS.get(name, _NANO)) for name, nano in amounts.items()}


def added(*each: Amounts) -> Amounts:
    """The sum."""
    found: dict[str, int] = {}
    for amounts in each:
        for name, nano in amounts.items():
            found[name] = found.get(name, 0) + nano
    return found


def _envelope(resources: object, init: list[Any], main: list[Any]) -> Envelope:
    limits = amounts_of(_field_of(resources, "limits"))
    return Envelope(
        {**limits, **amounts_of(_field_of(resources, "requests"))},
        limits,
        peak(_needs(init, main, _limits)),
        tuple((str(_field_of(each, "name")), _limits(each)) for each in main),
    )


def _needs(init: list[Any], main: list[Any], read: Callable[[object], Amounts]) -> Iterator[ContainerNeeds]:
    for containers, is_init in ((init, True), (main, False)):
        for each in containers:
            amounts = read(each)
            if amounts:
                yield ContainerNeeds(amounts, is_init, _field_of(each, "restartPolicy") == "Always")


def _requested(container: object) -> Amounts:
    """A limit without a request counts as a request, as in the API server."""
    resources = _field_of(container, "resources")
    if not isinstance(resources, dict):
        return NONE
    requests, limits = amounts_of(resources.get("requests")), amounts_of(resources.get("limits"))
    return {**limits, **requests} if limits else requests


def _limits(container: object) -> Amounts:
    return amounts_of(_field_of(_field_of(container, "resources"), "limits"))


def _claim_names(container: object) -> tuple[str, ...]:
    """The claims of a container, which names a claim once for each request of the claim that the container has."""
    claims = _items(_field_of(container, "resources"), "claims")
    if not claims:
        return ()
    names = [_field_of(each, "name") for each in claims]
    return tuple(dict.fromkeys([each for each in names if isinstance(each, str)]))


def _claim_resources(entry: object) -> ClaimResources:
    overhead = _items(entry, "overhead")
    return ClaimResources(
        str(_field_of(entry, "resourceClaimName")),
        tuple(map(str, _items(entry, "containers"))),
        _by_name(_items(entry, "mapping"), "quantity"),
        _by_name(overhead, "perPod"),
        _by_name(overhead, "perContainer"),
    )


def _by_name(entries: list[Any], field_name: str) -> Mapping[str, Quantity]:
    found = ((str(_field_of(each, "name")), quantity_of(_field_of(each, field_name))) for each in entries)
    return {name: amount for name, amount in found if amount is not None}


def quantity_of(value: object) -> Quantity | None:
    """A quantity in JSON; None if it is absent or cannot be read."""
    if not isinstance(value, _QUANTITIES) or isinstance(value, bool):
        return None
    text = str(value)
    return _remembered(text) if len(text) <= _SHORT else _parsed(text)


@lru_cache(maxsize=_REMEMBERED)
def _remembered(text: str) -> Quantity | None:
    """The pods of a cluster repeat few amounts."""
    return _parsed(text)


def _parsed(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except ValueError:
        return None


def _nano(amounts: Mapping[str, Quantity]) -> Amounts:
    return {name: each.nano for name, each in amounts.items()}


def _items(value: object, field_name: str) -> list[Any]:
    found = value.get(field_name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _field_of(value: object, field_name: str) -> object:
    return value.get(field_name) if isinstance(value, dict) else None


_MILLI: Final = 10**6


def cpu_request(spec: object) -> int:
    """The CPU that a scheduler reserves for a pod of some spec.

    Requests of the whole pod (KEP-2837) count instead of those of its containers. The overhead of the pod is added.
    """
    if not isinstance(spec, dict):
        return 0
    of_pod = _cpu_requested(spec.get("resources"))
    if of_pod is None:
        of_pod = peak(_cpu_needs(spec))["cpu"] if spec.get("initContainers") else _sum(spec.get("containers"))
    overhead = spec.get("overhead")
    return of_pod + (cpu_of(overhead) or 0) if overhead else of_pod


def cpu_of(amounts: object) -> int | None:
    """The CPU in amounts by resource, rounded up; None without CPU."""
    amount = quantity_of(amounts.get("cpu")) if isinstance(amounts, dict) else None
    return None if amount is None else max(0, -(-amount.nano // _MILLI))


def _sum(containers: object) -> int:
    """What containers request together that run at the same time."""
    found = containers if isinstance(containers, list) else ()
    return sum([_cpu_requested(each.get("resources")) or 0 for each in found if isinstance(each, dict)])


def _cpu_needs(spec: Mapping[str, object]) -> Iterator[ContainerNeeds]:
    for name, is_init in (("initContainers", True), ("containers", False)):
        containers = spec.get(name)
        for each in containers if isinstance(containers, list) else ():
            cpu = _cpu_requested(_field_of(each, "resources"))
            if cpu:
                yield ContainerNeeds({"cpu": cpu}, is_init, _field_of(each, "restartPolicy") == "Always")


def _cpu_requested(resources: object) -> int | None:
    """A limit without a request counts as a request, as in the API server."""
    if not resources or not isinstance(resources, dict):
        return None
    requested = cpu_of(resources.get("requests"))
    return cpu_of(resources.get("limits")) if requested is None else requested
