"""The pods of all workloads of some manifests, and what makes no pods, with the reason."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from allocator import InvalidObjectError, Problem, raise_if_invalid
from allocator.tools import Fields
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import parse_pod
from extender.fakekube.manifests import ManifestObject
from extender.kube.resources import PODS
from extender.simulation.workloads import daemons, jobs, replicas
from extender.simulation.workloads.workload import MOST_PODS, JsonObject, NotRunError, Workload

KINDS: Final[Mapping[tuple[str, str], Callable[[Workload], Iterator[JsonObject]]]] = {
    ("apps/v1", "Deployment"): replicas.of_deployment,
    ("apps/v1", "ReplicaSet"): replicas.of_replica_set,
    ("v1", "ReplicationController"): replicas.of_replica_set,
    ("apps/v1", "StatefulSet"): replicas.of_stateful_set,
    ("apps/v1", "DaemonSet"): daemons.of_daemon_set,
    ("batch/v1", "Job"): jobs.of_job,
    ("batch/v1", "CronJob"): jobs.of_cron_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): jobs.of_job_set,
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


def expanded(documents: Sequence[ManifestObject], there: Iterable[NodeObject] = ()) -> ExpandedWorkloads:
    """The objects of some manifests, with pods instead of workloads.

    Args:
        documents: all objects, whatever their kind.
        there: nodes that the cluster has besides those of the manifests.
    """
    found = ExpandedWorkloads()
    nodes = [*there, *(each.value for each in documents if isinstance(each.value, NodeObject))]
    children = _children(documents)
    for each in documents:
        if each.is_used:
            found.objects.append(each)
        elif (each.data["apiVersion"], each.kind) not in KINDS:
            found.skipped.append(Skipped(each.kind, each.full_name, _unknown(each.data)))
        else:
            try:
                found.objects += _pods(each, _named(each), children, nodes)
            except NotRunError as error:
                found.skipped.append(Skipped(each.kind, each.full_name, str(error)))
            except InvalidObjectError as error:
                found.problems += (f"{each.source}: {each}: {problem}" for problem in error.problems)
    return found


_Children = Mapping[tuple[str, str, str], Sequence[Mapping[str, Any]]]


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


def _pods(
    origin: ManifestObject, data: JsonObject, children: _Children, nodes: Sequence[NodeObject]
) -> list[ManifestObject]:
    """The pods of a workload, and of the workloads that it makes.

    Raises:
        NotRunError: it makes none now.
        InvalidObjectError: it cannot be read.
    """
    workload = Workload(
        data, children.get((data["kind"], data["metadata"]["namespace"], data["metadata"]["name"]), ()), nodes
    )
    found: list[ManifestObject] = []
    for made in KINDS[data["apiVersion"], data["kind"]](workload):
        if made["kind"] != PODS.kind:
            found += _pods(origin, made, children, nodes)
        else:
            if not found:
                _check_pod(made, workload)
            name = str(made["metadata"]["name"])
            found.append(ManifestObject(PODS.kind, workload.namespace, name, made, origin.source, origin.document))
        if len(found) > MOST_PODS:
            raise NotRunError(f"it would make more than {MOST_PODS} pods")
    return found


def _check_pod(pod: JsonObject, workload: Workload) -> None:
    """Raises InvalidObjectError: a pod of a workload cannot be read; the paths are those in the workload."""
    try:
        parse_pod(pod)
    except InvalidObjectError as error:
        problems = tuple(Problem(f"spec.template.{each.path}", each.message) for each in error.problems)
        raise InvalidObjectError(workload.kind, workload.name, problems) from error


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
