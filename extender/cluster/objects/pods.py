"""Pods as values, with only the fields that decisions need: there are tens of thousands.

Most pods of a cluster have no devices. Of such a pod, only its node and its CPU count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, NamedTuple

import orjson

from allocator import DeviceId, DeviceTaint, NodeSelector, Quantity, Toleration
from allocator.checks import BLOCKING_EFFECTS
from allocator.model.json import read_node_selector, read_taint, read_tolerations
from allocator.tools import Fields, ObjectReader, Recent, shown
from extender.cluster.objects.extended_resources import (
    IMPLICIT_PREFIX,
    MARKER,
    ExtendedClaim,
    ExtendedRequest,
    RequestingContainer,
    RequestMapping,
)
from extender.cluster.objects.pod_conditions import (
    NO_CONDITIONS,
    VOLUMES,
    PodConditions,
    read_pod_conditions,
    unmodeled_conditions,
    uses_volumes,
)
from extender.cluster.resources import (
    NO_RESOURCES,
    ContainerNeeds,
    PodResources,
    cpu_request,
    peak,
    read_claim_resources,
    read_pod_resources,
)
from extender.kube.api import ObjectKey, key_of

RELEASED: Final = "dra-extender/ClaimsReleased"
"""Condition of a pod whose claims were released: its bind failed, or the claims' devices kept it off every node."""

KEPT: Final = "dra-extender/DevicesKept"
"""Condition of a pod for which devices are kept: other pods are evicted for it, or it is in a gang.

The message is a `Keeping` in words (`Keeping.message`).
"""

WAITS: Final = "dra-extender/DevicesAllocated"
"""Condition of a pod that was told why it waits (``False``, with the line), and that has a node since (``True``)."""

_KEPT: Final = ": devices are kept for the pod: "
_WITHOUT: Final = "; without "
_EVICTED: Final = "; evicted for it: "

_SANDBOX_READY: Final = "PodReadyToStartContainers"
"""Condition of a pod whose sandbox exists. Before that, kubelet prepares the devices of the pod's claims."""


GATE: Final = "dra-extender.dev/turn"
"""The scheduling gate that a policy gives pods with devices; dra-extender lifts it in fair turns of namespaces."""


class Keeping(NamedTuple):
    """The node and devices that are kept for a pod: others are evicted for it, or its gang gets devices together.

    Attributes:
        node: the node of the devices; empty if nothing is kept.
        devices: the devices that the pod gets there.
        victims: uids of the pods that are evicted for it, and for whose devices it waits; empty once it need not wait.
        without: labels of what is left out, because not all pods of its gang can have it
            (`extender.framework.pods.reduced_claims`).
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
    reason: str = ""


def read_conditions(status: Fields) -> tuple[PodCondition, ...]:
    """The conditions in a pod's status."""
    found = status.children("conditions")
    return tuple([PodCondition(*each.each_text("type", "status", "message", "reason")) for each in found])


def fence_of(conditions: Iterable[PodCondition]) -> str:
    """The revision of the pod before its latest fence: different for each fence of a pod. Empty without a fence."""
    messages = [each.message for each in conditions if each.type == RELEASED]
    return messages[-1].rpartition(" ")[2] if messages else ""


def has_started(phase: str, conditions: Iterable[PodCondition]) -> bool:
    """Whether kubelet has started the pod. While init containers run, the phase is still Pending."""
    return phase == "Running" or any(each.type == _SANDBOX_READY and each.status == "True" for each in conditions)


def says_that_it_waits(condition: PodCondition) -> bool:
    """Whether a condition of a pod says why the pod waits."""
    return condition.type == WAITS and condition.status == "False"


def _is_rejected(condition: PodCondition) -> bool:
    return condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable"


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
    """The membership of a pod in a gang, as the pod names it.

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


def _extended_requests(resources: Fields) -> tuple[ExtendedRequest, ...]:
    """Requests by name; a limit without a request counts as a request, as in the API server."""
    limits, requests = resources.mapping("limits"), resources.mapping("requests")
    if not limits and not requests:
        return ()
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
    """Whether this is an extended resource: its domain is not Kubernetes' own, or it names a device class.

    The marker is none: it stands for no device.
    """
    if resource.startswith(IMPLICIT_PREFIX):
        return True
    is_foreign = "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")
    return is_foreign and resource != MARKER


def _read_marker(init: Sequence[Fields], main: Sequence[Fields]) -> int | None:
    """The amount of the marker that the containers request at their peak, in nano units; None if none names it."""
    needs = []
    for index, fields in enumerate([*init, *main]):
        resources = fields.child("resources")
        named = next((each for each in ("requests", "limits") if MARKER in resources.mapping(each)), "")
        if named:
            amount = _quantity(resources, named, MARKER).nano
            needs.append(ContainerNeeds({MARKER: amount}, index < len(init), fields.text("restartPolicy") == "Always"))
    return peak(needs).get(MARKER, 0) if needs else None


CORDON: Final = DeviceTaint("node.kubernetes.io/unschedulable", "NoSchedule")
"""The taint that stands for ``spec.unschedulable`` of a node: a pod that tolerates it may run there."""


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


def _required_affinity(spec: Fields) -> NodeSelector | None:
    affinity = spec.child("affinity").child("nodeAffinity")
    required = affinity.child_or_none("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else read_node_selector(required)


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


_FEW_LABELS: Final = 32
"""A label has at most 380 characters."""

_LABELS: Final = 4 * 1024
"""Characters of all labels of a pod that are kept."""

POLICY: Final = "dra-extender.dev/policy"
"""Annotation of a pod: the name of the policy for this pod."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """An entry of ``spec.resourceClaims``: a claim by name, or a template."""

    name: str
    claim_name: str | None = None
    template_name: str | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod.

    Attributes:
        resource_version: of the object; not compared.
        node_name: the node it is bound to; empty while it is pending.
        nominated_node: the node where room was made for it, by its scheduler or by us; empty if there is none.
        kept: what we keep for it, because others are evicted for it; its scheduler may forget the nomination.
        priority: in a snapshot, that of its PodGroup if that has one.
        own_priority: its own, while that of its PodGroup counts; None: its own counts.
        claims: in the order of ``spec.resourceClaims``.
        claim_statuses: name in ``spec.resourceClaims`` to the name of its claim; None: no claim is needed.
        containers: those that request extended resources.
        marker: how much of the resource `MARKER` it requests, in nano units; None: it does not name it.
        has_started: kubelet has made its sandbox, so it had its claims then.
        started: when it began to run; empty if that is not known.
        may_preempt: its ``preemptionPolicy`` is not "Never".
        has_volumes: it uses PersistentVolumeClaims, whose volumes may be created on its node.
        gates: names of its scheduling gates; while there is one, no scheduler tries it.
        is_rejected: its scheduler has found no node for it.
        unmodeled: conditions that kube-scheduler checks and that the service of a live cluster does not know, in words.
        conditions: what else kube-scheduler compares with nodes and other pods; only whole pods have it.
        policy: the name in its annotation `POLICY`; None without the annotation.
        gang: what it says about its gang; None if it is in no gang.
        pod_group: the name of its PodGroup (``spec.schedulingGroup``); empty if it is in none.
        cpu: what its scheduler reserves for it, in thousandths of a core.
        resources: what it requests of its node, also by its claims.
        controller: what makes it again after it is deleted; None: nothing does.
        is_told: its condition `WAITS` says why it waits; not compared.
        fence: the latest fence (`extender.cluster.writes.writer.Writer.fence`); empty if there was none; not compared.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(default="", compare=False)
    node_name: str = ""
    nominated_node: str = ""
    kept: Keeping = NOTHING_KEPT
    priority: int = 0
    own_priority: int | None = None
    phase: str = ""
    deleting: bool = False
    scheduler_name: str = ""
    claims: tuple[PodClaim, ...] = ()
    claim_statuses: Mapping[str, str | None] = field(default_factory=dict)
    extended_claim: ExtendedClaim | None = None
    containers: tuple[RequestingContainer, ...] = ()
    marker: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    has_started: bool = False
    started: str = ""
    may_preempt: bool = True
    has_volumes: bool = False
    requirements: NodeRequirements = ANY_NODE
    gates: tuple[str, ...] = ()
    is_rejected: bool = False
    unmodeled: tuple[str, ...] = ()
    conditions: PodConditions = NO_CONDITIONS
    policy: str | None = None
    gang: Membership | None = None
    pod_group: str = ""
    cpu: int = 0
    resources: PodResources = NO_RESOURCES
    controller: Owner | None = None
    is_told: bool = field(default=False, compare=False)
    fence: str = field(default="", compare=False)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def order(self) -> tuple[int, str, str]:
        """A key by which the most important pods come first, then the oldest."""
        return -self.priority, self.created, self.uid

    @property
    def gang_key(self) -> GangKey | None:
        """The gang that it names; None if it names none."""
        return None if self.gang is None else GangKey(self.namespace, self.gang.name, self.gang.is_pod_group)

    @property
    def needs_devices(self) -> bool:
        """Whether the pod names claims or requests extended resources."""
        return bool(self.claims or self.containers)

    @property
    def awaits_turn(self) -> bool:
        """Whether the pod has `GATE` and no other scheduling gate."""
        return self.gates == (GATE,)

    @property
    def foreign_gates(self) -> tuple[str, ...]:
        """The pod's scheduling gates without `GATE`: others lift them."""
        return tuple(name for name in self.gates if name != GATE) if self.gates else ()

    @property
    def is_pending(self) -> bool:
        """Whether the pod still waits for a node."""
        return not (self.node_name or self.deleting or self.is_finished)

    @property
    def is_finished(self) -> bool:
        """Whether the pod will never run again."""
        return self.phase in {"Succeeded", "Failed"}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_pod(obj: Mapping[str, object]) -> Pod:
    """A core/v1 Pod; ``apiVersion`` and ``kind`` may be absent, as in kube-scheduler's requests.

    Raises InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader("Pod", obj if "apiVersion" in obj else {**obj, "apiVersion": "v1"}, ("v1",))
    metadata, spec, status = reader.metadata, reader.top.child("spec"), reader.top.child("status")
    of_spec = _of_spec(spec)
    namespace, uid, resource_version = metadata.each_text("namespace", "uid", "resourceVersion")
    node_name, scheduler_name, preemption_policy = spec.each_text("nodeName", "schedulerName", "preemptionPolicy")
    phase, nominated_node = status.each_text("phase", "nominatedNodeName")
    conditions, of_claims = read_conditions(status), read_claim_resources(status.data)
    pod = Pod(
        namespace=namespace or "default",
        name=reader.name,
        uid=uid,
        resource_version=resource_version,
        node_name=node_name,
        nominated_node=(kept := Keeping.of(conditions)).node or nominated_node,
        kept=kept,
        priority=spec.integer("priority"),
        phase=phase,
        deleting=reader.deleting,
        scheduler_name=scheduler_name,
        claims=of_spec.claims,
        claim_statuses=dict(map(_claim_status, status.children("resourceClaimStatuses"))),
        extended_claim=read_extended_claim(status) if "extendedResourceClaimStatus" in status.data else None,
        containers=of_spec.containers,
        marker=of_spec.marker,
        labels=_short(metadata.text_mapping("labels")),
        created=reader.created,
        has_started=has_started(phase, conditions),
        started=(status.time_or_none("startTime") or "") if "startTime" in status.data else "",
        may_preempt=preemption_policy != "Never",
        has_volumes=VOLUMES in of_spec.unmodeled,
        requirements=of_spec.requirements,
        gates=of_spec.gates,
        is_rejected=any(map(_is_rejected, conditions)),
        unmodeled=of_spec.unmodeled,
        policy=(annotations := metadata.text_mapping("annotations")).get(POLICY),
        gang=read_membership(annotations, pod_group := _pod_group(spec)),
        pod_group=pod_group,
        cpu=of_spec.cpu,
        resources=replace(of_spec.resources, claims=of_claims) if of_claims else of_spec.resources,
        controller=read_controller(metadata),
        is_told=any(map(says_that_it_waits, conditions)),
        fence=fence_of(conditions),
    )
    reader.finish()
    return pod


def parse_whole_pod(obj: Mapping[str, object]) -> Pod:
    """A core/v1 Pod with all that kube-scheduler's default filters read, except volumes. Errors: as `parse_pod`."""
    pod = parse_pod(obj)
    reader = ObjectReader("Pod", obj if "apiVersion" in obj else {**obj, "apiVersion": "v1"}, ("v1",))
    spec = reader.top.child("spec")
    conditions = read_pod_conditions(spec, *spec.each_children("initContainers", "containers"))
    reader.finish()
    return replace(pod, conditions=conditions)


class _OfSpec(NamedTuple):
    """The fields of a `Pod` that depend on the same fields of its spec, and on nothing else."""

    claims: tuple[PodClaim, ...]
    containers: tuple[RequestingContainer, ...]
    marker: int | None
    requirements: NodeRequirements
    gates: tuple[str, ...]
    unmodeled: tuple[str, ...]
    cpu: int
    resources: PodResources


_SPEC_FIELDS: Final = (
    *("initContainers", "containers", "resourceClaims", "schedulingGates", "volumes", "nodeSelector", "affinity"),
    *("tolerations", "topologySpreadConstraints", "overhead", "resources"),
)
"""The fields that `_read_spec` gets to see."""

_LONGEST_SPEC: Final = 16 * 1024
_SPEC_BYTES: Final = 1_000_000
_specs: Final[Recent[_OfSpec]] = Recent(_SPEC_BYTES, lambda text, _: len(text))
"""By the JSON of `_SPEC_FIELDS`. What is read of it takes several times as many bytes."""


def _of_spec(spec: Fields) -> _OfSpec:
    """What a spec says, remembered: until a pod runs, its scheduler and the watch send the same spec several times."""
    try:
        text = orjson.dumps(list(map(spec.data.get, _SPEC_FIELDS)))
    except orjson.JSONEncodeError:  # halves of surrogate pairs, and numbers of more than 64 bits
        return _read_spec(spec.only(_SPEC_FIELDS))
    found = _specs.find(text)
    if found is None:
        before = len(spec.problems)
        found = _read_spec(spec.only(_SPEC_FIELDS))
        if len(text) <= _LONGEST_SPEC and len(spec.problems) == before:
            _specs.keep(memoryview(text).tobytes(), found)  # the buffer of orjson may be much longer
    return found


def _read_spec(spec: Fields) -> _OfSpec:
    init, main, claims, gates = spec.each_children("initContainers", "containers", "resourceClaims", "schedulingGates")
    has_volumes = uses_volumes(spec)
    return _OfSpec(
        claims=tuple(map(read_pod_claim, claims)),
        containers=read_containers(init, main),
        marker=_read_marker(init, main),
        requirements=read_requirements(spec),
        gates=tuple(each.required_text("name") for each in gates),
        unmodeled=unmodeled_conditions(spec, (*init, *main), has_volumes=has_volumes),
        cpu=cpu_request(spec.data),
        resources=read_pod_resources(spec.data),
    )


def _short(labels: Mapping[str, str]) -> Mapping[str, str]:
    """The labels, as far as there is room for them. Only PodDisruptionBudgets are compared with them."""
    if len(labels) <= _FEW_LABELS:
        return labels
    lengths = accumulate(len(name) + len(value) for name, value in labels.items())
    return {name: value for (name, value), length in zip(labels.items(), lengths, strict=True) if length <= _LABELS}


def _pod_group(spec: Fields) -> str:
    return spec.child("schedulingGroup").text("podGroupName") if "schedulingGroup" in spec.data else ""


def _claim_status(fields: Fields) -> tuple[str, str | None]:
    """An entry of ``status.resourceClaimStatuses``: a name in ``spec.resourceClaims``, and the name of its claim."""
    return fields.required_text("name"), fields.text_or_none("resourceClaimName")


def read_pod_claim(fields: Fields) -> PodClaim:
    """An entry of ``spec.resourceClaims`` of a pod or PodGroup."""
    found = PodClaim(
        fields.required_text("name"),
        fields.text_or_none("resourceClaimName"),
        fields.text_or_none("resourceClaimTemplateName"),
    )
    if (found.claim_name is None) == (found.template_name is None):
        fields.problem("", "exactly one of resourceClaimName and resourceClaimTemplateName must be set")
    return found


def parse_counted_pod(obj: Mapping[str, object]) -> Pod:
    """A core/v1 Pod. Of a pod that uses no devices and names no gang, only what counts is read.

    Raises:
        InvalidObjectError: all fields with a wrong type, if a field that counts or tells of devices is one of them.
    """
    return _read_plain(obj, "") or parse_pod(obj)


def parse_waiting_pod(obj: Mapping[str, object]) -> Pod:
    """A core/v1 Pod that a scheduler asks about. As `parse_counted_pod`, and with its uid.

    Raises:
        InvalidObjectError: as `parse_counted_pod`.
    """
    metadata = obj.get("metadata")
    uid = metadata.get("uid", "") if isinstance(metadata, dict) and "deletionTimestamp" not in metadata else None
    return (_read_plain(obj, uid) if isinstance(uid, str) else None) or parse_pod(obj)


def _read_plain(obj: Mapping[str, object], uid: str) -> Pod | None:
    """What counts; None if the pod has to be read in full."""
    metadata, spec = obj.get("metadata"), obj.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or not _is_plain(metadata, spec):
        return None
    key = key_of(obj)
    if not key.name:
        return None
    status = obj.get("status") or {}
    node, phase = spec.get("nodeName", ""), status.get("phase", "") if isinstance(status, dict) else None
    if not isinstance(node, str) or not isinstance(phase, str):
        return None
    return Pod(key.namespace or "default", key.name, uid, node_name=node, phase=phase, cpu=cpu_request(spec))


def _is_plain(metadata: Mapping[str, object], spec: Mapping[str, object]) -> bool:
    """Whether a pod certainly uses no devices and names no gang."""
    if spec.get("resourceClaims") or spec.get("schedulingGroup"):
        return False
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict) or GROUP in annotations or GROUP_SIZE in annotations:
        return False
    for containers in (spec.get("containers"), spec.get("initContainers")):
        if containers and not (isinstance(containers, list) and all(map(_is_plain_container, containers))):
            return False
    return True


def _is_plain_container(container: object) -> bool:
    resources = (container.get("resources") or {}) if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return False
    for amounts in (resources.get("limits"), resources.get("requests")):
        if amounts and not (isinstance(amounts, dict) and not any(map(is_extended, amounts))):
            return False
    return True
