"""The jobs that are asked about, kept up with the cluster: most workloads of a cluster wait for quota, or run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.kueue import AdmissionCheck, Workload
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import ANYTHING
from extender.kube.api import ObjectKey
from extender.plugins.admission_checks import CONTROLLER
from extender.plugins.admission_checks.jobs import Job

_HELPFUL = frozenset(
    {
        *(Topic.NODE, Topic.POOL, Topic.CLASS, Topic.TAINT_RULE, Topic.CLAIM, Topic.TEMPLATE, Topic.POD),
        *(Topic.POD_GROUP, Topic.DEVICE_QUOTA, Topic.FLAVOR),
    }
)
"""Topics whose changes may alter an answer. Those of workloads are compared one by one."""


@dataclass(slots=True)
class KnownJobs:
    """The jobs with quota that have a check of ours.

    Attributes:
        state: the cluster.
        checks: the AdmissionChecks that name our controller.
        jobs: by the key of the workload.
        is_changed: something has changed that answers depend on; whoever answers sets it to False.
    """

    state: ClusterState
    checks: Sequence[AdmissionCheck] = ()
    jobs: dict[ObjectKey, Job] = field(default_factory=dict)
    is_changed: bool = True
    _seen: Snapshot | None = None

    def follow(self) -> Snapshot:
        """Take in what has changed, and return the cluster that is known now."""
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
        """The jobs that devices are kept for, and those that wait. Those that run are forgotten: they ask no more."""
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
