"""Jobs of Kueue that admission checks are asked about: entries of the check, and stand-ins for the pods of a job.

`KnownJobs` follows the cluster, and has these jobs alone: most workloads of a cluster wait for quota, or run.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from allocator import Features
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.kueue import PENDING, READY, AdmissionCheck, CheckState, PodSet, ResourceFlavor, Workload
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import ANYTHING
from extender.framework.pods.extended_resources import without_devices
from extender.kube.api import ObjectKey
from extender.plugins.admission_checks import CONTROLLER

JOB_LABEL: Final = "dra-extender.dev/admitted-for"
"""The label of pods that a ready check has let in: the uid of the workload, and the place of the pod set in it."""

_HELPFUL = frozenset(
    {
        *(Topic.NODE, Topic.POOL, Topic.CLASS, Topic.TAINT_RULE, Topic.CLAIM, Topic.TEMPLATE, Topic.POD),
        *(Topic.POD_GROUP, Topic.DEVICE_QUOTA, Topic.FLAVOR),
    }
)
"""Topics whose changes may alter an answer. Changes of workloads are compared one by one."""


@dataclass(frozen=True, slots=True)
class Job:
    """A workload with quota and with entries of checks that are answered here.

    Attributes:
        names: the names of these checks.
    """

    workload: Workload
    names: tuple[str, ...]

    @classmethod
    def of(cls, workload: Workload | None, checks: Collection[str]) -> "Job | None":
        """Return the job of a workload; None if it has no quota yet, or none of these checks."""
        if workload is None or not workload.reserved:
            return None
        names = tuple(each.name for each in workload.checks if each.name in checks)
        return cls(workload, names) if names else None

    @property
    def states(self) -> tuple[CheckState, ...]:
        """The entries of these checks."""
        return tuple(each for each in self.workload.checks if each.name in self.names)

    @property
    def essence(self) -> tuple[object, ...]:
        """The part of the workload that decisions depend on: all but messages."""
        states = tuple((each.name, each.state, each.since, each.updates) for each in self.workload.checks)
        return replace(self.workload, checks=()), states

    @property
    def is_ready(self) -> bool:
        """Whether all entries say that there are devices."""
        return all(each.state == READY for each in self.states)

    def kept_until(self, keep: timedelta) -> datetime | None:
        """Return when others stop leaving devices to the job; None if they leave none, or the entries have no time."""
        since = max((each.since for each in self.states), default="")
        return datetime.fromisoformat(since) + keep if since and self.is_ready else None

    def is_kept(self, now: datetime, keep: timedelta) -> bool:
        """Whether others leave devices to the job."""
        until = self.kept_until(keep)
        return until is not None and now < until

    def awaits(self, now: datetime, keep: timedelta) -> bool:
        """Whether the job waits for an answer.

        A job that is ready is asked about again if other checks have kept it from being admitted in time. A job that
        is admitted gets no answer: its entry came after its pods, which hold their devices. A job also gets no answer
        if an entry gives the quota back or rejects the job: Kueue evicts the job, and the entry stays until then.
        """
        if self.workload.is_admitted:
            return False
        if self.is_ready:
            return not self.is_kept(now, keep)
        return all(each.state in (PENDING, READY) for each in self.states)

    @property
    def order(self) -> tuple[bool, int, str, str]:
        """The place of the job in its namespace: by priority, then by the time that the job has waited.

        Other jobs come before a job that is asked about again: it has had its chance.
        """
        return self.is_ready, -self.workload.priority, self.workload.reserved, self.workload.uid


def label_of(workload: Workload, place: int) -> str:
    """Return the label of the pods of a pod set."""
    return f"{workload.uid}.{place}"


@dataclass(frozen=True, slots=True)
class StandIn:
    """A pod that stands for the pods of a pod set.

    Attributes:
        pod: the pod, without a node.
        node: the only node on which the pods may run, by their ``spec.nodeName``; empty: any.
    """

    pod: Pod
    node: str = ""

    def names(self, snapshot: Snapshot, every: Sequence[str]) -> Sequence[str]:
        """Return the nodes on which the pods may run, of all nodes of a cluster."""
        if not self.node:
            return every
        return [self.node] if self.node in snapshot.nodes else []

    def hindrance(self, snapshot: Snapshot, features: Features) -> str:
        """Return why no pod gets devices on its chosen node, whatever is free there; empty if a pod may get some."""
        if not self.node:
            return ""
        if self.node not in snapshot.nodes:
            return f"node {self.node} does not exist"
        return without_devices(replace(self.pod, node_name=self.node), snapshot, features)


def stand_in(workload: Workload, place: int, snapshot: Snapshot) -> StandIn:
    """Return a pod that stands for the pods of a pod set, with what Kueue adds to them once the job is admitted.

    If the author has chosen the node, no scheduler is asked, and kubelet heeds only taints with the effect NoExecute.
    So the stand-in tolerates NoSchedule, which is the effect of a cordon as well. Source: the admission of pods in
    kubelet, Kubernetes 1.37.

    Args:
        workload: the job.
        place: the index of the pod set in the job.
        snapshot: has the flavors.

    Raises:
        InvalidObjectError: the template is no pod.
    """
    pod_set = workload.pod_sets[place]
    template: Mapping[str, Any] = orjson.loads(pod_set.template)
    metadata, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    selector, tolerations = dict(spec.get("nodeSelector") or {}), list(spec.get("tolerations") or ())
    for labels, tolerated in _additions(workload, pod_set, snapshot):
        selector |= labels
        tolerations += tolerated
    if spec.get("nodeName"):
        tolerations.append({"operator": "Exists", "effect": "NoSchedule"})
    spec |= {"nodeSelector": selector, "tolerations": tolerations, "schedulingGates": []}
    spec.setdefault("priority", workload.pod_priority)
    labels = {**(metadata.get("labels") or {}), JOB_LABEL: label_of(workload, place)}
    named = {
        "name": f"{workload.name}-{pod_set.name}",
        "namespace": workload.namespace,
        "uid": label_of(workload, place),
        "creationTimestamp": workload.reserved,
        "labels": labels,
        "annotations": metadata.get("annotations") or {},
    }
    pod = parse_pod({"metadata": named, "spec": spec, "status": {"phase": "Pending"}})
    return StandIn(replace(pod, node_name=""), pod.node_name)


def _additions(
    workload: Workload, pod_set: PodSet, snapshot: Snapshot
) -> Iterator[tuple[Mapping[str, str], list[object]]]:
    """Yield the labels that nodes need, and the tolerations, of each flavor and of each other check."""
    for name in pod_set.flavors:
        flavor = snapshot.objects(ResourceFlavor).get(name)
        if flavor is not None:
            yield flavor.labels, orjson.loads(flavor.tolerations)
    for check in workload.checks:
        added = orjson.loads((check.updates or {}).get(pod_set.name, b"{}"))
        yield added.get("nodeSelector") or {}, added.get("tolerations") or []


def copies(pod: Pod, number: int) -> Iterator[Pod]:
    """Yield this number of pods like a stand-in."""
    for each in range(number):
        yield replace(pod, name=f"{pod.name}-{each}", uid=f"{pod.uid}/{each}")


@dataclass(slots=True)
class KnownJobs:
    """The jobs with quota that have a check of ours.

    Attributes:
        state: the cluster.
        checks: the AdmissionChecks that name our controller.
        jobs: by the key of the workload.
        is_changed: whether something has changed that answers depend on; whoever answers sets it to False.
    """

    state: ClusterState
    checks: Sequence[AdmissionCheck] = ()
    jobs: dict[ObjectKey, Job] = field(default_factory=dict)
    is_changed: bool = True
    _seen: Snapshot | None = None

    def follow(self) -> Snapshot:
        """Take in the changes of the cluster, and return its newest snapshot."""
        before, now = self._seen, self.state.snapshot
        if now is before:
            return now
        self._seen = now
        reach = ANYTHING if before is None else self.state.since(before.version)
        keys: Iterable[ObjectKey] = reach.keys(Topic.WORKLOAD) or ()
        if reach.changed is None or reach.keys(Topic.ADMISSION_CHECK):
            found = now.objects(AdmissionCheck).values()
            self.checks = sorted((each for each in found if each.controller == CONTROLLER), key=lambda each: each.name)
            self.jobs, self.is_changed, keys = {}, True, now.objects(Workload)
        self.is_changed = self.is_changed or not _HELPFUL.isdisjoint(reach.changed or ())
        names = {each.name for each in self.checks}
        for key in keys if names else ():
            self._take(key, Job.of(now.objects(Workload).get(key), names))
        return now

    def asked(self, now: datetime, keep: timedelta) -> tuple[list[Job], list[Job]]:
        """Return the jobs that devices are kept for, and those that wait. Forget those that run: they ask no more."""
        kept = {key: job for key, job in self.jobs.items() if job.is_kept(now, keep)}
        waiting = {key: job for key, job in self.jobs.items() if job.awaits(now, keep)}
        self.jobs = {key: job for key, job in self.jobs.items() if key in kept or not job.workload.is_admitted}
        return list(kept.values()), list(waiting.values())

    def _take(self, key: ObjectKey, job: Job | None) -> None:
        old = self.jobs.pop(key, None)
        if job is not None:
            self.jobs[key] = job
        if (old and old.essence) != (job and job.essence):
            self.is_changed = True
