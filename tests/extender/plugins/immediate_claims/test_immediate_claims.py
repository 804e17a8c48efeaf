"""Claims that are allocated before a pod needs them: where, in which order, what they wait for, and who keeps them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from allocator import Claim, Reason, parse_claim
from allocator.model.optional import OPTIONAL_REQUESTS
from extender import Cluster
from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations
from extender.cluster.objects.claims import ALLOCATION_MODE, PRIORITY, is_immediate, mode_problem, priority_of
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.cluster.writes.lease import SharedLease
from extender.faces.commands.main import app
from extender.framework.decisions.evaluate import Decider
from extender.framework.pods.claims import ALLOCATED_ELSEWHERE, Blocked, claims_of
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from extender.plugins.deallocate import claim_in_the_way
from extender.plugins.immediate_claims import IMMEDIATE_CLAIMS, INVALID, WAITS, ImmediateAllocation, ImmediateClaims
from extender.tools.offload import Offload, at_once
from tests.extender.faces.commands.scenes import RUNNER, written
from tests.extender.framework.bind.scenes import Lagging
from tests.extender.plugins.pinned_claims.scenes import scene as pinned_scene
from tests.kit import virtualtime
from tests.kit.binders import binder_over, devices_of
from tests.kit.clusters import (
    GPU,
    Object,
    claim,
    claim_template,
    local_slice,
    network_slice,
    node,
    pinned,
    pod,
    request,
    solver,
)
from tests.kit.objects.parts import api_object
from tests.kit.servers.memory import NOW, Fault, Transport, memory_api, writes

ROOM = (GPU, node("n"), local_slice("n", 2))


def immediate(name: str = "c", *requests: Object, created: str = "2026-01-01T00:00:00Z", **annotations: str) -> Object:
    """A claim that is to be allocated without a pod."""
    found = {ALLOCATION_MODE: "Immediate", **{f"dra-extender.dev/{key}": value for key, value in annotations.items()}}
    return claim(name, *requests, metadata={"annotations": found, "creationTimestamp": created})


class Scene:
    """An extender that allocates the immediate claims of a cluster."""

    def __init__(self, *objects: RawObject, api: Any = None, holder: str = "mine") -> None:
        self.api = api or memory_api(*objects)
        self.transport = Transport(self.api)
        self.passed = timedelta()
        self.told: list[tuple[str, Note]] = []
        self.state = ClusterState()
        self.watch = Lagging(self.state)
        self.api.follow(self.watch)
        by = replace(solver(), clock=self.clock)
        void = DoubleAllocations(count=lambda: None, tell=self._hear)
        binder = binder_over(self.transport, self.state, now=self.now, by=by, double_allocations=void)
        self.lease = SharedLease(self.transport, IMMEDIATE_CLAIMS, holder, self.now, self.clock)
        self.binder, self.solver = binder, by
        self.task = self.task_over(at_once)

    def task_over(self, off_loop: Offload) -> ImmediateAllocation:
        """The task, with searches in a place of their own."""
        decider = Decider(self.solver, self.state)
        claims = ImmediateClaims(self.state, decider, self.binder, off_loop)
        return ImmediateAllocation(self.state, claims, self.lease, self.solver, self._hear, self.now)

    def clock(self) -> float:
        return self.passed.total_seconds()

    def now(self) -> datetime:
        return NOW + self.passed

    def look(self, *, seconds: float = 0.2, ticks: int = 3) -> None:
        """Give the task some turns, with this number of seconds between them."""

        async def run() -> None:
            for _ in range(ticks):
                await self.task.tick()
                self.passed += timedelta(seconds=seconds)

        virtualtime.run(run())

    def has(self, name: str) -> list[str]:
        """The devices of a claim, which is reserved for nobody."""
        raw = virtualtime.run(self.api.get(CLAIMS, ObjectKey("ns", name)))
        assert not (raw.get("status") or {}).get("reservedFor")
        return [each.partition("/")[2] for each in devices_of(raw)]

    def add(self, obj: RawObject) -> None:
        kinds = {each.kind: each for each in (CLAIMS, CLASSES, NODES, PODS, SLICES)}
        virtualtime.run(self.api.create(kinds[obj["kind"]], obj))

    def give(self, name: str, device: str) -> None:
        """Others allocate a device to a claim."""
        status = claim(name, allocated=[device], at="n")["status"]
        virtualtime.run(self.api.patch_status(CLAIMS, ObjectKey("ns", name), {"status": status}))

    def delete(self, name: str) -> None:
        virtualtime.run(self.api.delete(CLAIMS, ObjectKey("ns", name)))

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Reason and text of each Event on a claim."""
        assert all(note.of_claim for _, note in self.told)
        return [(note.reason, note.text) for _, note in self.told]

    @property
    def writes(self) -> list[str]:
        return [call for call in writes(self.transport.calls) if not call.endswith("leases")]

    def _hear(self, stand_in: Pod, note: Note) -> None:
        self.told.append((stand_in.name, note))


class TestAllocating:
    def test_a_claim_is_allocated_without_a_pod_and_reserved_for_nobody(self) -> None:
        scene = Scene(*ROOM, immediate())
        scene.look()
        assert scene.has("c") == ["gpu-0"]
        assert scene.writes == ["update resourceclaims", "update_status resourceclaims"]

    @pytest.mark.parametrize(
        ("call", "within"), [("get leases", 3), ("update resourceclaims", 11), ("update_status resourceclaims", 11)]
    )
    def test_a_claim_is_allocated_soon_after_the_api_server_was_away(self, call: str, within: int) -> None:
        scene = Scene(*ROOM, immediate())
        scene.transport.script(call, *[Fault(lost=True)] * 10_000)
        scene.look(seconds=1, ticks=300)
        assert scene.has("c") == []
        scene.transport.faults.clear()
        scene.look(seconds=1, ticks=within)
        assert scene.has("c") == ["gpu-0"]

    def test_a_claim_that_comes_later_is_found(self) -> None:
        scene = Scene(*ROOM)
        scene.look()
        scene.add(immediate())
        scene.look()
        assert scene.has("c") == ["gpu-0"]

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(claim("c"), id="no annotation"),
            pytest.param(
                claim("c", metadata={"annotations": {ALLOCATION_MODE: "WaitForFirstConsumer"}}), id="the other mode"
            ),
        ],
    )
    def test_other_claims_are_left_alone(self, other: Object) -> None:
        scene = Scene(*ROOM, other)
        scene.look()
        assert (scene.has("c"), scene.writes, scene.notes) == ([], [], [])

    def test_the_highest_priority_goes_first_and_then_the_oldest(self) -> None:
        old, young = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
        scene = Scene(
            *ROOM,
            immediate("a", created=young),
            immediate("b", created=old),
            immediate("c", created=young, priority="7"),
            immediate("d", created=old, priority="-7"),
        )
        scene.look()
        assert {name: scene.has(name) for name in "abcd"} == {"a": [], "b": ["gpu-1"], "c": ["gpu-0"], "d": []}

    def test_it_goes_to_the_node_with_the_highest_score(self) -> None:
        """First-fit scores preferred alternatives: only the second node has what is wanted most."""
        fast = [f"device.attributes['{'gpu.example.com'}'].kind == 'fast'"]
        ways = {"name": "gpu", "firstAvailable": [_way("fast", *fast), _way("any")]}
        scene = Scene(
            GPU,
            node("a"),
            node("b"),
            local_slice("a", attributes={"kind": {"string": "slow"}}),
            local_slice("b", attributes={"kind": {"string": "fast"}}),
            immediate("c", ways),
        )
        scene.look()
        (term,) = scene.state.snapshot.claims[ObjectKey("ns", "c")].claim.allocation.node_selector.terms  # type: ignore[union-attr]
        assert term.match_fields[0].values == ("b",)

    def test_a_cordoned_node_gets_none(self) -> None:
        cordoned = node("n")
        cordoned["spec"] = {"unschedulable": True}
        scene = Scene(GPU, cordoned, local_slice("n"), immediate())
        scene.look(seconds=20)
        assert scene.has("c") == []
        assert scene.notes == [(WAITS, "the claim waits to be allocated: there is no node that is not cordoned")]

    def test_devices_that_every_node_reaches_bind_the_claim_to_no_node(self) -> None:
        scene = Scene(GPU, node("n"), network_slice("net"), immediate())
        scene.look()
        allocation = scene.state.snapshot.claims[ObjectKey("ns", "c")].claim.allocation
        assert allocation is not None
        assert allocation.node_selector is None


def _way(name: str, *selectors: str) -> Object:
    found = request(name, selectors=selectors)
    return {"name": name, **found["exactly"]}


class TestWaiting:
    def test_the_claim_is_told_once_why_and_only_if_that_lasts(self) -> None:
        scene = Scene(GPU, node("n"), immediate())
        scene.look()
        assert scene.notes == []
        scene.look(seconds=20)
        scene.look(seconds=20)
        assert scene.notes == [(WAITS, "the claim waits to be allocated: 1 no device for request gpu")]

    def test_it_is_allocated_as_soon_as_there_is_a_device(self) -> None:
        scene = Scene(GPU, node("n"), immediate())
        scene.look(seconds=20)
        scene.add(local_slice("n"))
        scene.look(ticks=1)
        assert scene.has("c") == ["gpu-0"]

    def test_it_is_allocated_again_after_it_was_deallocated(self) -> None:
        """kube-controller-manager deallocates a claim when its last pod has ended."""
        scene = Scene(*ROOM, immediate())
        scene.look()
        virtualtime.run(scene.api.patch_status(CLAIMS, ObjectKey("ns", "c"), {"status": {"allocation": None}}))
        assert scene.has("c") == []
        scene.look()
        assert scene.has("c") == ["gpu-0"]

    def test_it_is_not_tried_again_while_nothing_changes(self) -> None:
        scene = Scene(GPU, node("n"), immediate())
        scene.look(ticks=2)
        before = scene.state.snapshot.version
        scene.look(ticks=5)
        assert scene.state.snapshot.version == before

    def test_a_claim_that_is_gone_is_forgotten(self) -> None:
        scene = Scene(GPU, node("n"), immediate())
        scene.look()
        scene.delete("c")
        scene.look(seconds=20)
        assert scene.notes == []

    def test_only_one_replica_allocates_at_a_time(self) -> None:
        first = Scene(*ROOM, immediate())
        second = Scene(api=first.api, holder="other")
        for _ in range(2):
            first.look(ticks=1)
            second.look(ticks=1)
        assert first.has("c") == ["gpu-0"]
        assert second.writes == []


class TestChecking:
    def test_an_allocation_that_was_not_checked_is_checked_after_a_restart(self) -> None:
        """The process ended after the write, and another claim had got the device before."""
        scene = Scene(*ROOM, claim("other"), immediate())
        scene.give("other", "n/gpu-0")
        scene.give("c", "n/gpu-0")
        scene.look(seconds=3, ticks=6)
        assert scene.has("c") == ["gpu-1"]

    def test_a_good_allocation_is_checked_without_a_write(self) -> None:
        scene = Scene(*ROOM, immediate())
        scene.give("c", "n/gpu-0")
        scene.look()
        assert (scene.has("c"), scene.writes) == (["gpu-0"], [])


BAD = [
    ({ALLOCATION_MODE: "Imediate"}, 'allocation-mode: unknown mode "Imediate"; did you mean Immediate?'),
    ({ALLOCATION_MODE: ""}, 'unknown mode ""; there are Immediate and WaitForFirstConsumer'),
    ({ALLOCATION_MODE: "Immediate", PRIORITY: "high"}, 'priority: "high" is not a whole number of 32 bits'),
    ({ALLOCATION_MODE: "Immediate", PRIORITY: "9999999999"}, "is not a whole number of 32 bits"),
    ({PRIORITY: "7"}, "priority: needs annotation dra-extender.dev/allocation-mode: Immediate"),
    ({ALLOCATION_MODE: "WaitForFirstConsumer", PRIORITY: "7"}, "needs annotation dra-extender.dev/allocation-mode"),
]


class TestAnnotations:
    @pytest.mark.parametrize(("annotations", "problem"), BAD)
    def test_bad_ones_are_told_and_nothing_is_allocated(self, annotations: dict[str, str], problem: str) -> None:
        scene = Scene(*ROOM, claim("c", metadata={"annotations": annotations}))
        scene.look()
        assert scene.has("c") == []
        ((reason, text),) = scene.notes
        assert reason == INVALID
        assert problem in text

    @pytest.mark.parametrize(("annotations", "problem"), BAD)
    def test_bad_ones_keep_a_pod_off_all_nodes(self, annotations: dict[str, str], problem: str) -> None:
        cluster = Cluster.from_objects([*ROOM, claim("c", metadata={"annotations": annotations}), pod("p", "c")])
        (placed,) = cluster.schedule()
        assert problem in placed.reason
        assert placed.reason.startswith("1 claim c: annotation")

    @pytest.mark.parametrize(
        ("annotations", "expected"),
        [
            ({}, (False, 0)),
            ({ALLOCATION_MODE: "WaitForFirstConsumer"}, (False, 0)),
            ({ALLOCATION_MODE: "Immediate"}, (True, 0)),
            ({ALLOCATION_MODE: "Immediate", PRIORITY: "-5"}, (True, -5)),
        ],
    )
    def test_good_ones(self, annotations: dict[str, str], expected: tuple[bool, int]) -> None:
        found = parsed(claim("c", metadata={"annotations": annotations}))
        assert mode_problem(annotations) == ""
        assert (is_immediate(found), priority_of(found)) == expected


def parsed(raw: Object) -> Claim:
    return parse_claim(raw)


class TestPods:
    def test_a_pod_waits_until_its_claim_is_allocated(self) -> None:
        scene = Scene(GPU, node("n"), immediate(), pod("p", "c"))
        snapshot = scene.state.snapshot
        blocked = claims_of(snapshot.pods[ObjectKey("ns", "p")], snapshot)
        assert isinstance(blocked, Blocked)
        assert blocked.reason.in_words() == "claim c waits for its devices (allocation mode Immediate)"

    @pytest.mark.parametrize(("obj", "is_freed"), [(immediate(), False), (claim("c"), True)])
    def test_a_claim_in_the_way_of_its_pod_stays_allocated(self, obj: Object, is_freed: bool) -> None:
        scene = Scene(*ROOM, obj, pod("p", "c"))
        scene.give("c", "n/gpu-0")
        snapshot = scene.state.snapshot
        asking = snapshot.pods[ObjectKey("ns", "p")]
        found = claim_in_the_way(asking, [Reason(ALLOCATED_ELSEWHERE, claim="c")], snapshot)
        assert (found is not None) == is_freed


def test_simulation_allocates_immediate_claims_before_it_schedules_pods() -> None:
    cluster = Cluster.from_objects([*ROOM, immediate("idle"), immediate("c"), pod("p", "c")])
    placed: Sequence[Any] = cluster.schedule()
    assert [str(each) for each in placed[0].devices] == ["gpu.example.com/n/gpu-0"]
    held = [each.claim.allocation for each in cluster.snapshot.claims.values()]
    assert all(held)


def test_validate_warns_of_annotations_that_contradict_each_other(tmp_path: Path) -> None:
    file = written(tmp_path / "c.yaml", claim("c", metadata={"annotations": {PRIORITY: "7"}}), immediate("d"))
    told = RUNNER.invoke(app, ["validate", str(file)]).stderr
    assert "ResourceClaim ns/c: annotation dra-extender.dev/priority: needs annotation" in told
    assert "ns/d" not in told


def test_validate_warns_of_annotations_of_claims_on_other_objects(tmp_path: Path) -> None:
    misplaced, placed = claim_template("t"), claim_template("u")
    placed["spec"]["metadata"] = {"annotations": {OPTIONAL_REQUESTS: "gpu"}}
    misplaced["metadata"]["annotations"] = {OPTIONAL_REQUESTS: "gpu"}
    told = RUNNER.invoke(app, ["validate", str(written(tmp_path / "t.yaml", misplaced, placed))]).stderr
    assert f"ResourceClaimTemplate ns/t: metadata.annotations[{OPTIONAL_REQUESTS}]: has no effect here" in told
    assert "ns/u" not in told


class TestPinnedPods:
    """Pods whose author has chosen the node."""

    def test_an_immediate_claim_on_the_node_is_reserved(self) -> None:
        world = pinned_scene(immediate(), pinned("p", "c"))
        world.give("c", "n/gpu-0")
        world.look()
        assert world.has("c") == (["n/gpu-0"], ["p"])

    def test_an_immediate_claim_elsewhere_stays_there_and_the_pod_is_told(self) -> None:
        world = pinned_scene(immediate(), pinned("p", "c", on="m"))
        world.give("c", "n/gpu-0")
        world.look(seconds=20, ticks=4)
        assert world.has("c") == (["n/gpu-0"], [])
        assert "claim c is allocated for other nodes" in world.events[0][1]

    def test_an_immediate_claim_that_waits_is_told(self) -> None:
        world = pinned_scene(immediate(), pinned("p", "c"))
        world.look(seconds=20, ticks=4)
        assert world.has("c") == ([], [])
        assert "claim c waits for its devices" in world.events[0][1]

    def test_an_optional_request_is_left_out(self) -> None:
        wishing = claim("c", request(), request("more", count=9), metadata={"annotations": {OPTIONAL_REQUESTS: "more"}})
        world = pinned_scene(wishing, pinned("p", "c"))
        world.look()
        assert world.has("c") == (["n/gpu-0"], ["p"])


def test_a_quota_holds_for_immediate_claims() -> None:
    limits = [{"name": "l", "deviceClassName": "gpu", "devices": 1}]
    quota = api_object("DeviceQuota", "q", namespace="ns", spec={"limits": limits})
    scene = Scene(*ROOM, quota, immediate("c"), immediate("d"))
    scene.look(seconds=20)
    assert (scene.has("c"), scene.has("d")) == (["gpu-0"], [])
    assert "quota" in scene.notes[0][1]


def test_devices_of_nominated_pods_are_not_for_immediate_claims() -> None:
    scene = Scene(*ROOM, claim("d", request(count=2)), pod("p", "d", nominated="n"), immediate(priority="99"))
    scene.look()
    assert scene.has("c") == []
