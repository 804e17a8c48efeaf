"""Pods as values, with only the fields that decisions need: there are tens of thousands.

Most pods of a cluster have no devices. Of such a pod, only its node and its CPU count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from allocator import ObjectReader
from allocator.tools import Fields
from extender.cluster.objects.pod_fields import (
    ANY_NODE,
    GROUP,
    GROUP_SIZE,
    NOTHING_KEPT,
    ExtendedClaim,
    GangKey,
    Keeping,
    Membership,
    NodeRequirements,
    Owner,
    RequestingContainer,
    fence_of,
    has_started,
    is_extended,
    read_conditions,
    read_containers,
    read_controller,
    read_extended_claim,
    read_membership,
    read_requirements,
    unmodeled_conditions,
    uses_volumes,
)
from extender.cluster.resources import NO_RESOURCES, PodResources, cpu_request, read_pod_resources
from extender.kube.api import ObjectKey
from extender.kube.raw import key_of

_FEW_LABELS: Final = 32
"""A label has at most 380 characters."""

_LABELS: Final = 16 * 1024
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
        claims: in the order of ``spec.resourceClaims``.
        claim_statuses: name in ``spec.resourceClaims`` to the name of its claim; None: no claim is needed.
        containers: those that request extended resources.
        has_started: kubelet has made its sandbox, so it had its claims then.
        started: when it began to run; empty if that is not known.
        may_preempt: its ``preemptionPolicy`` is not "Never".
        has_volumes: it uses PersistentVolumeClaims, whose volumes may be created on its node.
        gates: names of its scheduling gates; while there is one, no scheduler tries it.
        unmodeled: conditions that kube-scheduler checks and that the extender does not know, in words.
        policy: the name in its annotation `POLICY`; None without the annotation.
        gang: what it says about its gang; None if it is in no gang.
        pod_group: the name of its PodGroup (``spec.schedulingGroup``); empty if it is in none.
        cpu: what its scheduler reserves for it, in thousandths of a core.
        resources: what it requests of its node, also by its claims.
        controller: what makes it again after it is deleted; None: nothing does.
        fence: the latest fence (`extender.writes.writer.Writer.fence`); empty if there was none; not compared.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(default="", compare=False)
    node_name: str = ""
    nominated_node: str = ""
    kept: Keeping = NOTHING_KEPT
    priority: int = 0
    phase: str = ""
    deleting: bool = False
    scheduler_name: str = ""
    claims: tuple[PodClaim, ...] = ()
    claim_statuses: Mapping[str, str | None] = field(default_factory=dict)
    extended_claim: ExtendedClaim | None = None
    containers: tuple[RequestingContainer, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    has_started: bool = False
    started: str = ""
    may_preempt: bool = True
    has_volumes: bool = False
    requirements: NodeRequirements = ANY_NODE
    gates: tuple[str, ...] = ()
    unmodeled: tuple[str, ...] = ()
    policy: str | None = None
    gang: Membership | None = None
    pod_group: str = ""
    cpu: int = 0
    resources: PodResources = NO_RESOURCES
    controller: Owner | None = None
    fence: str = field(default="", compare=False)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def order(self) -> tuple[int, str, str]:
        """By this key, the most important pods come first, then the oldest."""
        return -self.priority, self.created, self.uid

    @property
    def gang_key(self) -> GangKey | None:
        """The gang that it names; None if it names none."""
        return None if self.gang is None else GangKey(self.namespace, self.gang.name, self.gang.is_pod_group)

    @property
    def needs_devices(self) -> bool:
        """It names claims or requests extended resources."""
        return bool(self.claims or self.containers)

    @property
    def is_pending(self) -> bool:
        """It still waits for a node."""
        return not (self.node_name or self.deleting or self.is_finished)

    @property
    def is_finished(self) -> bool:
        """It will never run again."""
        return self.phase in {"Succeeded", "Failed"}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_pod(obj: Mapping[str, object]) -> Pod:
    """A core/v1 Pod; ``apiVersion`` and ``kind`` may be absent, as in kube-scheduler's requests.

    Raises:
        InvalidObjectError: all fields with a wrong type.
    """
    reader = ObjectReader("Pod", obj if "apiVersion" in obj else {**obj, "apiVersion": "v1"}, ("v1",))
    metadata, spec, status = reader.metadata, reader.top.child("spec"), reader.top.child("status")
    init, main = spec.children("initContainers"), spec.children("containers")
    phase, conditions = status.text("phase"), read_conditions(status)
    annotations = metadata.text_mapping("annotations")
    kept = Keeping.of(conditions)
    pod = Pod(
        namespace=metadata.text("namespace") or "default",
        name=reader.name,
        uid=metadata.text("uid"),
        resource_version=metadata.text("resourceVersion"),
        node_name=spec.text("nodeName"),
        nominated_node=kept.node or status.text("nominatedNodeName"),
        kept=kept,
        priority=spec.integer("priority"),
        phase=phase,
        deleting=reader.deleting,
        scheduler_name=spec.text("schedulerName"),
        claims=tuple(read_pod_claim(each) for each in spec.children("resourceClaims")),
        claim_statuses={
            each.required_text("name"): each.text_or_none("resourceClaimName")
            for each in status.children("resourceClaimStatuses")
        },
        extended_claim=read_extended_claim(status),
        containers=read_containers(init, main),
        labels=_short(metadata.text_mapping("labels")),
        created=reader.created,
        has_started=has_started(phase, conditions),
        started=status.time_or_none("startTime") or "",
        may_preempt=spec.text("preemptionPolicy") != "Never",
        has_volumes=(has_volumes := uses_volumes(spec)),
        requirements=read_requirements(spec),
        gates=tuple(each.required_text("name") for each in spec.children("schedulingGates")),
        unmodeled=unmodeled_conditions(spec, (*init, *main), has_volumes=has_volumes),
        policy=annotations.get(POLICY),
        gang=read_membership(annotations, pod_group := _pod_group(spec)),
        pod_group=pod_group,
        cpu=cpu_request(spec.data),
        resources=read_pod_resources(spec.data, status.data),
        controller=read_controller(metadata),
        fence=fence_of(conditions),
    )
    reader.finish()
    return pod


def _short(labels: Mapping[str, str]) -> Mapping[str, str]:
    """The labels, as far as there is room for them. Only PodDisruptionBudgets are compared with them."""
    if len(labels) <= _FEW_LABELS:
        return labels
    lengths = accumulate(len(name) + len(value) for name, value in labels.items())
    return {name: value for (name, value), length in zip(labels.items(), lengths, strict=True) if length <= _LABELS}


def _pod_group(spec: Fields) -> str:
    return spec.child("schedulingGroup").text("podGroupName") if spec.has("schedulingGroup") else ""


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
    metadata, spec, key = obj.get("metadata"), obj.get("spec"), key_of(obj)
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or not key.name or not _is_plain(metadata, spec):
        return None
    status = obj.get("status") or {}
    node, phase = spec.get("nodeName", ""), status.get("phase", "") if isinstance(status, dict) else None
    if not isinstance(node, str) or not isinstance(phase, str):
        return None
    return Pod(key.namespace or "default", key.name, uid, node_name=node, phase=phase, cpu=cpu_request(spec))


def _is_plain(metadata: Mapping[str, object], spec: Mapping[str, object]) -> bool:
    """Whether a pod certainly uses no devices and names no gang."""
    annotations = metadata.get("annotations") or {}
    if spec.get("resourceClaims") or spec.get("schedulingGroup") or not isinstance(annotations, dict):
        return False
    containers = spec.get("containers") or [], spec.get("initContainers") or []
    return (
        GROUP not in annotations
        and GROUP_SIZE not in annotations
        and all(isinstance(each, list) and all(map(_is_plain_container, each)) for each in containers)
    )


def _is_plain_container(container: object) -> bool:
    resources = (container.get("resources") or {}) if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return False
    amounts = resources.get("limits") or {}, resources.get("requests") or {}
    return all(isinstance(each, dict) and not any(map(is_extended, each)) for each in amounts)
