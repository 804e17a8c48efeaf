"""Proposals that delete pods of controllers: they are tried with the new pods in their place."""

from typing import Any

import pytest

from extender.answers.explain.explanation import Explanation, as_json
from tests.extender.answers.explain.scenes import Case, gpus, held, owned_by, pool, wants
from tests.kit.clusters import Object, node, request

DEPLOYED = "ReplicaSet web"


def deployed(
    name: str, *devices: str, at: str = "a", priority: int = 0, kind: str = "ReplicaSet"
) -> tuple[Object, ...]:
    """A running pod that a controller makes again, and its claim."""
    return owned_by(kind, "web", *held(name, *devices, at=at, priority=priority))


def explained(*objects: Object, selector: str = "") -> Explanation:
    """The pod "p" of priority 0 asks for one device; with a selector it can go to this node alone."""
    found = list(wants(request()))
    if selector:
        found[-1]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": selector}
    return Case((*found, *objects)).explained()


def deletions(found: Explanation) -> list[str]:
    """The pods that each proposal deletes."""
    return [", ".join(str(key) for change in each.changes for key in change.deletes) for each in found.proposals]


@pytest.mark.parametrize(
    ("priority", "expected"),
    [(0, ["ns/x"]), (-5, ["ns/x"]), (5, [])],
    ids=["equal priority: the older pod goes first", "lower", "higher: its successor goes first"],
)
def test_a_deletion_helps_only_if_the_pod_goes_before_the_successor(priority: int, expected: list[str]) -> None:
    found = explained(node("a"), pool("a", *gpus(1)), *deployed("x", "a/gpu-0", priority=priority))
    assert deletions(found) == expected


def test_a_pod_of_higher_priority_that_nothing_makes_again_is_named_with_its_priority() -> None:
    found = explained(node("a"), pool("a", *gpus(1)), *held("x", "a/gpu-0", priority=5))
    assert deletions(found) == ["ns/x"]
    assert "Delete pod ns/x (of higher priority: 5; no controller makes it again)" in str(found)


def test_a_successor_of_higher_priority_that_goes_elsewhere_first_makes_room() -> None:
    """Node b is rejected for the pod only. The order of nodes is that of their names."""
    there = (node("z"), pool("z", *gpus(1)), node("b"), pool("b", *gpus(1)))
    found = explained(*there, *deployed("x", "z/gpu-0", at="z", priority=5), selector="z")
    assert deletions(found) == ["ns/x"]
    (proposal,) = found.proposals
    assert [str(each) for each in proposal.successors] == [
        "ReplicaSet web makes pod ns/x again, which then fits on node b"
    ]
    assert "     ReplicaSet web makes pod ns/x again, which then fits on node b.\n" in str(found)


def test_a_pod_of_a_daemonset_comes_back_to_its_node() -> None:
    there = (node("z"), pool("z", *gpus(1)), node("b"), pool("b", *gpus(1)))
    daemon = deployed("x", "z/gpu-0", at="z", priority=5, kind="DaemonSet")
    assert deletions(explained(*there, *daemon, selector="z")) == []


def test_a_successor_that_finds_no_place_is_told() -> None:
    found = explained(node("a"), pool("a", *gpus(1)), *deployed("x", "a/gpu-0"))
    (proposal,) = found.proposals
    assert [str(each) for each in proposal.successors] == [
        "ReplicaSet web makes pod ns/x again, which then waits for devices"
    ]
    document: Any = as_json(found)
    assert document["proposals"][0]["successors"] == [{"pod": "ns/x", "controller": DEPLOYED, "node": None}]


def test_a_successor_of_another_scheduler_may_be_first() -> None:
    user, its_claim = deployed("x", "a/gpu-0")
    other = {**user, "spec": {**user["spec"], "schedulerName": "other"}}
    assert deletions(explained(node("a"), pool("a", *gpus(1)), other, its_claim)) == []


def test_of_two_pods_the_one_is_deleted_whose_successor_does_not_come_first() -> None:
    users = (*deployed("x", "a/gpu-0", priority=5), *deployed("y", "a/gpu-1"))
    found = explained(node("a"), pool("a", *gpus(2)), *users)
    assert deletions(found) == ["ns/y"]


def test_a_pod_whose_claim_is_from_a_template_comes_again_with_a_claim_like_it() -> None:
    user, its_claim = deployed("x", "z/gpu-0", at="z")
    templated = {**user, "spec": {**user["spec"], "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}}
    templated["status"] = {**user["status"], "resourceClaimStatuses": [{"name": "g", "resourceClaimName": "x-gpu"}]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "uid-x", "controller": True}
    its_claim["metadata"]["ownerReferences"] = [owner]
    there = (node("z"), pool("z", *gpus(1)), node("b"), pool("b", *gpus(1)))
    found = explained(*there, templated, its_claim, selector="z")
    assert [str(each) for proposal in found.proposals for each in proposal.successors] == [
        "ReplicaSet web makes pod ns/x again, which then fits on node b"
    ]
