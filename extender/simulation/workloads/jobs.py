"""Workloads that run to an end: Job, CronJob and JobSet.

Source: the job and cronjob controllers of kube-controller-manager (Kubernetes 1.36), and JobSet (v1alpha2).
"""

from collections.abc import Iterator, Mapping

from allocator.tools import Fields
from extender.simulation.workloads.workload import JsonObject, NotRunError, Workload, labelled

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
