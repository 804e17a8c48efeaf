"""Workloads of every kind, for simulations: their controllers make pods of them."""

from typing import Any, Final

from tests.corpus.chance import Draw
from tests.corpus.machines import EXTENDED
from tests.kit.clusters import Object, claim_template

_LABELS: Final = {"app": "work"}


def workloads(draw: Draw) -> list[Object]:
    """Some of them, with the template of their claims."""
    kinds = [_deployment, _replica_set, _stateful_set, _daemon_set, _job, _cron_job, _job_set]
    return [claim_template("work"), *(kind(draw) for kind in draw.some(kinds, 1, 3))]


def _pod(draw: Draw) -> Object:
    spec: Object = {"containers": [{"name": "c", "image": "i"}]}
    if draw(0.7):
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "work"}]
    else:
        spec["containers"][0]["resources"] = {"limits": {EXTENDED: "1"}}
    return {"metadata": {"labels": _LABELS}, "spec": spec}


def _workload(kind: str, version: str, **spec: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": kind.lower(), "namespace": "ns"}, "spec": spec}


def _replicated(draw: Draw, kind: str, **more: Any) -> Object:
    return _workload(kind, "apps/v1", selector={"matchLabels": _LABELS}, template=_pod(draw), **more)


def _deployment(draw: Draw) -> Object:
    return _replicated(draw, "Deployment", replicas=draw.number(0, 3))


def _replica_set(draw: Draw) -> Object:
    return _replicated(draw, "ReplicaSet", replicas=draw.number(1, 2))


def _stateful_set(draw: Draw) -> Object:
    return _replicated(draw, "StatefulSet", replicas=draw.number(1, 2), serviceName="s")


def _daemon_set(draw: Draw) -> Object:
    return _replicated(draw, "DaemonSet")


def _job(draw: Draw) -> Object:
    mode = draw.of(["Indexed", "NonIndexed"])
    return _workload("Job", "batch/v1", parallelism=2, completions=3, completionMode=mode, template=_pod(draw))


def _cron_job(draw: Draw) -> Object:
    return _workload("CronJob", "batch/v1", schedule="@daily", jobTemplate={"spec": {"template": _pod(draw)}})


def _job_set(draw: Draw) -> Object:
    jobs = [
        {"name": "trainers", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": _pod(draw)}}},
        {"name": "driver", "template": {"spec": {"template": _pod(draw)}}},
    ]
    return _workload("JobSet", "jobset.x-k8s.io/v1alpha2", replicatedJobs=jobs)
