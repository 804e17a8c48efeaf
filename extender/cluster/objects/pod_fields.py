"""What single fields and annotations of a pod say: conditions, gang, extended resources, requirements, owner.

A pod of a plain scheduler names its gang by annotations. The annotations say "group", as Kubernetes does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from allocator import (
    BLOCKING_EFFECTS,
    DeviceId,
    DeviceTaint,
    NodeSelector,
    Quantity,
    Toleration,
    read_node_selector,
    read_taint,
    read_tolerations,
)
from allocator.tools import Fields, shown
from extender.cluster.resources import ContainerNeeds, peak

RELEASED: Final = "dra-extender/ClaimsReleased"
"""Condition of a pod whose claims were released: its bind failed, or the claims' devices kept it off every node."""

KEPT: Final = "dra-extender/DevicesKept"
"""Condition of a pod for which devices are kept: other pods are evicted for it, or it is in a gang.

The message is a `Keeping` in words (`Keeping.message`).
"""

_KEPT: Final = ": devices are kept for the pod: "
_WITHOUT: Final = "; without "
_EVICTED: Final = "; evicted for it: "

_SANDBOX_READY: Final = "PodReadyToStartContainers"
"""Condition of a pod whose sandbox exists. Before that, kubelet prepares the devices of the pod's claims."""


class Keeping(NamedTuple):
    """What is kept for a pod: other pods are evicted for it, or its gang gets devices together.

    Attributes:
        node: the node of the devices; empty if nothing is kept.
        devices: the devices that the pod gets there.
        victims: uids of the pods that are evicted for it, and for whose devices it waits; empty once it need not wait.
        without: labels of what is left out, because not all pods of its gang can have it
            (`extender.pods.reduced_claims`).
    """

    node: str = ""
    devices: tuple[DeviceId, ...] = ()
    victims: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The message of a condition `KEPT`."""
        kept = f"node {self.node}{_KEPT}{', '.join(map(str, self.devices))}"
        kept += f"{_WITHOUT}{', '.join(self.without)}" if self.without else ""
        return f"{kept}{_EVICTED}{', '.join(self.victims)}" if self.victims else kept

    @classmethod
    def of(cls, conditions: Iterable["PodCondition"]) -> "Keeping":
        """What the conditions of a pod say."""
        for each in conditions:
            if each.type == KEPT and each.status == "True" and _KEPT in each.message:
                node, _, rest = each.message.partition(_KEPT)
                rest, _, victims = rest.partition(_EVICTED)
                devices, _, without = rest.partition(_WITHOUT)
                found = tuple(map(_device, _listed(devices)))
                return cls(node.removeprefix("node "), found, _listed(victims), _listed(without))
        return NOTHING_KEPT


NOTHING_KEPT: Final = Keeping()


class PodCondition(NamedTuple):
    """An entry of ``status.conditions``."""

    type: str
    status: str
    message: str


def read_conditions(status: Fields) -> tuple[PodCondition, ...]:
    """The conditions in a pod's status."""
    found = status.children("conditions")
    return tuple(PodCondition(each.text("type"), each.text("status"), each.text("message")) for each in found)


def fence_of(conditions: Iterable[PodCondition]) -> str:
    """The revision of the pod before its latest fence: different for each fence of a pod. Empty without a fence."""
    messages = [each.message for each in conditions if each.type == RELEASED]
    return messages[-1].rpartition(" ")[2] if messages else ""


def has_started(phase: str, conditions: Iterable[PodCondition]) -> bool:
    """Whether kubelet has started the pod. While init containers run, the phase is still Pending."""
    return phase == "Running" or any(each.type == _SANDBOX_READY and each.status == "True" for each in conditions)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()


def _device(text: str) -> DeviceId:
    """The device of a text that `DeviceId` has made: only the name of a pool may have slashes."""
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    return DeviceId(driver, pool, device)


GROUP: Final = "dra-extender.dev/group"
"""Annotation of a pod: the name of its gang. Pods of one namespace and one name are one gang."""

GROUP_SIZE: Final = "dra-extender.dev/group-size"
"""Annotation of a pod: the number of pods that get devices together."""

GROUP_TOPOLOGY: Final = "dra-extender.dev/group-topology"
"""Annotation of a pod: a label of nodes or an attribute of devices; the gang shares its value, if possible."""

MOST_MEMBERS: Final = 1024
"""The largest size of a gang."""

LONGEST_NAME: Final = 253
"""The most characters of a gang's name: reasons hold it. A PodGroup's name is no longer."""


class GangKey(NamedTuple):
    """Names a gang: a PodGroup, or a group of annotations. One namespace may have both under one name."""

    namespace: str
    name: str
    is_pod_group: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Membership(NamedTuple):
    """What a pod says about its gang.

    Attributes:
        name: of the gang.
        size: the number of pods that get devices together; a PodGroup says it itself.
        topology: what the nodes or devices of the gang share, if possible; empty: nothing. A PodGroup says it itself.
        is_pod_group: the gang is a PodGroup.
        problem: why the annotations cannot be used; empty if they can.
    """

    name: str
    size: int = 1
    topology: str = ""
    problem: str = ""
    is_pod_group: bool = False


def read_membership(annotations: Mapping[str, str], pod_group: str) -> Membership | None:
    """The gang that a pod names; None if there is none.

    Args:
        annotations: of the pod.
        pod_group: the PodGroup that its spec names, which goes before annotations; empty if there is none.
    """
    if pod_group:
        return Membership(pod_group, is_pod_group=True)
    if GROUP not in annotations and GROUP_SIZE not in annotations:
        return None
    name, size = annotations.get(GROUP, ""), annotations.get(GROUP_SIZE)
    if not name:
        return Membership("", problem=f"annotation {GROUP} of the pod: it has no name, but {GROUP_SIZE} is set")
    if len(name) > LONGEST_NAME:
        text = f"annotation {GROUP} of the pod: {shown(name)} is longer than {LONGEST_NAME} characters"
        return Membership("", problem=text)
    if size is None:
        return Membership(name, problem=f"annotation {GROUP_SIZE} of the pod: it is missing, but {GROUP} is set")
    if not (
        size.isascii() and size.isdigit() and len(size) <= len(str(MOST_MEMBERS)) and 1 <= int(size) <= MOST_MEMBERS
    ):
        text = f"annotation {GROUP_SIZE} of the pod: {shown(size)} is not a number from 1 to {MOST_MEMBERS}"
        return Membership(name, problem=text)
    return Membership(name, int(size), annotations.get(GROUP_TOPOLOGY, ""))


IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of an extended resource that names a device class (KEP-5004)."""


@dataclass(frozen=True, slots=True)
class ExtendedRequest:
    """A container's request for an extended resource.

    Attributes:
        index: position in the sorted names of all resources that the container requests, with cpu and memory.
    """

    index: int
    resource: str
    amount: Quantity


@dataclass(frozen=True, slots=True)
class RequestingContainer:
    """A container that requests extended resources.

    Attributes:
        index: position in all containers of the pod, init containers first.
        is_init: it is an init container.
        restarts: its restartPolicy is Always, so as an init container it is a sidecar.
    """

    index: int
    name: str
    requests: tuple[ExtendedRequest, ...]
    is_init: bool = False
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """A container gets the devices of a request of the special claim for one of its extended resources."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """``status.extendedResourceClaimStatus``: the special claim, and which container gets which request."""

    claim_name: str
    mappings: tuple[RequestMapping, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The field's JSON."""
        mappings = [
            {"containerName": m.container, "resourceName": m.resource, "requestName": m.request} for m in self.mappings
        ]
        return {"resourceClaimName": self.claim_name, "requestMappings": mappings}


def read_extended_claim(status: Fields) -> ExtendedClaim | None:
    """The special claim in the status of a pod; None if there is none."""
    fields = status.child_or_none("extendedResourceClaimStatus")
    if fields is None:
        return None
    return ExtendedClaim(
        fields.required_text("resourceClaimName"),
        tuple(
            RequestMapping(each.text("containerName"), each.text("resourceName"), each.text("requestName"))
            for each in fields.children("requestMappings")
        ),
    )


def read_containers(init: Sequence[Fields], main: Sequence[Fields]) -> tuple[RequestingContainer, ...]:
    """The containers that request extended resources, of init containers and the others."""
    found = []
    for index, fields in enumerate([*init, *main]):
        requests = _extended_requests(fields.child("resources"))
        if requests:
            restarts = fields.text("restartPolicy") == "Always"
            found.append(RequestingContainer(index, fields.text("name"), requests, index < len(init), restarts))
    return tuple(found)


def asked(containers: Iterable[RequestingContainer]) -> Mapping[str, int]:
    """The amount of each extended resource that containers of a pod need at their peak, in nano units, by name."""
    needs = (
        ContainerNeeds({own.resource: own.amount.nano for own in each.requests}, each.is_init, each.restarts)
        for each in containers
    )
    return dict(sorted(peak(needs).items()))


def _extended_requests(resources: Fields) -> tuple[ExtendedRequest, ...]:
    """Requests by name; a limit without a request counts as a request, as in the API server."""
    limits, requests = resources.mapping("limits"), resources.mapping("requests")
    names = {*limits, *requests}
    if not any(map(is_extended, names)):
        return ()
    return tuple(
        ExtendedRequest(index, name, _quantity(resources, "requests" if name in requests else "limits", name))
        for index, name in enumerate(sorted(names))
        if is_extended(name)
    )


def read_amounts(fields: Fields, mapping: str) -> dict[str, Quantity]:
    """The extended resources in a field that maps resources to amounts."""
    return {name: _quantity(fields, mapping, name) for name in fields.mapping(mapping) if is_extended(name)}


def _quantity(fields: Fields, mapping: str, name: str) -> Quantity:
    value = fields.mapping(mapping)[name]
    try:
        return Quantity.parse(value if isinstance(value, str) else str(value))
    except ValueError:
        fields.problem(f"{mapping}[{name}]", f"{shown(value)} is not a quantity")
        return Quantity(0)


def is_extended(resource: str) -> bool:
    """Whether this is an extended resource: its domain is not Kubernetes' own, or it names a device class."""
    if resource.startswith(IMPLICIT_PREFIX):
        return True
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


CORDON: Final = DeviceTaint("node.kubernetes.io/unschedulable", "NoSchedule")
"""The taint that stands for ``spec.unschedulable`` of a node: a pod that tolerates it may run there."""

_CLAIMED_VOLUMES: Final = ("persistentVolumeClaim", "ephemeral")


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """Node selection and tolerations of a pod. Equal requirements suit the same nodes.

    Attributes:
        labels: ``spec.nodeSelector``, by name.
        affinity: the required node affinity; None: any node.
    """

    labels: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()


ANY_NODE: Final = NodeRequirements()


def read_requirements(spec: Fields) -> NodeRequirements:
    """The requirements in a pod's spec."""
    return NodeRequirements(
        tuple(sorted(spec.text_mapping("nodeSelector").items())) if spec.has("nodeSelector") else (),
        _required_affinity(spec) if spec.has("affinity") else None,
        read_tolerations(spec) if spec.has("tolerations") else (),
    )


def read_node_taints(spec: Fields) -> tuple[DeviceTaint, ...]:
    """The taints in a node's spec that keep pods off, the one of a cordon first."""
    taints = [each for each in map(read_taint, spec.children("taints")) if each.effect in BLOCKING_EFFECTS]
    if spec.flag("unschedulable"):
        taints = [CORDON, *(each for each in taints if each.key != CORDON.key)]
    return tuple(taints)


def uses_volumes(spec: Fields) -> bool:
    """Whether a pod uses PersistentVolumeClaims, whose volumes may be created on its node."""
    return any(each.has(kind) for each in spec.children("volumes") for kind in _CLAIMED_VOLUMES)


def unmodeled_conditions(spec: Fields, containers: Sequence[Fields], *, has_volumes: bool) -> tuple[str, ...]:
    """Conditions of a pod that kube-scheduler checks and that the extender does not know."""
    found = [what for what, has in _UNMODELED if has(spec, containers)]
    return (*found, "volumes") if has_volumes else tuple(found)


def _required_affinity(spec: Fields) -> NodeSelector | None:
    affinity = spec.child("affinity").child("nodeAffinity")
    required = affinity.child_or_none("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else read_node_selector(required)


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
    ("requests of CPU and memory", _has_hardware_requests),
    ("affinity between pods", _has_pod_affinity),
    ("topology spread", lambda spec, _: bool(spec.items("topologySpreadConstraints"))),
    ("host ports", _has_host_ports),
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The entry of ``metadata.ownerReferences`` whose ``controller`` is true."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def read_controller(metadata: Fields) -> Owner | None:
    """The controller of an object; None if the object has none."""
    for owner in metadata.children("ownerReferences"):
        if owner.flag("controller"):
            return Owner(owner.text("kind"), owner.text("name"))
    return None
