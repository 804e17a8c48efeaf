"""Refused by an API server: in pods, nodes, quotas, budgets and groups; tests/cluster/test_validating.py asks it."""

from typing import Any

import pytest

from allocator.model.validation import pod_problems, validate

GPU = "example.com/gpu"


def pod(**resources: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


def with_spec(**spec: Any) -> dict[str, Any]:
    found = pod()
    return {**found, "spec": {**found["spec"], **spec}}


def other(kind: str, spec: object, version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec, **more}


def quota(*names: str, amount: str = "1", **more: Any) -> dict[str, Any]:
    return other("ResourceQuota", {"hard": dict.fromkeys(names, amount), **more})


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"limits": {GPU: "1500m"}}, f'limits[{GPU}]: "1500m" is not a whole number'),
        ({"limits": {GPU: None}}, f"limits[{GPU}]: null is not an amount"),
        ({"limits": {GPU: "-1"}}, f'limits[{GPU}]: "-1" is negative'),
        ({"limits": {GPU: "9223372036854776"}}, f'limits[{GPU}]: "9223372036854776" is more than 9223372036854775'),
        ({"requests": {GPU: 1}}, f"requests[{GPU}]: needs a limit that is equal"),
        ({"requests": {GPU: 1}, "limits": {GPU: 2}}, f"requests[{GPU}]: is not equal to the limit of 2"),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}, "requests[cpu]: is more than the limit of 1500m"),
        (
            {"limits": {"Example.com/gpu": 1}},
            "limits[Example.com/gpu]: has a domain that is not a DNS subdomain: lower",
        ),
        (
            {"limits": {"requests.example.com/gpu": 1}},
            "limits[requests.example.com/gpu]: is not an extended resource's",
        ),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, "huge pages need a request for cpu or memory beside them"),
        ({"claims": [{"name": "c"}, {"name": "c", "request": "r"}]}, 'claims[1].name: "c" is there twice'),
    ],
)
def test_what_a_container_asks_for(resources: dict[str, Any], problem: str) -> None:
    obj = pod(**resources)
    obj["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
    (found,) = pod_problems(obj)
    assert (
        str(found)
        .removeprefix("spec.containers[0].resources.")
        .removeprefix("spec.containers[0].resources: ")
        .startswith(problem)
    )


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {GPU: 2}},
        {"limits": {GPU: "2"}, "requests": {GPU: 2}},
        {"requests": {"cpu": "1500m", "memory": 1.5}},
        {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}},
        {"limits": {"hugepages-2Mi": "4Mi", "cpu": 1}},
    ],
)
def test_what_a_container_may_ask_for(resources: dict[str, Any]) -> None:
    assert pod_problems(pod(**resources)) == ()


TERM = {"topologyKey": "zone"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
PORT = {"containerPort": 80, "hostPort": 8080}
LIMITED = {"containers": [{"name": "a", "resources": {"limits": {"cpu": 2}}}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": [{"name": "A"}]}, 'containers[0].name: "A" is not a DNS label'),
        ({"containers": [{"name": "a"}, {"name": "a"}]}, 'containers[1]: "a" is there twice'),
        (
            {"containers": [{"name": "a", "ports": [{"containerPort": 0}]}]},
            "containers[0].ports[0].containerPort: 0 is",
        ),
        (
            {"containers": [{"name": "a", "ports": [PORT]}, {"name": "b", "ports": [PORT]}]},
            "containers[1].ports[0].host",
        ),
        ({"resources": {"limits": {GPU: 1}}}, f"resources.limits[{GPU}]: a whole pod has cpu, memory and huge pages"),
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "A"}]}, "resourceClaims[0].resourceClaimName: "),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "volumes[0].persistentVolumeClaim.claimName: is"),
        (
            {"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": 1}}},
            'resources.limits[hugepages-2Mi]: "3Mi" is not a',
        ),
        (
            {**LIMITED, "resources": {"requests": {"cpu": "1500m"}}},
            "resources.requests[cpu]: is less than the requests of",
        ),
        (
            {**LIMITED, "resources": {"limits": {"cpu": "1"}}},
            "containers[0].resources.limits[cpu]: is more than the pod's",
        ),
        ({"restartPolicy": "Sometimes"}, 'restartPolicy: "Sometimes" is not one of Always, OnFailure, Never'),
        ({"nodeSelector": {"a b": "c"}}, 'nodeSelector[a b]: "a b" is not'),
        ({"tolerations": [{"key": "k", "effect": "Never"}]}, 'tolerations[0].effect: "Never" is not one of NoSchedule'),
        ({"tolerations": [{"value": "v"}]}, "tolerations[0].operator: is Exists if there is no key"),
        ({"tolerations": [{"operator": "Exists", "value": "v"}]}, "tolerations[0].value: must be left out for Exists"),
        ({"tolerations": [{"key": "k", "tolerationSeconds": 5}]}, "tolerations[0].effect: is NoExecute if there are"),
        ({"topologySpreadConstraints": [{**SPREAD, "maxSkew": 0}]}, "topologySpreadConstraints[0].maxSkew: is not"),
        (
            {"topologySpreadConstraints": [{**SPREAD, "minDomains": 1}]},
            "topologySpreadConstraints[0].minDomains: needs",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{}]}}},
            f"affinity.podAffinity.{REQUIRED}[0].topologyKey: is required",
        ),
        (
            {"affinity": {"podAffinity": {PREFERRED: [{"podAffinityTerm": TERM}]}}},
            f"affinity.podAffinity.{PREFERRED}[0]",
        ),
        ({"affinity": {"nodeAffinity": {REQUIRED: {}}}}, f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms: is req"),
        ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, 'schedulingGates[1]: "a" is there twice'),
    ],
)
def test_where_a_pod_may_run(spec: dict[str, Any], problem: str) -> None:
    (found,) = pod_problems(with_spec(**spec))
    assert str(found).startswith(f"spec.{problem}")


SCOPED: dict[str, Any] = {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (
            quota("resourceclaims"),
            "spec.hard[resourceclaims]: unknown resource; a quota limits the devices of",
        ),
        (quota("gpu-silver"), "spec.hard[gpu-silver]: unknown resource; "),
        (quota("a_b.C/d"), "spec.hard[a_b.C/d]: has a domain that is not a DNS subdomain"),
        (quota("pods", amount="1.5"), 'spec.hard[pods]: "1.5" is not a whole number'),
        (quota("pods", scopes=["Sometimes"]), 'spec.scopes[0]: "Sometimes" is not one of Terminating'),
        (
            quota("pods", "secrets", scopes=["BestEffort"]),
            "spec.scopes[0]: BestEffort does not go with the limit secrets",
        ),
        (quota("pods", scopes=["BestEffort", "NotBestEffort"]), "spec.scopes: BestEffort and NotBestEffort exclude"),
        (quota("pods", **SCOPED), "spec.scopeSelector.matchExpressions[0].values: is required for In"),
        (other("Node", {"taints": [{"key": "k", "effect": "None"}]}), 'spec.taints[0].effect: "None" is not one of No'),
        (other("Node", {}, status={"capacity": {GPU: "1500m"}}), f"status.capacity[{GPU}]: "),
        (
            other("PodDisruptionBudget", {"minAvailable": "x"}, "policy/v1"),
            'spec.minAvailable: "x" is not a number of pods',
        ),
        (
            other("PodDisruptionBudget", {"minAvailable": "101%"}, "policy/v1"),
            "spec.minAvailable: 101% is more than 100%",
        ),
        (
            other("PodDisruptionBudget", {"minAvailable": 1, "maxUnavailable": 1}, "policy/v1"),
            "spec.maxUnavailable: cannot stand beside minAvailable",
        ),
        (
            other("PodDisruptionBudget", {"selector": {"matchLabels": {"a": "b c"}}}, "policy/v1"),
            'spec.selector.matchLabels[a]: "b c" is not a label\'s value',
        ),
        (other("PodGroup", {}, "scheduling.k8s.io/v1beta1"), "spec.schedulingPolicy: needs one of basic and gang"),
        (
            other("PodGroup", {"schedulingPolicy": {"gang": {}}}, "scheduling.k8s.io/v1beta1"),
            "spec.schedulingPolicy.gang.minCount: is not a number of pods from 1 on",
        ),
        (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}},
            'metadata.name: "a.b" is not a DNS label',
        ),
        (
            {"apiVersion": "dra-extender.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": "x" * 64}},
            'metadata.name: "xxx',
        ),
        (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"-a": "b"}}},
            'metadata.labels[-a]: "-a" is not a label\'s name',
        ),
        (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "annotations": {"a": "x" * 2**18}}},
            "metadata.annotations: have 262145 bytes, more than 262144",
        ),
    ],
)
def test_objects_of_other_groups(obj: dict[str, Any], problem: str) -> None:
    (found,) = validate(obj)
    assert str(found).startswith(problem)


@pytest.mark.parametrize(
    "name",
    [
        "count/resourceclaims.resource.k8s.io",
        "gpu.deviceclass.resource.k8s.io/devices",
        "requests.example.com/gpu",
        "requests.deviceclass.resource.kubernetes.io/gpu",
        "limits.memory",
        "requests.hugepages-2Mi",
    ],
)
def test_what_a_quota_may_limit(name: str) -> None:
    assert validate(quota(name)) == ()
    assert validate(quota("requests.example.com/gpu", amount="1500m")) == ()


def test_metadata_of_templates() -> None:
    metadata = {"labels": {"a": "b c"}, "annotations": {"-": "x"}}
    found = validate(other("ResourceClaimTemplate", {"metadata": metadata, "spec": {}}, "resource.k8s.io/v1"))
    assert [each.path for each in found] == ["spec.metadata.labels[a]", "spec.metadata.annotations[-]"]
    deployment = other("Deployment", {"template": {"metadata": metadata, "spec": {}}}, "apps/v1")
    assert [each.path for each in pod_problems(deployment)] == [
        "spec.template.metadata.labels[a]",
        "spec.template.metadata.annotations[-]",
    ]
