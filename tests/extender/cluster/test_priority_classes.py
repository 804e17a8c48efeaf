"""Priority classes: what a new pod gets, as an API server gives it; in memory, in manifests, and by workloads.

`tests/cluster/test_priority_classes.py` runs the same cases against a real API server.
"""

from pathlib import Path
from typing import Any

import pytest

from allocator import InvalidObjectError
from allocator.tools import Fields
from extender import Cluster, ManifestsError
from extender.cluster.priority_classes import PriorityClasses, parse_priority_class, read_priority_classes
from extender.config.sources import load
from extender.kube.api import ApiError
from extender.kube.resources import PODS, PRIORITY_CLASSES
from extender.lab.manifests import ManifestObject, prioritized
from tests.cluster.priority_cases import CASES, CLASSES, DEFAULT, HIGH, PATIENT, Case, priority_class
from tests.kit.clusters import GPU, Object, claim, claim_template, local_slice, node, pod
from tests.kit.servers.memory import Fault, Transport, memory_api


def written(name: str, *claims: str, **spec: Any) -> Object:
    """A pod as people write it: no API server has admitted it."""
    inner = {field: value for field, value in pod(name, *claims)["spec"].items() if field != "priority"}
    return {**pod(name), "metadata": {"namespace": "ns", "name": name}, "spec": {**inner, **spec}}


def admitted(name: str, *claims: str, **spec: Any) -> Object:
    """A pod as an API server shows it: its priority is there already."""
    made = pod(name, *claims)
    return {**made, "spec": {**made["spec"], **spec}}


def found_in(spec: Object) -> tuple[str, int, str]:
    return spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_new_pod_gets_what_its_class_says(case: Case) -> None:
    classes = PriorityClasses(map(parse_priority_class, (*CLASSES, DEFAULT) if case.default else CLASSES))
    spec = Fields(case.spec, "spec", [])
    admitted = classes.admitted(spec)
    if case.refused:
        assert [each.path for each in spec.problems] == [f"spec.{case.refused}"]
    else:
        assert (found_in(admitted), spec.problems) == (case.got, [])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_api_server_in_memory_admits_in_the_same_way(case: Case) -> None:
    api = memory_api()
    for each in (*CLASSES, DEFAULT) if case.default else CLASSES:
        await api.create(PRIORITY_CLASSES, each)
    if case.refused:
        with pytest.raises(ApiError, match=case.refused) as refused:
            await api.create(PODS, written("p", **case.spec))
        assert refused.value.status == 403
    else:
        assert found_in((await api.create(PODS, written("p", **case.spec)))["spec"]) == case.got


def test_without_class_and_default_a_priority_counts_as_it_is_written() -> None:
    spec = Fields({"priority": 5}, "spec", [])
    assert (PriorityClasses().admitted(spec), spec.problems) == ({"priority": 5}, [])


def test_of_several_defaults_the_lowest_counts() -> None:
    several = [priority_class(name, value, globalDefault=True) for name, value in (("a", 3), ("b", 2), ("c", 4))]
    assert PriorityClasses(map(parse_priority_class, several)).default.name == "b"


WRONG: dict[str, tuple[Object, str]] = {
    "too high for a user": (priority_class("p", 1_000_000_001), "value: 1000000001 is not from"),
    "a name of Kubernetes": (priority_class("system-mine", 1), "metadata.name: names that begin with system-"),
    "another value for a class of Kubernetes": (
        priority_class("system-node-critical", 1),
        "value: class system-node-critical of Kubernetes has value 2000001000",
    ),
    "no such policy": (priority_class("p", 1, preemptionPolicy="Always"), 'preemptionPolicy: "Always" is none of'),
    "a value that is no number": (priority_class("p", "1"), 'value: "1" is not a whole number'),  # type: ignore[arg-type]
    "a flag that is none": (priority_class("p", 1, globalDefault="yes"), "globalDefault"),
}


@pytest.mark.parametrize(("obj", "problem"), WRONG.values(), ids=WRONG)
def test_a_class_that_an_api_server_refuses_is_an_error(obj: Object, problem: str) -> None:
    with pytest.raises(InvalidObjectError, match=problem.replace("[", r"\[")):
        parse_priority_class(obj)


# Manifests: one free device, an older pod without a class, and what a class changes.

WORLD = (GPU, node("a"), local_slice("a"), claim("c"), claim("d"), claim_template())


def older() -> Object:
    metadata = {"namespace": "ns", "name": "older", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**written("older", "c"), "metadata": metadata}


def served(*objects: Object) -> list[str]:
    """The pods that get the device, without what controllers add to names."""
    placed = Cluster.from_objects((*WORLD, *objects)).schedule()
    return [each.pod.removeprefix("ns/").partition("-")[0] for each in placed if each.node]


def deployment(**spec: Any) -> Object:
    inner = written("of-template", **spec)["spec"]
    inner["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    template = {"metadata": {"labels": {"app": "w"}}, "spec": inner}
    metadata = {"namespace": "ns", "name": "w", "creationTimestamp": "2026-02-01T00:00:00Z"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": template},
    }


SERVED: dict[str, tuple[list[Object], list[str]]] = {
    "no class: the older one": ([older(), written("young", "d")], ["older"]),
    "a class of the manifests": ([*CLASSES, older(), written("young", "d", priorityClassName=HIGH)], ["young"]),
    "a class below zero": ([*CLASSES, older(), written("young", "d", priorityClassName=PATIENT)], ["older"]),
    "a class of Kubernetes": ([older(), written("young", "d", priorityClassName="system-cluster-critical")], ["young"]),
    "the default is for all": ([DEFAULT, older(), written("young", "d")], ["older"]),
    "less than the default": (
        [DEFAULT, *CLASSES, older(), written("young", "d", priorityClassName=PATIENT)],
        ["older"],
    ),
    "the template of a Deployment": ([*CLASSES, older(), deployment(priorityClassName=HIGH)], ["w"]),
    "a template without a class": ([older(), deployment()], ["older"]),
    "a pod that an API server has admitted keeps its priority": (
        [*CLASSES, older(), admitted("young", "d", priorityClassName=HIGH)],
        ["older"],
    ),
}


@pytest.mark.parametrize(("objects", "names"), SERVED.values(), ids=SERVED)
def test_simulate_places_pods_by_their_classes(objects: list[Object], names: list[str]) -> None:
    assert served(*objects) == names


def cron_job(**spec: Any) -> Object:
    job = {"template": {"spec": {**deployment(**spec)["spec"]["template"]["spec"], "restartPolicy": "Never"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"namespace": "ns", "name": "w"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
    }


NONE = "there is no PriorityClass priority-hihg; did you mean priority-high?"
REFUSED: dict[str, tuple[list[Object], str]] = {
    "a pod": (
        [*CLASSES, written("p", priorityClassName="priority-hihg")],
        f"objects: Pod ns/p: spec.priorityClassName: {NONE}",
    ),
    "a Deployment": (
        [*CLASSES, deployment(priorityClassName="priority-hihg")],
        f"objects: Deployment ns/w: spec.template.spec.priorityClassName: {NONE}",
    ),
    "a CronJob": (
        [*CLASSES, cron_job(priorityClassName="priority-hihg")],
        f"objects: CronJob ns/w: spec.jobTemplate.spec.template.spec.priorityClassName: {NONE}",
    ),
    "a priority beside the class": (
        [*CLASSES, written("p", priorityClassName=HIGH, priority=2)],
        "objects: Pod ns/p: spec.priority: 2 is not 1000, as PriorityClass priority-high says: leave it out",
    ),
    "a second default": (
        [DEFAULT, priority_class("second", 1, globalDefault=True)],
        "objects: PriorityClass second: globalDefault: true, but PriorityClass priority-default is the default already",
    ),
}


@pytest.mark.parametrize(("objects", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_an_api_server_refuses_is_named_with_its_object_and_field(objects: list[Object], problem: str) -> None:
    with pytest.raises(ManifestsError) as refused:
        Cluster.from_objects((*WORLD, *objects))
    assert refused.value.problems == (problem,)


def test_classes_that_a_cluster_has_already_count_for_what_is_added() -> None:
    cluster = Cluster.from_objects((*WORLD, *CLASSES, DEFAULT, older()))
    cluster.add(written("young", "d", priorityClassName=HIGH))
    assert {str(each): each.priority for each in cluster.pods} == {"ns/older": 7, "ns/young": 1000}
    with pytest.raises(ManifestsError, match="priority-default is the default already"):
        cluster.add(priority_class("second", 1, globalDefault=True))


def test_explain_names_the_victims_of_a_pod_by_its_class() -> None:
    holder = pod("holder", "c", on="a")
    held = claim("c", allocated=["a/gpu-0"], at="a", users=["holder"])
    objects = [each for each in WORLD if each["metadata"]["name"] != "c"]
    settings = load("scheduling: {preemption: true}")
    preempts = {}
    for name in (HIGH, PATIENT):
        urgent = written("urgent", "d", priorityClassName=name)
        cluster = Cluster.from_objects((*objects, held, holder, *CLASSES, urgent), settings=settings)
        found = cluster.explain("ns/urgent").preemption
        preempts[name] = [] if found is None else [each.pod for each in found.victims]
    assert preempts == {HIGH: ["ns/holder"], PATIENT: []}


async def test_classes_that_can_not_be_read_are_not_said_to_be_absent() -> None:
    transport = Transport(memory_api())
    transport.script("select priorityclasses", Fault(refused=ApiError(403, "Forbidden", "not for you")))
    classes = await read_priority_classes(transport)
    assert classes.named("mine") == "PriorityClass mine can't be read: not for you"
    assert classes.named("system-node-critical") == PriorityClasses().named("system-node-critical")


@pytest.mark.parametrize(("priority", "refused"), [({}, ""), ({"priority": 7}, "priority: 7 is not")])
def test_a_new_pod_group_gets_the_priority_of_its_class(priority: Object, refused: str) -> None:
    """Whether an API server sets its preemptionPolicy depends on a feature gate of its own."""
    high = parse_priority_class(CLASSES[0])
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": high.name, **priority}
    metadata = {"namespace": "ns", "name": "x"}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    (made,), problems = prioritized(
        [ManifestObject("PodGroup", "ns", "x", group, Path("groups.yaml"), 1)], PriorityClasses([high])
    )
    assert made.data["spec"] == {**spec, "priority": high.value}
    assert bool(problems) is bool(refused)
    assert all(refused in str(each) for each in problems)
