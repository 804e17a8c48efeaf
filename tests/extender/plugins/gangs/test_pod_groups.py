"""Claims of PodGroups (gate DRAWorkloadResourceClaims): the pods of a group share the claim made for the group."""

import pytest

from extender.cluster.objects.pods import Pod
from extender.framework.bound_pods import has_claim
from extender.framework.pods.claims import Blocked, PodClaims, bound_pod, claims_of
from extender.kube.api import ObjectKey
from tests.extender.framework.bind.scenes import Scene
from tests.kit.clusters import Object, claim, claim_template, device_class, parsed, pod, snapshot_of
from tests.kit.objects.parts import api_object

TEMPLATE = claim_template("one")
TEAM = api_object(
    "PodGroup",
    "team",
    apiVersion="scheduling.k8s.io/v1beta1",
    namespace="ns",
    spec={"schedulingPolicy": {"basic": {}}},
)
OWNER = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "team", "uid": "uid-team"}
GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "team", "uid": "uid-team"}


def shared(**owner: str) -> Object:
    """The claim that was made for the group."""
    return claim("team-gpu", metadata={"ownerReferences": [{**OWNER, "controller": True, **owner}]})


def member(name: str = "p", group: str = "team", on: str = "") -> Object:
    """A pod of the group that uses the claim."""
    made = pod(name, on=on)
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    made["spec"] |= {"schedulingGroup": {"podGroupName": group}} if group else {}
    made["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "team-gpu"}]
    return made


def reserved(*consumers: Object) -> Object:
    made = claim("team-gpu", allocated=["n/gpu-0"], metadata=shared()["metadata"])
    return made | {"status": {**made["status"], "reservedFor": list(consumers)}}


def decided(raw: Object, *objects: Object) -> PodClaims | Blocked:
    return claims_of(parsed(raw), snapshot_of(device_class(), TEMPLATE, *objects))


def test_a_pod_uses_the_claim_of_its_group() -> None:
    found = decided(member(), shared())
    assert isinstance(found, PodClaims)
    assert [each.claim.name for each in found.pending] == ["team-gpu"]


@pytest.mark.parametrize(
    ("raw", "there"),
    [
        (member(group=""), shared()),
        (member(group="other"), shared()),
        (member(), shared(apiVersion="example.com/v1")),
        (member(), shared(kind="Job")),
    ],
    ids=["no group", "another group", "a group of another API", "no group, but of its name"],
)
def test_nobody_else_uses_it(raw: Object, there: Object) -> None:
    found = decided(raw, there)
    assert isinstance(found, Blocked)
    assert found.reason.in_words() == "claim team-gpu was not made for this pod"


def test_all_pods_of_the_group_are_bound_with_one_claim() -> None:
    scene = Scene(TEMPLATE, TEAM, shared(), member("p"), member("q"))
    assert scene.run(scene.bind("p")) == [""]
    assert scene.run(scene.bind("q")) == [""]
    assert (scene.devices("team-gpu"), scene.users("team-gpu")) == (["n/gpu-0"], ["p", "q"])
    assert (scene.node_of("p"), scene.node_of("q")) == ("n", "n")


def test_a_claim_that_others_reserve_for_the_group_stays_reserved_for_it() -> None:
    scene = Scene(TEMPLATE, TEAM, reserved(GROUP), member("p"))
    assert scene.run(scene.bind("p")) == [""]
    assert scene.users("team-gpu") == ["team", "p"]


@pytest.mark.parametrize(("group", "has"), [("team", True), ("other", False), ("", False)])
def test_a_reservation_for_a_group_is_one_for_its_pods(group: str, has: bool) -> None:
    snapshot = snapshot_of(reserved(GROUP))
    running: Pod = parsed(member(group=group, on="n"))
    assert has_claim(running, snapshot.claims[ObjectKey("ns", "team-gpu")]) == has
    found = bound_pod(running)
    assert found is not None
    assert snapshot.claims[ObjectKey("ns", "team-gpu")].claim.is_reserved_for(found.uid, found.pod_group) == has


def test_a_pod_that_is_refused_on_another_node_leaves_the_claim_to_its_group() -> None:
    scene = Scene(TEMPLATE, TEAM, shared(), member("p"), member("q"))
    assert scene.run(scene.bind("p")) == [""]
    assert scene.run(scene.bind("q", "m")) == ["node m: claim team-gpu is allocated for other nodes"]
    assert (scene.devices("team-gpu"), scene.users("team-gpu")) == (["n/gpu-0"], ["p"])
