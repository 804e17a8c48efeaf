"""The state: events to snapshots, versions and changes, and allocations that are in flight."""

from dataclasses import replace

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic, all_kinds
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.snapshot_edit import SnapshotEdit
from extender.cluster.timeline import ANYTHING, ChangeLog
from extender.kube.api import Event, EventType, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, NODES, PODS, RESOURCES, SLICES, Resource
from tests.extender.cluster.scenes import KEY, POOL, allocation, at, change, delete, found, held
from tests.extender.plugins.quota.test_quota_account import keeping
from tests.kit.clusters import (
    DRIVER,
    budget,
    claim,
    device_class,
    local_slice,
    node,
    pod,
    state_of,
    taint_rule,
)


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
        for revision in (5, 6):
            state.replace(SLICES, [at(3, {**local_slice("n"), "spec": "x"})], revision)
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
