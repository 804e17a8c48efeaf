"""Workloads that run a number of equal pods: Deployment, ReplicaSet, ReplicationController, StatefulSet.

Source: the controllers of the same names in kube-controller-manager, Kubernetes 1.36.
"""

import zlib
from collections.abc import Iterator

import orjson

from allocator.tools import Fields
from extender.simulation.workloads.workload import JsonObject, NotRunError, Workload, encoded, labelled


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
