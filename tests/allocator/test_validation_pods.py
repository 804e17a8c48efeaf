"""What an API server refuses in pods and in the templates of workloads, as far as it is about devices."""

from typing import Any

import pytest

from allocator.model.validation import pod_problems

CLAIMS = [{"name": "gpu", "resourceClaimName": "a"}]


def container(**resources: object) -> dict[str, Any]:
    return {"name": "main", "resources": resources}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"resourceClaims": CLAIMS, "containers": [container(claims=[{"name": "gpuu"}])]},
            'containers[0].resources.claims[0].name: "gpuu" is not in the pod\'s resourceClaims; did you mean gpu?',
        ),
        (
            {"initContainers": [container(claims=[{"name": "nic"}])]},
            'initContainers[0].resources.claims[0].name: "nic" is not in the pod\'s resourceClaims',
        ),
        ({"resourceClaims": CLAIMS * 2}, 'resourceClaims[1]: "gpu" is there twice'),
        (
            {"containers": [container(limits={"gpu": 1})]},
            "containers[0].resources.limits[gpu]: unknown resource; extended resources have a domain",
        ),
    ],
)
def test_a_pod_that_an_api_server_refuses(spec: object, problem: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": spec}}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": job["spec"]}}}
    assert [str(each) for each in pod_problems(pod)] == [f"spec.{problem}"]
    assert [str(each) for each in pod_problems(job)] == [f"spec.template.spec.{problem}"]
    assert [str(each) for each in pod_problems(cron)] == [f"spec.jobTemplate.spec.template.spec.{problem}"]


def test_what_a_pod_may_say() -> None:
    resources = container(
        claims=[{"name": "gpu", "request": "one"}, {"name": "gpu", "request": "two"}],
        limits={"cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": 1},
    )
    spec = {"resourceClaims": CLAIMS, "containers": [resources], "initContainers": [{"name": "plain"}]}
    assert pod_problems({"apiVersion": "v1", "kind": "Pod", "spec": spec}) == ()


@pytest.mark.parametrize("kind", ["Node", "Service"])
def test_objects_without_pods_have_no_problem_here(kind: str) -> None:
    assert pod_problems({"apiVersion": "v1", "kind": kind, "spec": {"containers": 5}}) == ()
