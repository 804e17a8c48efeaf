"""What is kept of pods, nodes and budgets, and what is said of those that can't be read."""

from typing import Any

import pytest

from allocator import DeviceId, InvalidObjectError, Quantity
from extender.cluster.objects.budgets import parse_budget
from extender.cluster.objects.claims import parse_claim_object
from extender.cluster.objects.nodes import parse_node_object
from extender.cluster.objects.pods import KEPT, NOTHING_KEPT, Keeping, is_extended, parse_pod
from extender.kube.api import revision
from tests.kit.clusters import budget, claim, node, pod


def container(name: str, requests: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": requests}, **more}


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/batch-cpu", False),
        ("requests.example.com/gpu", False),
        ("example.com/gpu", True),
        ("deviceclass.resource.kubernetes.io/gpu", True),
    ],
)
def test_names_of_extended_resources(name: str, extended: bool) -> None:
    assert is_extended(name) == extended


def test_extended_requests_are_numbered_as_their_claim_will_name_them() -> None:
    raw = pod("p")
    raw["spec"]["initContainers"] = [container("side", {"example.com/nic": "1"}, restartPolicy="Always")]
    limits = {"limits": {"example.com/gpu": "2"}, "requests": {"memory": "1Gi", "cpu": "1"}}
    raw["spec"]["containers"] = [container("plain", {"cpu": "1"}), {**container("main", {}), "resources": limits}]
    side, main = parse_pod(raw).containers
    assert (side.index, side.is_init, side.restarts, side.requests[0].index) == (0, True, True, 0)
    assert (main.index, main.is_init, main.restarts) == (2, False, False)
    (request,) = main.requests
    assert (request.index, request.resource, request.amount) == (1, "example.com/gpu", Quantity.from_int(2))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"spec": {"nodeName": 1}}, "spec.nodeName: 1 is not a string"),
        ({"spec": {"priority": "high"}}, 'spec.priority: "high" is not a whole number of 64 bits'),
        ({"spec": {"resourceClaims": [{"name": "a"}]}}, r"spec.resourceClaims\[0\]: exactly one of"),
        ({"spec": {"resourceClaims": {}}}, "spec.resourceClaims: {} is not a list"),
        ({"status": {"resourceClaimStatuses": [{}]}}, r"status.resourceClaimStatuses\[0\].name: is required"),
        (
            {"spec": {"containers": [container("c", {"example.com/gpu": "x"})]}},
            r'spec.containers\[0\].resources.requests\[example.com/gpu\]: "x" is not a quantity',
        ),
    ],
)
def test_pods_that_can_not_be_read(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidObjectError, match=problem):
        parse_pod({**pod("p"), **change})


KEEPINGS = {
    "one of each": Keeping("n", (DeviceId("gpu.example.com", "n", "gpu-0"),), ("u1",)),
    "several": Keeping("n", (DeviceId("d", "a/b/c", "x"), DeviceId("d", "a", "b")), ("u1", "u2")),
    "no devices": Keeping("n", (), ("u1",)),
    "no victims": Keeping("n", (DeviceId("d", "n", "x"),), ()),
}


@pytest.mark.parametrize("keeping", KEEPINGS.values(), ids=KEEPINGS)
def test_what_is_kept_for_a_pod_is_read_as_it_was_written(keeping: Keeping) -> None:
    condition = {"type": KEPT, "status": "True", "message": keeping.message}
    read = parse_pod({**pod("p"), "status": {"conditions": [condition]}})
    assert (read.kept, read.nominated_node) == (keeping, "n")


@pytest.mark.parametrize("change", [{"status": "False"}, {"message": "node n"}, {"message": ""}, {"type": "Other"}])
def test_nothing_is_kept_by_another_condition(change: dict[str, str]) -> None:
    condition = {"type": KEPT, "status": "True", "message": KEEPINGS["several"].message, **change}
    assert parse_pod({**pod("p"), "status": {"conditions": [condition]}}).kept == NOTHING_KEPT


def test_kube_scheduler_sends_pods_and_nodes_without_kind() -> None:
    bare = {name: value for name, value in pod("p", "gpu").items() if name not in {"apiVersion", "kind"}}
    assert parse_pod(bare) == parse_pod(pod("p", "gpu"))
    bare = {name: value for name, value in node("n").items() if name not in {"apiVersion", "kind"}}
    assert parse_node_object(bare) == parse_node_object(node("n"))


def test_of_a_nodes_resources_only_extended_ones_are_kept() -> None:
    kept = parse_node_object(node("n", allocatable={"cpu": "4", "example.com/gpu": "2"}))
    assert kept.allocatable == {"example.com/gpu": Quantity.from_int(2)}


def test_managed_fields_are_dropped_from_what_is_kept_of_a_claim() -> None:
    raw = claim("gpu", metadata={"managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"}})
    assert b"kubectl" not in parse_claim_object(raw).raw
    assert b'"labels"' in parse_claim_object(raw).raw


@pytest.mark.parametrize(("text", "number"), [("12", 12), ("", 0), ("x1", 0), ("-1", 0)])
def test_a_resource_version_that_is_no_number_counts_as_0(text: str, number: int) -> None:
    assert revision(text) == number


class TestBudgets:
    """A budget without a selector covers nothing, as the scheduler's preemption has it."""

    @pytest.mark.parametrize(
        ("selector", "covers"),
        [
            ({}, False),
            ({"matchLabels": {"app": "a"}}, True),
            ({"matchLabels": {"app": "b"}}, False),
            ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, True),
            ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, False),
            ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
            ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
            ({"matchExpressions": [{"key": "app", "operator": "Near"}]}, False),
        ],
    )
    def test_a_budget_covers_the_pods_that_its_selector_selects(self, selector: dict[str, Any], covers: bool) -> None:
        raw = {**budget("b", {}, 1), "spec": {"selector": selector}}
        assert parse_budget(raw).covers(parse_pod(pod("p", labels={"app": "a"}))) == covers

    def test_not_other_namespaces_nor_pods_that_are_counted_already(self) -> None:
        covered = parse_pod(pod("p", labels={"app": "a"}))
        raw = budget("b", {"app": "a"}, 1)
        assert parse_budget(raw).covers(covered)
        raw["status"]["disruptedPods"] = {"p": "2026-01-01T00:00:00Z"}
        assert not parse_budget(raw).covers(covered)
        elsewhere = budget("b", {"app": "a"}, 1)
        elsewhere["metadata"]["namespace"] = "other"
        assert not parse_budget(elsewhere).covers(covered)
