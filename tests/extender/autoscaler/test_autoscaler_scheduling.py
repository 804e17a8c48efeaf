"""What the scheduler looks at besides devices counts for plans as well."""

from typing import Any

import pytest

from tests.extender.autoscaler.scenes import (
    BIG,
    GROUP,
    added,
    failed,
    group_of,
    machine,
    planned,
    pod_of,
    pods,
    world_of,
)
from tests.kit.clusters import (
    Object,
)

# --- what the scheduler looks at ----------------------------------------------------------------------------


def with_spec(raw: Object, **fields: Any) -> Object:
    return {**raw, "spec": {**raw["spec"], **fields}}


def of_node(**spec: Any) -> Object:
    return {**machine("template", "big"), "spec": spec}


TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": GROUP, "operator": "NotIn", "values": ["big"]}]}]
        }
    }
}
SCHEDULER: dict[str, tuple[Object, Object, str]] = {
    "a node selector": (
        with_spec(pod_of("p", "gpu"), nodeSelector={GROUP: "other"}),
        of_node(),
        f"node does not match spec.nodeSelector {GROUP}=other",
    ),
    "an affinity": (
        with_spec(pod_of("p", "gpu"), affinity=AFFINITY),
        of_node(),
        "node does not match the required node affinity",
    ),
    "a taint": (pod_of("p", "gpu"), of_node(taints=[TAINT]), "untolerated taint gpu=only:NoSchedule of the node"),
    "a tolerated taint": (
        with_spec(pod_of("p", "gpu"), tolerations=[{"key": "gpu", "operator": "Exists"}]),
        of_node(taints=[TAINT]),
        "",
    ),
    "a taint that only prefers": (pod_of("p", "gpu"), of_node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
    "an unschedulable template": (
        pod_of("p", "gpu"),
        of_node(unschedulable=True),
        "node is unschedulable",
    ),
    "cpu": (pod_of("p", "gpu", resources={"cpu": "9"}), machine("t", "big", cpu="8"), "insufficient cpu"),
    "memory": (
        pod_of("p", "gpu", resources={"memory": "1Gi"}),
        machine("t", "big", memory="1G"),
        "insufficient memory",
    ),
    "a plugin's resource": (
        pod_of("p", resources={"example.com/fpga": "1"}),
        machine("t", "big", cpu="8"),
        "insufficient example.com/fpga",
    ),
}


@pytest.mark.parametrize(("raw", "node", "reason"), SCHEDULER.values(), ids=SCHEDULER)
def test_what_the_scheduler_would_refuse_is_no_help(raw: Object, node: Object, reason: str) -> None:
    plan = planned(world_of((), BIG), [raw], group_of("big", node=node))
    assert failed(plan) == ({"p": f"1 {reason}"} if reason else {})


def test_resources_bound_the_pods_of_a_node() -> None:
    plan = planned(world_of((), BIG), pods(4, "gpu", resources={"cpu": "3"}), group_of("big", cpu="8"))
    assert added(plan) == {"big": [["p0", "p1"], ["p2", "p3"]]}


def test_the_number_of_pods_is_a_resource() -> None:
    plan = planned(world_of(), pods(3), group_of("g", pods="2"))
    assert added(plan) == {"g": [["p0", "p1"], ["p2"]]}


STARTS: dict[str, tuple[Object, int]] = {
    "a container": ({"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}, 2),
    "a limit alone": ({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}, 2),
    "containers": ({"containers": [{"name": n, "resources": {"requests": {"cpu": "2"}}} for n in "ab"]}, 4),
    "an init container that is larger": (
        {
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
        },
        5,
    ),
    "a sidecar before an init container": (
        {
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "i", "resources": {"requests": {"cpu": "5"}}},
            ],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
        },
        6,
    ),
    "overhead": (
        {"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}], "overhead": {"cpu": "1"}},
        3,
    ),
    "resources of the pod": (
        {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}],
            "resources": {"requests": {"cpu": "7"}},
        },
        7,
    ),
}


@pytest.mark.parametrize(("spec", "cpus"), STARTS.values(), ids=STARTS)
def test_a_pod_needs_what_the_scheduler_counts(spec: Object, cpus: int) -> None:
    raw = with_spec(pod_of("p"), **spec)
    assert added(planned(world_of(), [raw], group_of("g", cpu=str(cpus))))
    assert failed(planned(world_of(), [raw], group_of("g", cpu=f"{cpus * 1000 - 1}m")))
