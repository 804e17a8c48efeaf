"""Workloads become pods, as their controllers make them."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from extender import Cluster, Settings, Skipped
from extender.faces.simulation.workloads import expanded
from extender.lab.manifests import load_objects
from tests.kit.clusters import DRIVER, GPU, Object, claim_template, local_slice, node, pod

LABELS = {"app": "x"}


def template(**spec: Any) -> Object:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c"}], "resourceClaims": claims, **spec}}


def workload(kind: str, api_version: str = "apps/v1", *, name: str = "w", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def replicated(kind: str, **spec: Any) -> Object:
    return workload(kind, **{"selector": {"matchLabels": LABELS}, "template": template(), **spec})


def job(**spec: Any) -> Object:
    return workload("Job", "batch/v1", **{"template": template(), **spec})


def job_set(*groups: Object, **spec: Any) -> Object:
    return workload("JobSet", "jobset.x-k8s.io/v1alpha2", replicatedJobs=list(groups), **spec)


def owned(obj: Object, kind: str, phase: str = "Running") -> Object:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "w", "uid": "u", "controller": True}
    status = {"status": {"phase": phase}} if obj["kind"] == "Pod" else {}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}, **status}


def made(*objects: Object) -> list[Mapping[str, Any]]:
    found = expanded(load_objects(objects, "objects").documents)
    assert found.problems == []
    there = [each["metadata"]["name"] for each in objects]
    return [each.data for each in found.objects if each.kind == "Pod" and each.name not in there]


def names(*objects: Object) -> list[str]:
    return [each["metadata"]["name"] for each in made(*objects)]


REPLICAS = {"name": "trainers", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template()}}}
ONE_JOB = {"name": "driver", "template": {"spec": {"completionMode": "NonIndexed", "template": template()}}}

NAMES: dict[str, tuple[list[Object], str]] = {
    "a Deployment": ([replicated("Deployment", replicas=2)], "w-[a-z0-9]{5,10}-[a-z0-9]{5} " * 2),
    "one replica if none is said": ([replicated("Deployment")], "w-[a-z0-9]{5,10}-[a-z0-9]{5} "),
    "a ReplicaSet": ([replicated("ReplicaSet", replicas=3)], "w-[a-z0-9]{5} " * 3),
    "a StatefulSet": ([replicated("StatefulSet", replicas=2, serviceName="s")], "w-0 w-1 "),
    "a StatefulSet with a first ordinal": ([replicated("StatefulSet", ordinals={"start": 5})], "w-5 "),
    "a Job": ([job(parallelism=2)], "w-[a-z0-9]{5} " * 2),
    "a Job that needs fewer": ([job(parallelism=5, completions=2)], "w-[a-z0-9]{5} " * 2),
    "an indexed Job": (
        [job(parallelism=2, completions=4, completionMode="Indexed")],
        "w-0-[a-z0-9]{5} w-1-[a-z0-9]{5} ",
    ),
    "a Job that is half done": ([{**job(completions=3, parallelism=3), "status": {"succeeded": 2}}], "w-[a-z0-9]{5} "),
    "one run of a CronJob": (
        [workload("CronJob", "batch/v1", schedule="* * * * *", jobTemplate={"spec": {"template": template()}})],
        "w-0-[a-z0-9]{5} ",
    ),
    "a JobSet": (
        [job_set(REPLICAS, ONE_JOB)],
        "".join(f"w-trainers-{job}-{pod}-[a-z0-9]{{5}} " for job in (0, 1) for pod in (0, 1))
        + "w-driver-0-[a-z0-9]{5} ",
    ),
    "a DaemonSet": ([node("a"), node("b"), replicated("DaemonSet")], "w-[a-z0-9]{5} " * 2),
    "replicas that are there already": (
        [
            replicated("ReplicaSet", replicas=3),
            owned(pod("p"), "ReplicaSet"),
            owned(pod("done"), "ReplicaSet", "Succeeded"),
        ],
        "w-[a-z0-9]{5} " * 2,
    ),
    "ordinals that are there already": (
        [replicated("StatefulSet", replicas=3), owned(pod("w-1"), "StatefulSet")],
        "w-0 w-2 ",
    ),
    "nodes that have their pod already": (
        [node("a"), node("b"), replicated("DaemonSet"), owned(pod("p", on="a"), "DaemonSet")],
        "w-[a-z0-9]{5} ",
    ),
    "a long name is cut": ([workload("Job", "batch/v1", name="x" * 70, template=template())], "x{58}[a-z0-9]{5} "),
}


@pytest.mark.parametrize(("objects", "pattern"), NAMES.values(), ids=NAMES)
def test_pods_have_the_names_that_controllers_give(objects: list[Object], pattern: str) -> None:
    found = names(*objects)
    assert re.fullmatch(pattern, "".join(f"{name} " for name in found)), found
    assert len(set(found)) == len(found)
    assert names(*objects) == found


def test_pods_have_what_the_template_has_and_the_labels_of_their_controllers() -> None:
    (of_deployment,), (of_set,), (of_job,) = (
        made(replicated("Deployment")),
        made(replicated("StatefulSet")),
        made(job(completionMode="Indexed", completions=1)),
    )
    assert of_deployment["metadata"]["labels"].keys() == {"app", "pod-template-hash"}
    assert of_set["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
    assert of_job["metadata"]["annotations"] == {"batch.kubernetes.io/job-completion-index": "0"}
    assert of_job["metadata"]["labels"]["job-name"] == "w"
    assert {each["metadata"]["namespace"] for each in (of_deployment, of_set, of_job)} == {"ns"}
    assert of_set["spec"] == template()["spec"]


TAINTED = {**node("t"), "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
CORDONED = {**node("c"), "spec": {"unschedulable": True}}
DAEMONS: dict[str, tuple[Object, list[str]]] = {
    "no node that has a taint; a cordoned one": ({}, ["a", "c"]),
    "a taint that they tolerate": ({"tolerations": [{"operator": "Exists"}]}, ["a", "t", "c"]),
    "nodes with the labels": ({"nodeSelector": {"kubernetes.io/hostname": "a"}}, ["a"]),
}


@pytest.mark.parametrize(("spec", "nodes"), DAEMONS.values(), ids=DAEMONS)
def test_a_daemon_set_has_a_pod_for_each_node_that_takes_it(spec: Object, nodes: list[str]) -> None:
    found = made(node("a"), TAINTED, CORDONED, replicated("DaemonSet", template=template(**spec)))
    terms = [
        each["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] for each in found
    ]
    assert [term["nodeSelectorTerms"][0]["matchFields"][0]["values"] for term in terms] == [[name] for name in nodes]


NOT_RUN: dict[str, tuple[list[Object], str]] = {
    "a suspended Job": ([job(suspend=True)], "Job ns/w: it is suspended"),
    "a suspended CronJob": (
        [workload("CronJob", "batch/v1", schedule="x", suspend=True, jobTemplate={"spec": {"template": template()}})],
        "CronJob ns/w: it is suspended",
    ),
    "a suspended JobSet": ([job_set(REPLICAS, suspend=True)], "JobSet ns/w: it is suspended"),
    "a Job that has ended": (
        [{**job(), "status": {"conditions": [{"type": "Complete", "status": "True"}]}}],
        "Job ns/w: it has ended",
    ),
    "a Deployment whose ReplicaSet is there": (
        [
            replicated("Deployment"),
            owned({**replicated("ReplicaSet"), "metadata": {"name": "r", "namespace": "ns"}}, "Deployment"),
        ],
        "Deployment ns/w: its ReplicaSets are among the manifests",
    ),
    "too many pods": (
        [job_set({**REPLICAS, "replicas": 30_000})],
        "JobSet ns/w: it would make more than 50000 pods",
    ),
    "an unknown kind with pods": (
        [workload("Rollout", "argoproj.io/v1alpha1", template=template())],
        "Rollout ns/w: pods of this kind are not made",
    ),
    "a kind without pods": ([workload("Service", "v1")], "Service ns/w"),
}


@pytest.mark.parametrize(("objects", "told"), NOT_RUN.values(), ids=NOT_RUN)
def test_what_makes_no_pods_is_told(objects: list[Object], told: str) -> None:
    found = expanded(load_objects(objects, "objects").documents)
    assert (str(found.skipped[0]), found.problems) == (told, [])


WRONG: dict[str, tuple[Object, str]] = {
    "a number": (
        replicated("Deployment", replicas=-1),
        "objects: Deployment ns/w: spec.replicas: -1 is not a number from 0 to 50000",
    ),
    "a field": (
        replicated("Deployment", replica=2),
        "objects: Deployment w: spec.replica: unknown field; did you mean replicas?",
    ),
    "the version": (
        workload("Deployment", "apps/v1beta1", template=template()),
        'objects: Deployment w: apiVersion: "apps/v1beta1" has no Deployment; apps/v1 has it',
    ),
    "the template": (
        job_set({"name": "g", "template": {"spec": {"template": {"spec": {"containers": "x"}}}}}),
        'objects: JobSet ns/w: spec.replicatedJobs[*].template.spec.template.spec.containers: "x" is not a list',
    ),
    "no name": (
        {**replicated("StatefulSet"), "metadata": {}},
        "objects: StatefulSet : metadata.name: is required",
    ),
    "an indexed Job without completions": (
        job(completionMode="Indexed"),
        "objects: Job ns/w: spec.completions: is required if completionMode is Indexed",
    ),
}


@pytest.mark.parametrize(("wrong", "told"), WRONG.values(), ids=WRONG)
def test_a_workload_that_cannot_be_read_is_named_and_the_others_run(wrong: Object, told: str) -> None:
    good = {**replicated("ReplicaSet"), "metadata": {"name": "good", "namespace": "ns"}}
    problems: list[str] = []
    cluster = Cluster.from_objects([wrong, good], refused=problems.append)
    assert problems == [told]
    assert [each.name.startswith("good-") for each in cluster.pods] == [True]


def test_pods_of_workloads_get_devices_in_the_order_of_the_manifests() -> None:
    objects = [GPU, node("a"), local_slice("a", 3), claim_template("gpu"), replicated("StatefulSet", replicas=2), job()]
    cluster = Cluster.from_objects([*objects, workload("Service", "v1", name="s")], settings=Settings())
    found = cluster.schedule()
    assert [[str(d.result.device) for d in each.devices] for each in found] == [
        [f"{DRIVER}/a/gpu-{index}"] for index in range(3)
    ]
    assert [each.pod.rpartition("-")[0] for each in found] == ["ns/w", "ns/w", "ns/w"]
    assert cluster.skipped == (Skipped("Service", "ns/s"),)


def test_a_gate_of_the_template_keeps_the_pods() -> None:
    gated = replicated("ReplicaSet", template=template(schedulingGates=[{"name": "g"}]))
    (found,) = Cluster.from_objects([node("a"), gated]).schedule()
    assert found.reason == "scheduling gate g keeps the pod from its scheduler"
