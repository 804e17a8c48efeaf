"""Conditions of a pod for a node that kube-scheduler checks, apart from node selection, CPU and memory.

Values hold what a spec says. Where a rule depends on the pod's own namespace or labels,
`extender.planning.kube_scheduler` adds these. Conditions that the extender does not know are named, not decided.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from allocator import is_node_resource
from allocator.tools import Fields
from extender.cluster.objects.label_selectors import LabelSelector, read_label_selector
from extender.cluster.resources import NONE, Amounts, ContainerNeeds, added, cpu_of, peak, quantity_of

_ANY_ADDRESS: Final = "0.0.0.0"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class HostPort(NamedTuple):
    """A port of the node that a container takes."""

    address: str
    protocol: str
    port: int

    def collides(self, other: "HostPort") -> bool:
        """Whether only one of two pods with these ports can run on a node."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.address == other.address or _ANY_ADDRESS in (self.address, other.address)

    def __str__(self) -> str:
        where = "" if self.address == _ANY_ADDRESS else f"{self.address}:"
        return f"{where}{self.port}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A required term of affinity or anti-affinity between pods.

    Attributes:
        selector: of pods; None matches no pod.
        namespaces: where the pods are. Without these and a selector of namespaces: in the namespace of the pod that has
            the term.
        namespace_selector: of more namespaces; None: no more.
        match_keys, mismatch_keys: keys of labels that have to have the value of that pod, or must not have it.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: frozenset[str] = frozenset()
    namespace_selector: LabelSelector | None = None
    match_keys: tuple[str, ...] = ()
    mismatch_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint that keeps pods off nodes (``whenUnsatisfiable: DoNotSchedule``).

    Attributes:
        selector: of the pods that are spread; None matches no pod.
        match_keys: keys of labels that have to have the value of the pod that has the constraint.
        counts_all_nodes: nodes that the pod's node selection does not match count, too.
        counts_tainted_nodes: nodes whose taints the pod does not tolerate count, too.
    """

    topology_key: str
    max_skew: int
    selector: LabelSelector | None = None
    min_domains: int = 1
    match_keys: tuple[str, ...] = ()
    counts_all_nodes: bool = False
    counts_tainted_nodes: bool = True


class ClaimingContainer(NamedTuple):
    """A container that names claims of its pod.

    Attributes:
        cpu: what it requests, in thousandths of a core.
        claims: names of entries in ``spec.resourceClaims``.
    """

    name: str
    cpu: int
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodConditions:
    """The conditions of a pod for a node and for its neighbors.

    Attributes:
        amounts: requests of resources that no device takes or offers, such as ephemeral-storage; in nano units.
        claiming: the containers that request CPU and name claims. kube-scheduler does not compare the two.
    """

    ports: tuple[HostPort, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    amounts: Amounts = field(default_factory=dict, hash=False)
    claiming: tuple[ClaimingContainer, ...] = ()

    @property
    def selects_namespaces(self) -> bool:
        """Whether labels of namespaces count."""
        return any(term.namespace_selector is not None for term in (*self.affinity, *self.anti_affinity))


NO_CONDITIONS: Final = PodConditions()


def read_pod_conditions(spec: Fields, init: Sequence[Fields], main: Sequence[Fields]) -> PodConditions:
    """The conditions in a pod's spec. Most pods have none of them."""
    affinity = spec.child("affinity") if spec.has("affinity") else None
    found = PodConditions(
        tuple(_ports(init, main)),
        () if affinity is None else tuple(_terms(affinity, "podAffinity")),
        () if affinity is None else tuple(_terms(affinity, "podAntiAffinity")),
        tuple(_spread(spec)) if spec.has("topologySpreadConstraints") else (),
        _other_amounts(spec, init, main),
        tuple(_claiming(main)) if spec.has("resourceClaims") else (),
    )
    return NO_CONDITIONS if found == NO_CONDITIONS else found


def _claiming(main: Sequence[Fields]) -> Iterator[ClaimingContainer]:
    for each in main:
        resources = each.child("resources")
        cpu = cpu_of(resources.mapping("requests")) or cpu_of(resources.mapping("limits"))
        names = tuple(entry.text("name") for entry in resources.children("claims"))
        if cpu and names:
            yield ClaimingContainer(each.text("name"), cpu, names)


def _ports(init: Sequence[Fields], main: Sequence[Fields]) -> Iterator[HostPort]:
    """Ports of containers that run as long as the pod does."""
    for each in (*(container for container in init if container.text("restartPolicy") == "Always"), *main):
        for port in each.children("ports") if each.has("ports") else ():
            if (number := port.integer("hostPort")) > 0:
                yield HostPort(port.text("hostIP") or _ANY_ADDRESS, port.text("protocol") or "TCP", number)


def _terms(affinity: Fields, kind: str) -> Iterator[AffinityTerm]:
    if not affinity.has(kind):
        return
    for each in affinity.child(kind).children(_REQUIRED):
        yield AffinityTerm(
            each.required_text("topologyKey"),
            _selector(each, "labelSelector"),
            frozenset(each.texts("namespaces")),
            _selector(each, "namespaceSelector"),
            each.texts("matchLabelKeys"),
            each.texts("mismatchLabelKeys"),
        )


def _spread(spec: Fields) -> Iterator[SpreadConstraint]:
    for each in spec.children("topologySpreadConstraints"):
        if each.text("whenUnsatisfiable") == "DoNotSchedule":
            yield SpreadConstraint(
                each.required_text("topologyKey"),
                each.integer("maxSkew"),
                _selector(each, "labelSelector"),
                each.integer("minDomains", 1),
                each.texts("matchLabelKeys"),
                each.text("nodeAffinityPolicy") == "Ignore",
                each.text("nodeTaintsPolicy") != "Honor",
            )


def _selector(fields: Fields, name: str) -> LabelSelector | None:
    found = fields.child_or_none(name)
    return None if found is None else read_label_selector(found)


def other_amounts(amounts: object) -> Amounts:
    """The amounts of Kubernetes' own resources that no device takes, such as ephemeral-storage; in nano units."""
    if not isinstance(amounts, dict):
        return NONE
    return {
        name: found.nano
        for name, value in amounts.items()
        if not is_node_resource(name) and _is_own(name) and (found := quantity_of(value)) is not None
    }


def _is_own(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _other_amounts(spec: Fields, init: Sequence[Fields], main: Sequence[Fields]) -> Amounts:
    needs = [
        ContainerNeeds(amounts, is_init, each.data.get("restartPolicy") == "Always")
        for containers, is_init in ((init, True), (main, False))
        for each in containers
        if (amounts := _requested(each.data.get("resources")))
    ]
    overhead = other_amounts(spec.data.get("overhead"))
    return added(peak(needs), overhead) if needs or overhead else NONE


def _requested(resources: object) -> Mapping[str, int]:
    """A limit without a request counts as a request, as in the API server."""
    if not isinstance(resources, dict):
        return NONE
    return {**other_amounts(resources.get("limits")), **other_amounts(resources.get("requests"))}


VOLUMES: Final = "volumes"
"""The condition that is not known even of a whole pod."""

REQUESTS: Final = "requests of CPU and memory"

_CLAIMED_VOLUMES: Final = ("persistentVolumeClaim", "ephemeral")


def uses_volumes(spec: Fields) -> bool:
    """Whether a pod uses PersistentVolumeClaims, whose volumes may be created on its node."""
    return any(each.has(kind) for each in spec.children("volumes") for kind in _CLAIMED_VOLUMES)


def unmodeled_conditions(spec: Fields, containers: Sequence[Fields], *, has_volumes: bool) -> tuple[str, ...]:
    """Conditions of a pod that kube-scheduler checks and that the extender does not know."""
    found = [what for what, has in _UNMODELED if has(spec, containers)]
    return (*found, VOLUMES) if has_volumes else tuple(found)


def _has_hardware_requests(_: Fields, containers: Sequence[Fields]) -> bool:
    """Whether a container requests a resource of Kubernetes itself; their names have no domain."""
    for each in containers:
        resources = each.mapping("resources")
        for amounts in (resources.get("requests"), resources.get("limits")):
            if isinstance(amounts, dict) and any("/" not in name for name in amounts):
                return True
    return False


def _has_pod_affinity(spec: Fields, _: Sequence[Fields]) -> bool:
    affinity = spec.mapping("affinity")
    return bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))


def _has_host_ports(_: Fields, containers: Sequence[Fields]) -> bool:
    ports = (port for each in containers if each.has("ports") for port in each.children("ports"))
    return any(port.integer("hostPort") for port in ports)


_UNMODELED: Final[Sequence[tuple[str, Callable[[Fields, Sequence[Fields]], bool]]]] = (
    (REQUESTS, _has_hardware_requests),
    ("affinity between pods", _has_pod_affinity),
    ("topology spread", lambda spec, _: bool(spec.items("topologySpreadConstraints"))),
    ("host ports", _has_host_ports),
)
