"""Pod to claims: each state of a claim has its own reason, the same from try to try."""

from typing import Any

import pytest

from allocator import AllocationResult, ClaimSpec, DeviceId, DeviceResult, Reason
from allocator.model.optional import optional_problem
from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys, without_pods
from extender.cluster.indexes import AssumedAllocation
from extender.cluster.objects.claims import ALLOCATION_MODE, IMMEDIATE, PRIORITY, mode_problem
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, Pod, parse_pod, read_membership
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import policy_problem
from extender.framework.pods.claims import NOTHING, Blocked, PodClaims, claims_of
from extender.kube.api import Event, EventType, RawObject
from extender.kube.resources import CLAIMS, CLASSES, TEMPLATES
from tests.kit.clusters import claim, device_class, node, pod, request, snapshot_of

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "ns"},
    "spec": {"spec": {"devices": {"requests": [request()]}}},
}


def templated(**statuses: str | None) -> Pod:
    """Pod "p" with a claim "gpu" from template "one"."""
    raw = pod("p")
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    raw["status"]["resourceClaimStatuses"] = [
        {"name": name} if made is None else {"name": name, "resourceClaimName": made} for name, made in statuses.items()
    ]
    return parse_pod(raw)


def named(*claims: str) -> Pod:
    return parse_pod(pod("p", *claims))


def refusal(asking: Pod, snapshot: Snapshot) -> str:
    """Why the claims of the pod block it."""
    found = claims_of(asking, snapshot)
    assert isinstance(found, Blocked)
    return found.reason.in_words()


def owned_by(uid: str) -> RawObject:
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}]}


def flying(pod_uid: str, *, claim_uid: str = "uid-gpu") -> AssumedAllocation:
    result = DeviceResult("gpu", DeviceId("gpu.example.com", "n", "gpu-0"))
    return AssumedAllocation(claim_uid, pod_uid, AllocationResult((result,)))


def names(claims: PodClaims | Blocked) -> tuple[list[str], list[str]]:
    assert isinstance(claims, PodClaims)
    return [c.claim.name for c in claims.allocated], [c.claim.name for c in claims.pending]


class TestFound:
    def test_nothing_for_a_pod_without_devices(self) -> None:
        assert claims_of(named(), Snapshot()) is NOTHING
        assert NOTHING.is_empty

    def test_claims_are_found_by_name(self) -> None:
        snapshot = snapshot_of(device_class(), claim("a"), claim("b", allocated=["n/gpu-0"]), claim("c"))
        assert names(claims_of(named("c", "b", "a"), snapshot)) == (["b"], ["c", "a"])

    def test_named_twice_is_one_claim(self) -> None:
        raw = pod("p", "gpu")
        raw["spec"]["resourceClaims"].append({"name": "again", "resourceClaimName": "gpu"})
        assert names(claims_of(parse_pod(raw), snapshot_of(device_class(), claim("gpu")))) == ([], ["gpu"])

    def test_a_claim_from_a_template_is_found_by_the_status_of_the_pod(self) -> None:
        snapshot = snapshot_of(device_class(), claim("p-gpu-1", metadata=owned_by("uid-p")), TEMPLATE)
        assert names(claims_of(templated(gpu="p-gpu-1"), snapshot)) == ([], ["p-gpu-1"])

    def test_a_template_that_needs_no_claim_is_passed_over(self) -> None:
        assert claims_of(templated(gpu=None), snapshot_of(TEMPLATE)) == NOTHING

    def test_shared_with_255_others(self) -> None:
        users = [f"q{i}" for i in range(255)]
        assert names(claims_of(named("gpu"), snapshot_of(claim("gpu", allocated=["n/gpu-0"], users=users)))) == (
            ["gpu"],
            [],
        )

    def test_reserved_for_the_pod_itself_among_256(self) -> None:
        users = ["p", *(f"q{i}" for i in range(255))]
        assert names(claims_of(named("gpu"), snapshot_of(claim("gpu", allocated=["n/gpu-0"], users=users)))) == (
            ["gpu"],
            [],
        )

    def test_an_allocated_claim_needs_no_class_any_more(self) -> None:
        assert names(claims_of(named("gpu"), snapshot_of(claim("gpu", allocated=["n/gpu-0"])))) == (["gpu"], [])

    def test_in_flight_for_the_pod_itself_counts_as_allocated(self) -> None:
        snapshot = snapshot_of(device_class(), claim("gpu")).assuming(flying("uid-p"))
        found = claims_of(named("gpu"), snapshot)
        assert names(found) == (["gpu"], [])
        assert isinstance(found, PodClaims)
        assert found.allocated[0].claim.allocation == flying("uid-p").allocation


@pytest.mark.parametrize(
    ("asking", "there", "reason"),
    [
        (named("gpu"), [], "claim gpu does not exist"),
        (templated(), [], "claim template one does not exist"),
        (templated(), [TEMPLATE], "waiting for claim gpu to be created"),
        (templated(gpu="p-gpu-1"), [TEMPLATE], "claim p-gpu-1 does not exist"),
        (templated(gpu="mine"), [claim("mine")], "claim mine was not made for this pod"),
        (templated(gpu="mine"), [claim("mine", metadata=owned_by("other"))], "claim mine was not made for this pod"),
        (named("gpu"), [claim("gpu")], "device class gpu does not exist"),
        (
            named("gpu"),
            [device_class(), claim("gpu", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            "claim gpu is being deleted",
        ),
        (
            named("gpu"),
            [claim("gpu", allocated=["n/gpu-0"], users=[f"q{i}" for i in range(256)])],
            "claim gpu is reserved for 256 pods already",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_whose_claims_cannot_be_used_is_blocked_with_the_reason(
    asking: Pod, there: list[dict[str, Any]], reason: str
) -> None:
    assert refusal(asking, snapshot_of(*there)) == reason


def test_blocked_while_the_claim_is_in_flight_for_another_pod() -> None:
    snapshot = snapshot_of(device_class(), claim("gpu")).assuming(flying("uid-q"))
    assert refusal(named("gpu"), snapshot) == "claim gpu is being allocated for another pod"


def test_what_can_not_be_read_says_so() -> None:
    state = ClusterState()
    state.apply(Event(EventType.ADDED, CLAIMS, {**claim("gpu"), "spec": "x"}))
    assert refusal(named("gpu"), state.snapshot) == 'claim gpu can\'t be read: spec: "x" is not an object'
    state.apply(Event(EventType.ADDED, CLAIMS, claim("gpu")))
    state.apply(Event(EventType.ADDED, CLASSES, {**device_class("gpu"), "spec": "x"}))
    expected = 'device class gpu can\'t be read: spec: "x" is not an object'
    assert refusal(named("gpu"), state.snapshot) == expected
    state.apply(Event(EventType.ADDED, TEMPLATES, {**TEMPLATE, "spec": "x"}))
    expected = 'claim template one can\'t be read: spec: "x" is not an object'
    assert refusal(templated(), state.snapshot) == expected


def test_of_many_problems_the_first_are_told() -> None:
    state = ClusterState()
    requests = [{"name": number} for number in range(100)]
    state.apply(Event(EventType.ADDED, CLAIMS, {**claim("gpu"), "spec": {"devices": {"requests": requests}}}))
    assert refusal(named("gpu"), state.snapshot).endswith(
        "spec.devices.requests[9].name: 9 is not a string; and 90 more"
    )


class TestExtendedResources:
    SNAPSHOT = snapshot_of(
        *(
            device_class(name, extended="example.com/gpu")
            | {"metadata": {"name": name, "creationTimestamp": f"{year}-01-01T00:00:00Z"}}
            for name, year in (("old", 2025), ("b", 2026), ("a", 2026))
        )
    )

    def test_the_newest_class_serves_then_the_lower_name(self) -> None:
        assert self.SNAPSHOT.extended["example.com/gpu"] == "a"
        assert self.SNAPSHOT.without_class("a").extended["example.com/gpu"] == "b"
        assert self.SNAPSHOT.without_class("a").without_class("b").extended["example.com/gpu"] == "old"


class TestNodes:
    SNAPSHOT = snapshot_of(
        node("n", allocatable={"example.com/gpu": "2", "cpu": "4"}),
        node("m"),
        claim("here", allocated=["n/gpu-0"], at="n"),
        claim("anywhere", allocated=["net/gpu-0"]),
    )

    @pytest.mark.parametrize(
        ("claims", "node_name", "problem"),
        [
            (["here"], "n", ""),
            (["here"], "m", "claim here is allocated for other nodes"),
            (["anywhere"], "m", ""),
            (["anywhere", "here"], "m", "claim here is allocated for other nodes"),
        ],
    )
    def test_allocated_claims_decide_which_nodes_a_pod_can_run_on(
        self, claims: list[str], node_name: str, problem: str
    ) -> None:
        found = claims_of(named(*claims), self.SNAPSHOT)
        assert isinstance(found, PodClaims)
        needs = found.on(self.SNAPSHOT.nodes[node_name])
        assert (needs.in_words() if isinstance(needs, Reason) else "") == problem


class TestWithoutPods:
    def test_claims_that_only_they_used_are_released(self) -> None:
        snapshot = snapshot_of(
            claim("alone", allocated=["n/gpu-0"], users=["p"]),
            claim("shared", allocated=["n/gpu-1"], users=["p", "q"]),
            claim("made", allocated=["n/gpu-2"], users=["p"], metadata=owned_by("uid-p")),
            pod("p", "alone", "shared", "made", on="n"),
            pod("q", "shared", on="n"),
        )
        after = without_pods(snapshot, [snapshot.pods[named("alone").key]])
        assert {key.name for key in after.claims} == {"alone", "shared"}
        held = {device for pool in after.usage.pools.values() for device in pool}
        assert held == {"gpu-1"}
        assert [p.name for p in after.pods_on("n")] == ["q"]
        assert len(snapshot.claims) == 3

    def test_both_users_of_a_shared_claim(self) -> None:
        snapshot = snapshot_of(
            claim("shared", allocated=["n/gpu-1"], users=["p", "q"]),
            pod("p", "shared", on="n"),
            pod("q", "shared", on="n"),
        )
        assert not without_pods(snapshot, snapshot.pods_on("n")).usage.pools


def test_keys_of_all_claims_that_are_known_by_name() -> None:
    raw = pod("p", "gpu")
    raw["spec"]["resourceClaims"] += [
        {"name": "made", "resourceClaimTemplateName": "one"},
        {"name": "waiting", "resourceClaimTemplateName": "one"},
    ]
    raw["status"] |= {
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": []},
    }
    assert [str(key) for key in claim_keys(parse_pod(raw))] == ["ns/gpu", "ns/p-made-1", "ns/p-extended"]


# Reasons about annotations are short and printable: filter tells them for each node, and any user can write them.


HOSTILE = "\x1b[31m\n" + "x" * 200_000
LONGEST = 400


def group_problem(annotations: dict[str, str]) -> str:
    found = read_membership(annotations, "")
    return "" if found is None else found.problem


REASONS = {
    "allocation mode": lambda: mode_problem({ALLOCATION_MODE: HOSTILE}),
    "priority of a claim": lambda: mode_problem({ALLOCATION_MODE: IMMEDIATE, PRIORITY: HOSTILE}),
    "optional requests": lambda: optional_problem(ClaimSpec(optional=(HOSTILE,))),
    "name of a group": lambda: group_problem({GROUP: HOSTILE, GROUP_SIZE: "2"}),
    "size of a group": lambda: group_problem({GROUP: "g", GROUP_SIZE: HOSTILE}),
    "policy": lambda: policy_problem(HOSTILE),
}


@pytest.mark.parametrize("annotation", REASONS)
def test_reason_about_an_annotation_is_short_and_printable(annotation: str) -> None:
    reason = REASONS[annotation]()
    assert reason.isprintable()
    assert 0 < len(reason) <= LONGEST
