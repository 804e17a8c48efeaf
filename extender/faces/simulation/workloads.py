"""Workloads and their pods: what the controllers of Deployments, StatefulSets, DaemonSets, Jobs and JobSets make."""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from allocator import InvalidObjectError, Problem
from allocator.tools import Fields, raise_if_invalid
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import parse_pod
from extender.cluster.priority_classes import ONLY_BUILT_IN, PriorityClasses
from extender.kube.resources import PODS
from extender.lab.manifests import ManifestObject
from extender.planning.kube_scheduler import rejection, tolerating

JsonObject = dict[str, Any]

MOST_PODS: Final = 50_000
"""Pods of one workload. A controller has no limit, but memory has."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes makes names of these: no vowels, so that no words come out."""

_LONGEST_PREFIX: Final = 58
"""Of a name that gets a suffix: an API server cuts longer ones."""

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class NotRunError(Exception):
    """The workload makes no pods now; the text says why."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload, whose controller has the rules.

    Attributes:
        data: the object; it has a name and a namespace.
        children: objects of the manifests that it controls already.
        nodes: of the cluster, in the order of the manifests.
    """

    data: Mapping[str, Any]
    children: Sequence[Mapping[str, Any]]
    nodes: Sequence[NodeObject]

    @property
    def kind(self) -> str:
        """The kind."""
        return str(self.data["kind"])

    @property
    def name(self) -> str:
        """The name."""
        return str(self.data["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace."""
        return str(self.data["metadata"]["namespace"])

    @property
    def spec(self) -> Fields:
        """The spec; who has read it calls `check`."""
        return Fields(self.data, "", []).child("spec")

    def check(self, fields: Fields) -> None:
        """Raises InvalidObjectError: problems were noted while the fields were read."""
        raise_if_invalid(self.kind, f"{self.namespace}/{self.name}", fields.problems)

    def number(self, fields: Fields, name: str, default: int) -> int:
        """A number of pods, objects or indexes; a wrong one is noted as a problem."""
        found = fields.integer(name, default)
        if not 0 <= found <= MOST_PODS:
            fields.problem(name, f"{found} is not a number from 0 to {MOST_PODS}")
        return found

    def living(self) -> list[Mapping[str, Any]]:
        """The pods that it has already and that are not finished."""
        pods = (child for child in self.children if child["kind"] == "Pod")
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _FINISHED]

    def has(self, kind: str) -> bool:
        """Whether it controls an object of a kind already."""
        return any(child["kind"] == kind for child in self.children)

    def child(self, kind: str, api_version: str, name: str, template: Fields, **more: Mapping[str, str]) -> JsonObject:
        """An object of a template.

        Args:
            kind: of the new object.
            api_version: of the new object.
            name: of the new object.
            template: with metadata and spec.
            more: labels and annotations besides those of the template.

        Raises:
            InvalidObjectError: the template cannot be read.
        """
        given, spec = template.child("metadata"), template.mapping("spec")
        maps = {field: {**given.text_mapping(field), **more.get(field, {})} for field in ("labels", "annotations")}
        self.check(template)
        own = self.data["metadata"]
        metadata: JsonObject = {"name": name, "namespace": self.namespace, **{k: v for k, v in maps.items() if v}}
        if "creationTimestamp" in own:
            metadata["creationTimestamp"] = own["creationTimestamp"]
        owner = {"apiVersion": self.data["apiVersion"], "kind": self.kind, "name": self.name, "controller": True}
        metadata["ownerReferences"] = [owner | {"uid": own["uid"]} if "uid" in own else owner]
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def pod(self, name: str, **more: Mapping[str, str]) -> JsonObject:
        """A pod of ``spec.template``; see `child`."""
        return self.child("Pod", "v1", name, self.spec.child("template"), **more)

    def suffixed(self, prefix: str, *of: object) -> str:
        """A name as an API server makes it of a prefix; the suffix depends on the workload alone."""
        seed = orjson.dumps([self.kind, self.namespace, self.name, prefix, *map(str, of)])
        return f"{prefix[:_LONGEST_PREFIX]}{encoded(hashlib.sha256(seed).digest()[:5])}"


def encoded(values: Iterable[int]) -> str:
    """Numbers as letters that names are made of."""
    return "".join(_LETTERS[value % len(_LETTERS)] for value in values)


def labelled(template: Fields, labels: Mapping[str, str]) -> JsonObject:
    """A pod template with more labels."""
    metadata = template.child("metadata")
    return {**template.data, "metadata": {**metadata.data, "labels": {**metadata.text_mapping("labels"), **labels}}}


def of_deployment(workload: Workload) -> Iterator[JsonObject]:
    """One ReplicaSet, named by a hash of the template. A rollout is over in one step."""
    spec = workload.spec
    replicas, template = workload.number(spec, "replicas", 1), spec.child("template")
    workload.check(spec)
    if workload.has("ReplicaSet"):
        raise NotRunError("its ReplicaSets are among the manifests")
    number = zlib.crc32(orjson.dumps(template.data, option=orjson.OPT_SORT_KEYS))
    label = {"pod-template-hash": encoded(str(number).encode())}
    inner = {"replicas": replicas, "template": labelled(template, label)}
    made = Fields({"spec": inner}, "", [])
    yield workload.child("ReplicaSet", "apps/v1", f"{workload.name}-{label['pod-template-hash']}", made, labels=label)


def of_replica_set(workload: Workload) -> Iterator[JsonObject]:
    """Pods until there are as many as wanted; also for a ReplicationController."""
    spec = workload.spec
    replicas = workload.number(spec, "replicas", 1)
    workload.check(spec)
    for index in range(replicas - len(workload.living())):
        yield workload.pod(workload.suffixed(f"{workload.name}-", index))


def of_stateful_set(workload: Workload) -> Iterator[JsonObject]:
    """A pod for each ordinal that has none. All are made at once, whatever ``podManagementPolicy`` says."""
    spec = workload.spec
    first, replicas = workload.number(spec.child("ordinals"), "start", 0), workload.number(spec, "replicas", 1)
    workload.check(spec)
    there = {child["metadata"]["name"] for child in workload.children}
    for ordinal in range(first, first + replicas):
        name = f"{workload.name}-{ordinal}"
        if name not in there:
            labels = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(ordinal)}
            yield workload.pod(name, labels=labels)


def of_daemon_set(workload: Workload) -> Iterator[JsonObject]:
    """A pod for each node that its node selection and tolerations allow, and that has none."""
    made = workload.pod(workload.name)
    pod = {**made, "spec": tolerating(made["spec"])}
    parsed = parse_pod(pod)
    there = {child.get("spec", {}).get("nodeName") for child in workload.living()}
    for node in workload.nodes:
        is_meant = parsed.node_name in {"", node.name}
        if is_meant and node.name not in there and not rejection(parsed.requirements, node):
            name = workload.suffixed(f"{workload.name}-", node.name)
            yield {
                **pod,
                "metadata": {**pod["metadata"], "name": name},
                "spec": _pinned_to_node(pod["spec"], node.name),
            }


def _pinned_to_node(spec: dict[str, Any], node: str) -> dict[str, Any]:
    """The spec for one node only: the scheduler puts the pod there, and the node's devices decide."""
    affinity = spec.get("affinity") or {}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    by_node = {**(affinity.get("nodeAffinity") or {}), **required}
    return {**spec, "affinity": {**affinity, "nodeAffinity": by_node}}


_INDEX = "batch.kubernetes.io/job-completion-index"


def of_job(workload: Workload) -> Iterator[JsonObject]:
    """The pods that run at the same time in the beginning; those that come after them are not made."""
    spec = workload.spec
    parallelism = workload.number(spec, "parallelism", 1)
    is_indexed = spec.text("completionMode") == "Indexed"
    status = Fields(workload.data, "", spec.problems).child("status")
    left = workload.number(spec, "completions", parallelism) - workload.number(status, "succeeded", 0)
    ended = any(
        each.text("type") in {"Complete", "Failed"} and each.text("status") == "True"
        for each in status.children("conditions")
    )
    if is_indexed and not spec.has("completions"):
        spec.problem("completions", "is required if completionMode is Indexed")
    workload.check(spec)
    _check_running(spec)
    if ended:
        raise NotRunError("it has ended")
    labels = {f"{domain}job-name": workload.name for domain in ("", "batch.kubernetes.io/")}
    there = {_index_of(pod) for pod in workload.living()} if is_indexed else set()
    for number in range(max(0, min(parallelism, left) - (0 if is_indexed else len(workload.living())))):
        index = str(number)
        if not is_indexed:
            yield workload.pod(workload.suffixed(f"{workload.name}-", number), labels=labels)
        elif index not in there:
            name = workload.suffixed(f"{workload.name}-{index}-", number)
            yield workload.pod(name, labels={**labels, _INDEX: index}, annotations={_INDEX: index})


def of_cron_job(workload: Workload) -> Iterator[JsonObject]:
    """One run. Its Job is named after minute 0, because a simulation has no clock."""
    spec = workload.spec
    template = spec.child("jobTemplate")
    workload.check(spec)
    _check_running(spec)
    if workload.has("Job"):
        raise NotRunError("a Job of it is among the manifests")
    yield workload.child("Job", "batch/v1", f"{workload.name}-0", template)


def of_job_set(workload: Workload) -> Iterator[JsonObject]:
    """The Jobs of each of ``spec.replicatedJobs``; a Job without ``completionMode`` is Indexed."""
    spec = workload.spec
    groups = [
        (each.required_text("name"), workload.number(each, "replicas", 1), each.child("template"))
        for each in spec.children("replicatedJobs")
    ]
    workload.check(spec)
    _check_running(spec)
    if workload.has("Job"):
        raise NotRunError("its Jobs are among the manifests")
    for group, replicas, template in groups:
        for index in range(replicas):
            yield _job_of_set(workload, group, index, template)


def _job_of_set(workload: Workload, group: str, index: int, template: Fields) -> JsonObject:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": workload.name,
        "jobset.sigs.k8s.io/replicatedjob-name": group,
        "jobset.sigs.k8s.io/job-index": str(index),
    }
    spec = template.child("spec")
    indexed = {"completionMode": "Indexed", "completions": spec.integer("parallelism", 1)}
    inner = {**indexed, **spec.data, "template": labelled(spec.child("template"), labels)}
    made = Fields({**template.data, "spec": inner}, template.path, template.problems)
    return workload.child("Job", "batch/v1", f"{workload.name}-{group}-{index}", made, labels=labels)


def _check_running(spec: Fields) -> None:
    if spec.flag("suspend"):
        raise NotRunError("it is suspended")


def _index_of(pod: Mapping[str, object]) -> str:
    return Fields(pod, "", []).child("metadata").child("annotations").text(_INDEX)


KINDS: Final[Mapping[tuple[str, str], Callable[[Workload], Iterator[JsonObject]]]] = {
    ("apps/v1", "Deployment"): of_deployment,
    ("apps/v1", "ReplicaSet"): of_replica_set,
    ("v1", "ReplicationController"): of_replica_set,
    ("apps/v1", "StatefulSet"): of_stateful_set,
    ("apps/v1", "DaemonSet"): of_daemon_set,
    ("batch/v1", "Job"): of_job,
    ("batch/v1", "CronJob"): of_cron_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): of_job_set,
}
"""By API version and kind: what the controller makes, pods or workloads that make pods."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An object that a simulation does not run.

    Attributes:
        name: with the namespace, if it has one.
        reason: why; empty for a kind that a simulation does not use.
    """

    kind: str
    name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.reason}" if self.reason else f"{self.kind} {self.name}"


@dataclass(slots=True)
class ExpandedWorkloads:
    """Objects with the pods of workloads in the place of the workloads.

    Attributes:
        problems: what is wrong with a workload, which has no pods then.
    """

    objects: list[ManifestObject] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def expanded(
    documents: Sequence[ManifestObject],
    classes: PriorityClasses = ONLY_BUILT_IN,
    there: Iterable[NodeObject] = (),
) -> ExpandedWorkloads:
    """The objects of some manifests, with pods instead of workloads.

    Args:
        documents: all objects, whatever their kind.
        classes: the priority classes of the cluster.
        there: nodes that the cluster has besides those of the manifests.
    """
    found = ExpandedWorkloads()
    nodes = [*there, *(each.value for each in documents if isinstance(each.value, NodeObject))]
    around = _Around(_children(documents), nodes, classes)
    for each in documents:
        if each.is_used:
            found.objects.append(each)
        elif (each.data["apiVersion"], each.kind) not in KINDS:
            found.skipped.append(Skipped(each.kind, each.full_name, _unknown(each.data)))
        else:
            try:
                found.objects += _pods(each, _named(each), around)
            except NotRunError as error:
                found.skipped.append(Skipped(each.kind, each.full_name, str(error)))
            except InvalidObjectError as error:
                found.problems += (f"{each.source}: {each}: {problem}" for problem in error.problems)
    return found


_Children = Mapping[tuple[str, str, str], Sequence[Mapping[str, Any]]]


class _Around(NamedTuple):
    """The objects of the cluster beside a workload."""

    children: _Children
    nodes: Sequence[NodeObject]
    classes: PriorityClasses


def _children(documents: Iterable[ManifestObject]) -> _Children:
    """Objects by kind, namespace and name of their controller."""
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for each in documents:
        metadata = Fields(each.data, "", []).child("metadata")
        for owner in metadata.children("ownerReferences"):
            if owner.flag("controller"):
                key = owner.text("kind"), each.namespace or "default", owner.text("name")
                found.setdefault(key, []).append(each.data)
    return found


def _pods(origin: ManifestObject, data: JsonObject, around: _Around) -> list[ManifestObject]:
    """The pods of a workload, and of the workloads that it makes.

    Raises:
        NotRunError: it makes none now.
        InvalidObjectError: it cannot be read.
    """
    key = data["kind"], data["metadata"]["namespace"], data["metadata"]["name"]
    workload = Workload(data, around.children.get(key, ()), around.nodes)
    found: list[ManifestObject] = []
    for made in KINDS[data["apiVersion"], data["kind"]](workload):
        if made["kind"] != PODS.kind:
            found += _pods(origin, made, around)
        else:
            if not found:
                _check_pod(made, origin, around.classes)
            name = str(made["metadata"]["name"])
            found.append(ManifestObject(PODS.kind, workload.namespace, name, made, origin.source, origin.document))
        if len(found) > MOST_PODS:
            raise NotRunError(f"it would make more than {MOST_PODS} pods")
    return found


_TEMPLATES: Final = {
    "CronJob": "spec.jobTemplate.spec.template",
    "JobSet": "spec.replicatedJobs[*].template.spec.template",
}
"""Where a workload has its pod template, if that is not ``spec.template``."""


def _check_pod(pod: JsonObject, origin: ManifestObject, classes: PriorityClasses) -> None:
    """Raises InvalidObjectError: an API server refuses a pod of a workload; the paths are those in the workload."""
    try:
        parse_pod(pod)
        spec = Fields(pod, "", []).child("spec")
        classes.admitted(spec)
        raise_if_invalid(origin.kind, origin.name, spec.problems)
    except InvalidObjectError as error:
        place = _TEMPLATES.get(origin.kind, "spec.template")
        problems = tuple(Problem(f"{place}.{each.path}", each.message) for each in error.problems)
        raise InvalidObjectError(origin.kind, origin.name, problems) from error


def _named(each: ManifestObject) -> JsonObject:
    """A workload's object, with its namespace. Raises InvalidObjectError: it has no name."""
    metadata = Fields(each.data, "", []).child("metadata")
    name = metadata.required_text("name")
    raise_if_invalid(each.kind, name, metadata.problems)
    return {**each.data, "metadata": {**metadata.data, "namespace": each.namespace or "default"}}


def _unknown(data: Mapping[str, Any]) -> str:
    """The reason why an object of another kind is skipped, if it has a pod template."""
    spec = data.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else None
    return "pods of this kind are not made" if isinstance(inner, dict) and "containers" in inner else ""
