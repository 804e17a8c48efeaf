"""Pods that have a node without their claims: served there, or told why not."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from allocator import Features
from extender.cluster.writes.lease import SHORT, SharedLease
from extender.kube.api import ApiError, RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, LEASES, NODES, PODS, SLICES
from extender.plugins.pinned_claims import PINNED_PODS, REASON
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, negotiated_class
from tests.extender.plugins.pinned_claims.scenes import GPU, POD, PROTECT, ROOM, WRITE, Scene, scene
from tests.kit import virtualtime
from tests.kit.clusters import claim, local_slice, node, pinned, pod, request
from tests.kit.servers.memory import Fault


def not_allocated(reason: str) -> list[tuple[str, str]]:
    return [("p", f"the pod has node n, and its claims are not allocated there: {reason}")]


class TestServed:
    def test_a_claim_is_allocated_first_and_then_reserved(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        world.look()
        assert world.has("a") == (["n/gpu-0"], ["p"])
        assert world.writes == [PROTECT, WRITE, WRITE]
        assert FINALIZER in world.get("a")["metadata"]["finalizers"]
        assert (world.told, dict(world.state.snapshot.assumed)) == ([], {})

    def test_the_claims_of_a_pod_are_allocated_together(self) -> None:
        world = scene(claim("a"), claim("b"), pinned("p", "a", "b"))
        world.look()
        assert (world.has("a"), world.has("b")) == ((["n/gpu-0"], ["p"]), (["n/gpu-1"], ["p"]))

    def test_a_claim_that_others_use_there_is_only_reserved(self) -> None:
        world = scene(claim("a", allocated=["n/gpu-1"], at="n", users=["q"]), pod("q", "a", on="n"), pinned("p", "a"))
        world.look()
        assert world.has("a") == (["n/gpu-1"], ["q", "p"])
        assert world.writes == [WRITE]

    def test_a_claim_that_waits_elsewhere_for_nobody_is_given_back_first(self) -> None:
        world = scene(claim("a", allocated=["m/gpu-0"], at="m"), pinned("p", "a"))
        world.look(seconds=3, ticks=5)
        assert world.has("a") == (["n/gpu-0"], ["p"])

    def test_once_the_claim_is_made_from_its_template(self) -> None:
        unmade = pinned()
        unmade["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        world = scene(unmade)
        world.look()
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
        virtualtime.run(world.api.create(CLAIMS, claim("p-gpu", metadata={"ownerReferences": [owner]})))
        statuses = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
        virtualtime.run(world.api.patch_status(PODS, POD, {"status": {"resourceClaimStatuses": statuses}}))
        world.look(ticks=1)
        assert world.has("p-gpu") == (["n/gpu-0"], ["p"])

    def test_the_pod_of_higher_priority_comes_first(self) -> None:
        pods = [pinned("p", "a", on="m"), pinned("q", "b", on="m", priority=9)]
        world = scene(claim("a"), claim("b"), *pods)
        world.look()
        assert (world.has("a"), world.has("b")) == (([], []), (["m/gpu-0"], ["q"]))

    def test_taints_and_cordons_of_the_node_do_not_matter(self) -> None:
        """kubelet does not look at them either."""
        closed = {**node("x"), "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]}}
        world = scene(closed, local_slice("x"), claim("a"), pinned("p", "a", on="x"))
        world.look()
        assert world.has("a") == (["x/gpu-0"], ["p"])


LEFT_ALONE: dict[str, RawObject] = {
    "it waits for its scheduler": pod("p", "a"),
    "it has started: it has lost its claim": pod("p", "a", on="n"),
    "its init containers run": {
        **pinned("p", "a"),
        "status": {"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]},
    },
    "it is being deleted": pinned("p", "a", deleting=True),
    "it is finished": {**pinned("p", "a"), "status": {"phase": "Failed"}},
    "it needs no claims": pinned("p"),
}


@pytest.mark.parametrize("left", LEFT_ALONE.values(), ids=list(LEFT_ALONE))
def test_other_pods_are_left_alone(left: RawObject) -> None:
    world = scene(claim("a"), left)
    world.look(seconds=9, ticks=4)
    assert (world.transport.calls, world.told) == ([], [])


@pytest.mark.parametrize(("name", "is_served"), [("ours", True), ("theirs", False), ("", False)])
def test_only_pods_of_schedulers_that_call_us_if_these_are_known(name: str, is_served: bool) -> None:
    mine = pinned("p", "a")
    mine["spec"]["schedulerName"] = name
    world = scene(claim("a"), mine, schedulers=("ours",))
    world.look()
    assert world.has("a") == ((["n/gpu-0"], ["p"]) if is_served else ([], []))


class TestNotServed:
    def test_the_pod_is_told_once_why_and_only_if_that_lasts(self) -> None:
        held = [claim(name, allocated=[f"n/gpu-{number}"]) for number, name in enumerate("xy")]
        world = scene(*held, claim("a"), pinned("p", "a"))
        world.look(seconds=1)
        assert world.told == []
        world.look(seconds=60, ticks=9)
        assert world.events == not_allocated("node n: no free device for request gpu")
        assert {note.reason for _, note in world.told} == {REASON}
        assert world.writes == []

    def test_a_pod_that_another_replica_has_served_is_not_told_of_a_conflict(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        world.transport.script(WRITE, *[Fault(refused=ApiError(409, "Conflict", "the object has changed"))] * 99)
        world.look(seconds=1)
        world.give("a", "n/gpu-0", "p")
        world.look(seconds=60, ticks=9)
        assert world.events == []

    def test_it_is_served_as_soon_as_there_is_a_device(self) -> None:
        held = [claim(name, allocated=[f"n/gpu-{number}"]) for number, name in enumerate("xy")]
        world = scene(*held, claim("a"), pinned("p", "a"))
        world.look()
        world.patch("y", allocation=None)
        world.look(ticks=1)
        assert world.has("a") == (["n/gpu-1"], ["p"])

    def test_it_is_not_tried_again_while_nothing_changes(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        world.transport.script(PROTECT, *[Fault(refused=ApiError(403, "Forbidden", "not allowed"))] * 99)
        world.look(ticks=100)
        assert len(world.writes) == 4, "after 2, 4 and 8 s"

    def test_a_node_that_does_not_exist_yet(self) -> None:
        world = scene(claim("a"), pinned("p", "a", on="new"))
        world.look(seconds=60, ticks=5)
        text = "the pod has node new, and its claims are not allocated there: node new: node not yet known"
        assert world.events == [("p", text)]
        virtualtime.run(world.api.create(NODES, node("new")))
        virtualtime.run(world.api.create(SLICES, local_slice("new")))
        world.look(ticks=1)
        assert world.has("a") == (["new/gpu-0"], ["p"])

    @pytest.mark.parametrize(
        ("objects", "reason"),
        [
            ([], "claim a does not exist"),
            ([claim("a", request(device_class="none"))], "device class none does not exist"),
            (
                [claim("a", allocated=["m/gpu-0"], at="m", users=["q"]), pod("q", "a", on="m")],
                "node n: claim a is allocated for other nodes",
            ),
        ],
    )
    def test_it_is_told_what_filter_would_say(self, objects: Sequence[RawObject], reason: str) -> None:
        world = scene(*objects, pinned("p", "a"))
        world.look(seconds=60, ticks=5)
        assert world.events == not_allocated(reason)

    def test_a_claim_that_the_watch_has_not_shown_yet_is_not_missing(self) -> None:
        """kube-scheduler's own plugin has just bound the pod."""
        world = scene(claim("a"), pinned("p", "a"))
        world.watch.is_behind = True
        world.give("a", "n/gpu-1", "p")
        world.look(seconds=60, ticks=5)
        assert (world.has("a"), world.told) == ((["n/gpu-1"], ["p"]), [])

    def test_what_waits_for_the_rest_of_its_pod_is_given_back(self) -> None:
        """Alone, the allocated claim would hold a device that no other pod could have."""
        held = claim("x", allocated=["n/gpu-1"])
        world = scene(held, claim("a", allocated=["n/gpu-0"], at="n"), claim("b"), pinned("p", "a", "b"))
        world.look(seconds=1, ticks=20)
        assert (world.has("a"), world.has("b")) == (([], []), ([], []))
        assert world.events == not_allocated("node n: not enough free devices for request gpu")

    def test_not_while_the_cluster_is_not_known(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        world.state.doubt(PODS, "nothing heard for 30 s")
        world.look(seconds=9, ticks=3)
        assert (world.transport.calls, world.told) == ([], [])


class TestReplicas:
    def test_the_one_that_schedulers_ask_has_a_head_start(self) -> None:
        """It knows its own binds."""
        asked, other = scene(claim("a"), pinned("p", "a")), Scene(*ROOM, claim("a"), pinned("p", "a"))
        for each in (asked, other):
            each.look(seconds=0.5)
        assert (asked.has("a"), other.has("a")) == ((["n/gpu-0"], ["p"]), ([], []))
        other.look(seconds=0.5, ticks=5)
        assert other.has("a") == (["n/gpu-0"], ["p"])

    def test_the_head_start_ends_when_nobody_asks_any_more(self) -> None:
        world = scene(claim("a"))
        world.passed += timedelta(seconds=61)
        virtualtime.run(world.api.create(PODS, pinned("p", "a")))
        world.look()
        assert world.has("a") == ([], [])

    def test_only_one_serves_at_a_time(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        theirs = SharedLease(world.api, PINNED_PODS, "theirs", world.now, world.clock)
        for _ in range(9):
            virtualtime.run(theirs.take())
            world.look(seconds=1, ticks=1)
        assert (world.has("a"), world.told) == (([], []), [])
        virtualtime.run(theirs.give_back())
        world.look()
        assert world.has("a") == (["n/gpu-0"], ["p"])

    def test_the_first_event_has_the_reason_also_if_another_replica_had_the_lease(self) -> None:
        world = scene(negotiated_class(), claim("a", LICENSE), pinned("p", "a"))
        theirs = SharedLease(world.api, PINNED_PODS, "theirs", world.now, world.clock)
        virtualtime.run(theirs.take())
        world.look(seconds=1, ticks=9)
        virtualtime.run(theirs.release())
        world.look(seconds=1, ticks=20)
        assert world.events == not_allocated(
            f"node n: controller {NAME} of device class license is not in the settings"
        )

    def test_the_lease_is_given_back_when_all_is_done(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        world.look()
        assert virtualtime.run(world.api.get(LEASES, PINNED_PODS))["spec"]["holderIdentity"] == "mine"
        world.look(seconds=SHORT.renewal, ticks=2)
        assert virtualtime.run(world.api.get(LEASES, PINNED_PODS))["spec"]["holderIdentity"] == ""

    def test_without_the_right_to_the_lease_the_pod_is_told(self) -> None:
        world = scene(claim("a"), pinned("p", "a"))
        refused = ApiError(403, "Forbidden", "not allowed")
        world.transport.script("get leases", *[Fault(refused=refused)] * 99)
        world.look(seconds=3, ticks=5)
        assert world.events == not_allocated(f"lease kube-system/dra-extender-pinned-pods: {refused}")


class TestExtendedResources:
    """kubelet does not wait for a special claim, so an allocation would come too late."""

    TEXT = (
        f"the pod has node n, and kubelet starts it without {GPU}: kubelet does not wait for devices of a device "
        "class; remove spec.nodeName, so that a scheduler allocates them"
    )

    def test_the_pod_is_told_at_once(self) -> None:
        world = scene(pinned("p", resources={GPU: "1"}))
        world.look(ticks=5)
        assert (world.events, world.writes) == ([("p", self.TEXT)], [])

    def test_a_resource_that_nobody_offers(self) -> None:
        world = scene(pinned("p", resources={"example.com/other": "1"}))
        world.look()
        reason = "neither a device plugin nor a device class offers extended resource example.com/other"
        assert world.events == [("p", f"the pod has node n, and kubelet starts it without devices: {reason}")]

    def test_its_claims_are_allocated_all_the_same(self) -> None:
        world = scene(claim("a"), pinned("p", "a", resources={GPU: "1"}))
        world.look()
        assert (world.has("a"), world.events) == ((["n/gpu-0"], ["p"]), [("p", self.TEXT)])

    @pytest.mark.parametrize(
        ("on", "features"),
        [("plugin", None), ("n", Features(extended_resource=False)), ("nowhere", None)],
        ids=["a device plugin serves it", "the feature is off", "the node is not known"],
    )
    def test_otherwise_nothing_is_told(self, on: str, features: Features | None) -> None:
        there = node("plugin", allocatable={GPU: "1"})
        world = scene(there, pinned("p", on=on, resources={GPU: "1"}), features=features)
        world.look()
        assert world.told == []
