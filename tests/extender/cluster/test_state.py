"""The state: events to snapshots, versions and changes, and allocations that are in flight."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from immutables import Map

from allocator import DeviceId, InvalidObjectError, Quantity
from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import double_allocation
from extender.cluster.kinds import Topic, all_kinds
from extender.cluster.objects.budgets import parse_budget
from extender.cluster.objects.claims import parse_claim_object
from extender.cluster.objects.nodes import parse_node_object
from extender.cluster.objects.pods import KEPT, NOTHING_KEPT, Keeping, is_extended, parse_pod
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.snapshot_edit import SnapshotEdit
from extender.cluster.timeline import ANYTHING, ChangeLog
from extender.kube.api import Event, EventType, ObjectKey, RawObject, revision
from extender.kube.resources import CLAIMS, NODES, PODS, RESOURCES, SLICES, Resource
from tests.extender.cluster.scenes import KEY, POOL, allocation, at, change, delete, found, held
from tests.extender.plugins.quota.test_quota_account import keeping
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, budget, claim, device_class, local_slice, node, pod, state_of, taint_rule
from tests.kit.virtualtime import in_virtual_time


class TestPendingPods:
    """`ClusterState.pending_pod`."""

    def test_a_pending_pod_is_found_by_uid_and_version(self) -> None:
        state = ClusterState()
        change(state, PODS, pod("p", "a"), version=7)
        found = state.pending_pod("uid-p", "7")
        assert found is state.snapshot.pod("uid-p") is not None
        assert state.pending_pod("uid-p", "6") is state.pending_pod("uid-q", "7") is None

    def test_a_pod_with_a_node_is_not(self) -> None:
        state = ClusterState()
        bound = pod("p", "a")
        bound["spec"]["nodeName"] = "n"
        change(state, PODS, bound, version=7)
        assert state.pending_pod("uid-p", "7") is None


class TestOldNews:
    def test_an_event_from_before_what_is_known_of_its_object_is_ignored(self) -> None:
        state = ClusterState()
        for version, labels in ((7, "new"), (5, "old")):
            change(state, NODES, node("n", labels={"a": labels}), version=version)
        assert state.snapshot.nodes["n"].node.labels["a"] == "new"
        delete(state, NODES, node("n"), version=6)
        assert "n" in state.snapshot.nodes
        delete(state, NODES, node("n"), version=8)
        assert "n" not in state.snapshot.nodes

    def test_a_list_may_come_with_changes_of_other_objects_from_before_its_end(self) -> None:
        state = ClusterState()
        state.replace(NODES, [at(5, node("a"))], 9)
        change(state, NODES, node("b"), version=8)
        assert sorted(state.snapshot.nodes) == ["a", "b"]


class TestReadiness:
    def test_nothing_is_synced_at_first(self) -> None:
        assert ClusterState().not_ready == "not synced yet"

    def test_a_list_syncs_its_kind(self) -> None:
        state = ClusterState()
        state.replace(NODES, [], 1)
        assert (state.doubt_of(NODES), state.doubt_of(PODS)) == ("", "not synced yet")
        assert state.not_ready == "not synced yet"

    def test_a_kind_in_doubt_makes_all_not_ready_until_it_is_trusted(self) -> None:
        state = state_of([])
        state.doubt(PODS, "nothing heard for 30 s")
        assert state.not_ready == "nothing heard for 30 s"
        state.trust(PODS)
        assert state.not_ready == ""


class TestVersions:
    @pytest.mark.parametrize(
        ("raw", "topic", "key"),
        [
            (node("n"), Topic.NODE, "n"),
            (local_slice("n"), Topic.POOL, POOL),
            (device_class("gpu"), Topic.CLASS, "gpu"),
            (taint_rule("broken", driver=DRIVER), Topic.TAINT_RULE, "broken"),
            (claim("gpu"), Topic.CLAIM, KEY),
            (pod("gpu", "gpu"), Topic.POD, KEY),
            (budget("gpu", {}, 1), Topic.BUDGET, KEY),
        ],
        ids=lambda value: value["kind"] if isinstance(value, dict) else "",
    )
    def test_each_change_is_logged_by_what_it_is_about(self, raw: RawObject, topic: Topic, key: object) -> None:
        state = state_of([raw])
        assert state.snapshot.version == 1
        assert state.since(0).changed == {topic: {key}}

    @pytest.mark.parametrize(
        "raw", [node("n"), device_class("gpu"), pod("p", "gpu"), taint_rule("t"), budget("b", {}, 1)]
    )
    def test_an_update_that_changes_nothing_for_us_is_no_change(self, raw: RawObject) -> None:
        state = state_of([raw])
        heartbeat = {**raw, "metadata": {**raw["metadata"], "annotations": {"a": "b"}}}
        change(state, RESOURCES[raw["kind"]], heartbeat, version=9)
        assert state.snapshot.version == 1

    def test_but_a_pods_resource_version_is_kept(self) -> None:
        state = state_of([pod("p", "gpu")])
        change(state, PODS, pod("p", "gpu"), version=9)
        assert state.snapshot.pods[ObjectKey("ns", "p")].resource_version == "9"

    def test_pods_without_devices_are_no_change_and_not_kept(self) -> None:
        state = state_of([pod("p")])
        assert (state.snapshot.version, len(state.snapshot.pods)) == (0, 0)

    def test_an_allocation_changes_its_pool(self) -> None:
        state = state_of([claim("gpu")])
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]))
        assert state.since(1).changed == {Topic.CLAIM: {KEY}, Topic.POOL: {POOL}}

    def test_a_reservation_does_not(self) -> None:
        state = state_of([claim("gpu", allocated=["n/gpu-0"])])
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        assert state.since(1).changed == {Topic.CLAIM: {KEY}}

    def test_a_list_is_one_version(self) -> None:
        state = ClusterState()
        state.replace(NODES, [node("n"), node("m")], 5)
        assert state.snapshot.version == 1
        assert state.since(0).keys(Topic.NODE) == {"n", "m"}

    def test_objects_of_one_topic_that_have_changed_since_are_told_apart(self) -> None:
        state = ClusterState(log_size=2)
        state.replace(NODES, [node(name) for name in "abcdef"], 5)
        assert state.since(0).keys(Topic.CLAIM) is None, "there were more changes than are kept"
        before = state.snapshot.version
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"], users=["p"]), version=7)
        assert state.since(before).keys(Topic.CLAIM) == {KEY}
        assert state.since(before).keys(Topic.POD) == set()


class TestChangeLog:
    def test_forgets_the_oldest_and_says_so(self) -> None:
        log = ChangeLog(2)
        for version in range(1, 6):
            log.add(version, [(Topic.NODE, f"n{version}")])
        assert log.since(2) == ANYTHING
        assert log.since(3).keys(Topic.NODE) == {"n4", "n5"}
        assert log.since(5).changed == {}


class TestLists:
    def test_what_is_not_listed_is_gone(self) -> None:
        state = state_of([claim("gpu", allocated=["n/gpu-0"]), claim("other")])
        assert state.replace(CLAIMS, [claim("other")], 5)
        assert [key.name for key in state.snapshot.claims] == ["other"]
        assert held(state) == set()

    def test_an_old_list_is_discarded(self) -> None:
        state = state_of([])
        change(state, NODES, node("n"), version=7)
        assert not state.replace(NODES, [], 6)
        assert "n" in state.snapshot.nodes

    def test_what_could_not_be_read_and_is_gone_is_no_problem_any_more(self) -> None:
        state = ClusterState()
        state.apply(Event(EventType.ADDED, SLICES, {**local_slice("n"), "spec": "x"}))
        ((kind, key),) = state.snapshot.problems
        assert (kind, key.name) == ("ResourceSlice", "slice-n")
        state.replace(SLICES, [], 5)
        assert not state.snapshot.problems


class TestListsBitByBit:
    def test_nothing_is_seen_before_it_is_complete(self) -> None:
        state = state_of([node("old")])
        relist = state.relist(NODES)
        relist.add(ObjectKey("", "new"), at(5, node("new")))
        assert list(state.snapshot.nodes) == ["old"]
        assert state.take(relist, 5)
        assert list(state.snapshot.nodes) == ["new"]

    def test_in_the_end_nothing_long_is_left_to_be_done(self) -> None:
        puts: list[ObjectKey] = []
        relist = ClusterState().relist(CLAIMS)
        put = relist.kind.put

        def counted(snapshot: Snapshot, key: ObjectKey, new: object) -> Snapshot:
            puts.append(key)
            return put(snapshot, key, new)

        relist.kind = replace(relist.kind, put=counted)
        for number in range(50):
            relist.add(ObjectKey("ns", f"c{number}"), at(5, claim(f"c{number}", allocated=[f"n/gpu-{number}"])))
        assert len(puts) == 50
        edit = SnapshotEdit(EMPTY)
        relist.apply_to(edit)
        assert len(puts) == 50
        assert (len(edit.snapshot.claims), len(edit.snapshot.usage.pools)) == (50, 1)

    def test_of_every_part_of_a_snapshot_one_kind_is_the_maker(self) -> None:
        parts = [part for kind in all_kinds().values() for part in kind.parts]
        attributes = [part for part in parts if isinstance(part, str)]
        of_all_kinds = ["version", "problems", "answers", "has_group_claims", "plain", "keeping"]
        assert sorted([*attributes, *of_all_kinds]) == sorted(Snapshot._fields)
        assert len(set(parts)) == len(parts)

    def test_what_happens_to_other_kinds_meanwhile_stays(self) -> None:
        state = state_of([claim("gpu")])
        relist = state.relist(NODES)
        state.assume("uid-gpu", allocation("gpu-0"), "uid-p")
        change(state, SLICES, local_slice("n"), version=5)
        assert state.take(relist, 5)
        assert held(state) == {"gpu-0"}
        assert state.snapshot.inventory.slices

    def test_what_is_known_is_not_read_again(self) -> None:
        """Same uid, same revision, same API version: the same object, and no change."""
        state = ClusterState()
        state.replace(CLAIMS, [at(3, claim("gpu"))], 5)
        known, version = found(state), state.snapshot.version
        state.replace(CLAIMS, [at(3, claim("gpu"))], 6)
        assert found(state) is known
        assert state.snapshot.version == version

    def test_a_list_of_what_is_known_leaves_no_names_of_its_own_behind(self) -> None:
        """Otherwise, each name would be in memory twice after a list."""
        state, texts = ClusterState(), [orjson.dumps(at(3, claim(f"c{number}"))) for number in range(100)]
        state.replace(CLAIMS, map(orjson.loads, texts), 5)
        known = {id(each) for each in gc.get_objects() if isinstance(each, ObjectKey)}
        state.replace(CLAIMS, map(orjson.loads, texts), 6)
        assert {id(each) for each in gc.get_objects() if isinstance(each, ObjectKey)} == known

    @pytest.mark.parametrize(
        "other",
        [
            at(4, claim("gpu")),
            at(3, claim("gpu", metadata={"uid": "other"})),
            {**at(3, claim("gpu")), "apiVersion": "resource.k8s.io/v1beta2"},
        ],
        ids=["newer", "another of that name", "another version of the API"],
    )
    def test_an_object_of_another_version_is_read_again(self, other: RawObject) -> None:
        state = ClusterState()
        state.replace(CLAIMS, [at(3, claim("gpu"))], 5)
        known = found(state)
        state.replace(CLAIMS, [other], 6)
        assert found(state) is not known

    def test_an_object_that_an_event_deletes_and_a_list_brings_back_is_read(self) -> None:
        state = ClusterState()
        state.replace(CLAIMS, [at(3, claim("gpu"))], 5)
        delete(state, CLAIMS, claim("gpu"), version=6)
        state.replace(CLAIMS, [at(3, claim("gpu"))], 7)
        assert found(state).resource_version == "3"

    def test_objects_without_revision_are_always_read(self) -> None:
        state = ClusterState()
        for zone in "ab":
            raw = node("n", labels={"zone": zone})
            del raw["metadata"]["resourceVersion"]
            state.replace(NODES, [raw], 5)
        assert state.snapshot.nodes["n"].node.labels["zone"] == "b"

    def test_what_could_not_be_read_still_can_not(self) -> None:
        state = ClusterState()
        for version in (5, 6):
            state.replace(SLICES, [at(3, {**local_slice("n"), "spec": "x"})], version)
            assert len(state.snapshot.problems) == 1


class TestUnreadable:
    @pytest.mark.parametrize("resource", [NODES, SLICES, CLAIMS, PODS])
    @pytest.mark.parametrize("raw", [{}, {"metadata": 1}, {"metadata": {"name": 1, "namespace": 2}}, {"spec": []}])
    def test_an_object_that_cannot_be_read_is_noted(self, resource: Resource, raw: RawObject) -> None:
        state = ClusterState()
        state.apply(Event(EventType.ADDED, resource, raw))
        assert len(state.snapshot.problems) == 1

    def test_replaces_what_could_be_read(self) -> None:
        state = state_of([local_slice("n")])
        change(state, SLICES, {**local_slice("n"), "spec": "x"})
        assert not state.snapshot.inventory.slices
        change(state, SLICES, local_slice("n"))
        assert state.snapshot.inventory.slices
        assert not state.snapshot.problems


class TestPods:
    def test_indexes_of_pods_follow_each_change(self) -> None:
        state = state_of([pod("p", "gpu", nominated="n")])
        assert [p.name for p in state.snapshot.nominated_to("n")] == ["p"]
        change(state, PODS, pod("p", "gpu", on="m"))
        assert state.snapshot.nominated_to("n") == ()
        assert [p.name for p in state.snapshot.pods_on("m")] == ["p"]
        delete(state, PODS, pod("p", "gpu", on="m"))
        assert state.snapshot.pods_on("m") == ()
        assert state.snapshot.pod("uid-p") is None


def test_a_taint_rule_with_another_status_changes_nothing_that_decisions_rest_on() -> None:
    rule = taint_rule("r", pool="a")
    state = state_of([rule])
    before = state.snapshot
    status = {"conditions": [{"type": "EvictionInProgress", "status": "True", "message": "1 pod needs to be evicted"}]}
    state.apply(Event(EventType.MODIFIED, RESOURCES[rule["kind"]], rule | {"status": status}))
    assert state.snapshot.taint_rules is before.taint_rules


class TestNominationsInFlight:
    @pytest.mark.parametrize("shown", [keeping(pod("p", "p-c"), "a/gpu-0"), pod("p", "p-c", on="a"), pod("p", "p-c")])
    def test_an_assumed_nomination_ends_with_the_watch(self, shown: RawObject) -> None:
        state = ClusterState()
        change(state, PODS, pod("p", "p-c"), version=3)
        known = state.snapshot.pods[ObjectKey("ns", "p")]
        state.assume_kept([known])
        state.settle_kept(known)
        change(state, PODS, pod("other", "p-c"), version=4)
        assert known.uid in state.snapshot.keeping
        change(state, PODS, shown, version=5)
        assert known.uid not in state.snapshot.keeping

    def test_an_assumed_nomination_ends_with_its_pod(self) -> None:
        state = ClusterState()
        change(state, PODS, pod("p", "p-c"), version=3)
        state.assume_kept([state.snapshot.pods[ObjectKey("ns", "p")]])
        delete(state, PODS, pod("p", "p-c"), version=4)
        assert not state.snapshot.keeping

    def test_an_assumed_nomination_ends_with_a_list_that_does_not_have_its_pod(self) -> None:
        state = ClusterState()
        change(state, PODS, pod("p", "p-c"), version=3)
        state.assume_kept([state.snapshot.pods[ObjectKey("ns", "p")]])
        state.replace(PODS, [], 9)
        assert not state.snapshot.keeping


# Allocations over time: since when, in flight until the watch shows them, and who waits for that.


class TestAllocatedAt:
    """For each claim the revision of the event that brought its allocation."""

    def test_an_event_dates_the_allocation(self) -> None:
        state = state_of([claim("gpu")])
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]), version=7)
        assert found(state).allocated_at == 7

    def test_later_updates_do_not_move_it(self) -> None:
        state = state_of([claim("gpu")])
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]), version=7)
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"], users=["p"]), version=8)
        state.replace(CLAIMS, [at(8, claim("gpu", allocated=["n/gpu-0"], users=["p"]))], 9)
        assert found(state).allocated_at == 7

    def test_from_a_list_it_is_unknown(self) -> None:
        state = ClusterState()
        state.replace(CLAIMS, [at(7, claim("gpu", allocated=["n/gpu-0"]))], 9)
        assert found(state).allocated_at is None

    def test_one_that_a_later_list_brings_gives_way_to_what_was_seen_before(self) -> None:
        """Its event was missed, so it may have come after what the watch had shown."""
        state = state_of([claim("gpu"), claim("other")])
        change(state, CLAIMS, claim("other", allocated=["n/gpu-0"]), version=5)
        state.replace(
            CLAIMS, [at(5, claim("other", allocated=["n/gpu-0"])), at(7, claim("gpu", allocated=["n/gpu-0"]))], 8
        )
        assert "device held twice" in double_allocation(state.snapshot, "uid-gpu")

    def test_one_that_the_first_list_brings_does_not_give_way_to_later_ones(self) -> None:
        state = state_of([])
        state.replace(CLAIMS, [at(4, claim("gpu", allocated=["n/gpu-0"])), at(3, claim("other"))], 4)
        change(state, CLAIMS, claim("other", allocated=["n/gpu-0"]), version=5)
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"], users=["p"]), version=6)
        assert double_allocation(state.snapshot, "uid-gpu") == ""
        assert "device held twice" in double_allocation(state.snapshot, "uid-other")

    def test_another_allocation_is_a_new_one(self) -> None:
        state = state_of([claim("gpu")])
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]), version=7)
        change(state, CLAIMS, claim("gpu"), version=8)
        assert found(state).allocated_at is None
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]), version=9)
        assert found(state).allocated_at == 9

    def test_another_claim_of_that_name_is_a_new_one(self) -> None:
        state = state_of([claim("gpu", allocated=["n/gpu-0"])])
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"], metadata={"uid": "other"}), version=9)
        assert found(state).allocated_at == 9
        assert held(state) == {"gpu-0"}


class TestInFlight:
    def state(self) -> ClusterState:
        state = state_of([claim("gpu")])
        state.assume("uid-gpu", allocation("gpu-0"), "uid-p")
        return state

    def test_a_device_in_flight_is_held_at_once(self) -> None:
        state = self.state()
        assert held(state) == {"gpu-0"}
        assert state.since(1).keys(Topic.POOL) == {POOL}
        assert list(state.snapshot.holders[POOL]) == ["uid-gpu"]

    def test_ends_when_the_watch_shows_it_and_is_still_held(self) -> None:
        state = self.state()
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]), version=7)
        assert not state.snapshot.assumed
        assert held(state) == {"gpu-0"}
        assert state.since(2).changed == {Topic.CLAIM: {KEY}}

    def test_ends_when_it_is_known_not_to_be_written(self) -> None:
        state = self.state()
        state.forget("uid-gpu")
        assert not state.snapshot.assumed
        assert held(state) == set()

    def test_outlives_events_that_can_not_tell(self) -> None:
        state = self.state()
        change(state, CLAIMS, claim("gpu", metadata={"finalizers": ["x/y"]}), version=7)
        assert held(state) == {"gpu-0"}

    def test_both_are_held_while_another_writer_may_have_been_first(self) -> None:
        state = self.state()
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-1"]), version=7)
        assert held(state) == {"gpu-0", "gpu-1"}
        state.forget("uid-gpu")
        assert held(state) == {"gpu-1"}

    def test_ends_with_the_claim(self) -> None:
        state = self.state()
        delete(state, CLAIMS, claim("gpu"), version=7)
        assert not state.snapshot.assumed
        assert held(state) == set()

    def test_ends_when_another_claim_has_the_name(self) -> None:
        state = self.state()
        change(state, CLAIMS, claim("gpu", metadata={"uid": "other"}), version=7)
        assert not state.snapshot.assumed

    def test_a_write_of_which_the_revision_is_known_ends_with_it(self) -> None:
        """Written, and undone by somebody before the watch has shown it."""
        state = self.state()
        state.settle("uid-gpu", 7)
        change(state, CLAIMS, claim("gpu"), version=6)
        assert held(state) == {"gpu-0"}
        change(state, CLAIMS, claim("gpu"), version=8)
        assert held(state) == set()

    def test_settled_by_a_revision_that_was_seen_already(self) -> None:
        state = self.state()
        change(state, CLAIMS, claim("gpu"), version=8)
        state.settle("uid-gpu", 7)
        assert not state.snapshot.assumed

    def test_before_the_watch_has_shown_the_claim(self) -> None:
        state = state_of([])
        state.assume("uid-gpu", allocation("gpu-0"), "uid-p")
        assert held(state) == {"gpu-0"}
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]), version=7)
        assert not state.snapshot.assumed
        assert held(state) == {"gpu-0"}

    @pytest.mark.parametrize("order", ["list first", "answer first"])
    def test_ends_with_a_claim_that_came_and_went_unseen(self, order: str) -> None:
        state = state_of([])
        state.assume("uid-gpu", allocation("gpu-0"), "uid-p")
        steps: list[Callable[[], object]] = [lambda: state.replace(CLAIMS, [], 7), lambda: state.settle("uid-gpu", 7)]
        first, then = steps if order == "list first" else reversed(steps)
        first()
        assert held(state) == {"gpu-0"}
        then()
        assert held(state) == set()

    def test_survives_a_list_from_before_the_write(self) -> None:
        state = state_of([])
        state.assume("uid-gpu", allocation("gpu-0"), "uid-p")
        state.settle("uid-gpu", 7)
        state.replace(CLAIMS, [], 6)
        assert held(state) == {"gpu-0"}

    def test_survives_a_list_that_does_not_show_it_yet(self) -> None:
        state = self.state()
        state.replace(CLAIMS, [claim("gpu")], 5)
        assert held(state) == {"gpu-0"}


class TestPassed:
    """Waiting until the watch has passed a revision."""

    def test_returns_at_once_when_it_has(self) -> None:
        state = state_of([at(7, claim("gpu"))])
        virtualtime.run(state.passed(CLAIMS, 7))
        assert state.seen(CLAIMS) == 7

    @pytest.mark.parametrize("kind", ["event", "bookmark", "list"])
    @in_virtual_time
    async def test_passed_waits_until_the_watch_reaches_a_revision(self, kind: str) -> None:
        state = state_of([])

        def tell(version: int) -> None:
            if kind == "event":
                change(state, CLAIMS, claim("gpu"), version=version)
            elif kind == "bookmark":
                state.bookmark(CLAIMS, version)
            else:
                state.replace(CLAIMS, [], version)

        loop = asyncio.get_running_loop()
        called = loop.time()
        loop.call_later(1, tell, 6)
        loop.call_later(2, state.bookmark, NODES, 9)
        loop.call_later(3, tell, 8)
        await state.passed(CLAIMS, 7)
        assert (loop.time() - called) == 3

    @in_virtual_time
    async def test_who_stops_waiting_is_forgotten(self) -> None:
        state = state_of([])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await state.passed(CLAIMS, 7)
        state.bookmark(CLAIMS, 8)
        assert state.seen(CLAIMS) == 8


# What is kept of pods, nodes and budgets, and what is said of those that can't be read.


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


class TestForksWithoutNominees:
    """Where what is kept for pods is held by them, nobody is nominated. Then pods may still go, or be woken no more."""

    def fork(self) -> Snapshot:
        there = state_of([node("n"), local_slice("n"), device_class(), claim("c"), pod("p", "c")]).snapshot
        kept = Keeping("n", (DeviceId(DRIVER, "n", "gpu-0"),))
        return there.with_woken("uid-p", kept)._replace(nominated=Map())

    def test_a_woken_pod_is_woken_no_more(self) -> None:
        assert not self.fork().without_woken("uid-p").woken

    def test_a_woken_pod_goes(self) -> None:
        gone = self.fork().without_pod(ObjectKey("ns", "p"))
        assert (len(gone.pods), len(gone.woken)) == (0, 0)
