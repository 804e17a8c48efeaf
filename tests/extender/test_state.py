"""The state: events to snapshots, versions and changes, and allocations that are in flight."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from allocator import AllocationResult, DeviceId, DeviceResult, PoolId
from extender.kube.api import CLAIMS, NODES, PODS, RESOURCES, SLICES, ObjectKey, RawObject, Resource
from extender.kube.raw import Event, EventType
from extender.state.changes import Change, ChangeLog
from extender.state.edit import Edit
from extender.state.kinds import Topic, all_kinds
from extender.state.objects import ClaimObject
from extender.state.snapshot import EMPTY, Snapshot
from extender.state.state import ClusterState
from extender.writes.other_writers import double_allocation
from tests.kit import virtualtime
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

POOL = PoolId(DRIVER, "n")
KEY = ObjectKey("ns", "gpu")


def at(version: int, raw: RawObject) -> RawObject:
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(version)}}


def change(state: ClusterState, resource: Resource, raw: RawObject, *, version: int = 1) -> None:
    state.apply(Event(EventType.MODIFIED, resource, at(version, raw)))


def delete(state: ClusterState, resource: Resource, raw: RawObject, *, version: int = 1) -> None:
    state.apply(Event(EventType.DELETED, resource, at(version, raw)))


def allocation(*devices: str) -> AllocationResult:
    return AllocationResult(tuple(DeviceResult("gpu", DeviceId(DRIVER, "n", device)) for device in devices))


def held(state: ClusterState) -> set[str]:
    return {device for pool in state.snapshot.usage.pools.values() for device in pool}


def found(state: ClusterState) -> ClaimObject:
    return state.snapshot.claims[KEY]


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
        assert state.changes_since(0) == (Change(1, topic, key),)

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
        assert state.changes_since(1) == (Change(2, Topic.CLAIM, KEY), Change(2, Topic.POOL, POOL))

    def test_a_reservation_does_not(self) -> None:
        state = state_of([claim("gpu", allocated=["n/gpu-0"])])
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"], users=["p"]))
        assert state.changes_since(1) == (Change(2, Topic.CLAIM, KEY),)

    def test_a_list_is_one_version(self) -> None:
        state = ClusterState()
        state.replace(NODES, [node("n"), node("m")], 5)
        assert state.snapshot.version == 1
        assert {change.key for change in state.changes_since(0) or ()} == {"n", "m"}


class TestChangeLog:
    def test_forgets_the_oldest_and_says_so(self) -> None:
        log = ChangeLog(2)
        for version in range(1, 6):
            log.add([Change(version, Topic.NODE, f"n{version}")])
        assert log.since(2) is None
        assert [change.version for change in log.since(3) or ()] == [4, 5]
        assert log.since(5) == ()


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
        edit = Edit(EMPTY)
        relist.apply_to(edit)
        assert len(puts) == 50
        assert (len(edit.snapshot.claims), len(edit.snapshot.usage.pools)) == (50, 1)

    def test_of_every_part_of_a_snapshot_one_kind_is_the_maker(self) -> None:
        parts = [part for kind in all_kinds().values() for part in kind.parts]
        assert sorted([*parts, "version", "problems"]) == sorted(Snapshot._fields)

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
        assert (Change(2, Topic.POOL, POOL)) in (state.changes_since(1) or ())
        assert list(state.snapshot.holders[POOL]) == ["uid-gpu"]

    def test_ends_when_the_watch_shows_it_and_is_still_held(self) -> None:
        state = self.state()
        change(state, CLAIMS, claim("gpu", allocated=["n/gpu-0"]), version=7)
        assert not state.snapshot.assumed
        assert held(state) == {"gpu-0"}
        assert [c.topic for c in state.changes_since(2) or ()] == [Topic.CLAIM]

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
    def test_passed_waits_until_the_watch_reaches_a_revision(self, kind: str) -> None:
        state = state_of([])

        def tell(version: int) -> None:
            if kind == "event":
                change(state, CLAIMS, claim("gpu"), version=version)
            elif kind == "bookmark":
                state.bookmark(CLAIMS, version)
            else:
                state.replace(CLAIMS, [], version)

        async def wait() -> float:
            loop = asyncio.get_running_loop()
            called = loop.time()
            loop.call_later(1, tell, 6)
            loop.call_later(2, state.bookmark, NODES, 9)
            loop.call_later(3, tell, 8)
            await state.passed(CLAIMS, 7)
            return loop.time() - called

        assert virtualtime.run(wait()) == 3

    def test_who_stops_waiting_is_forgotten(self) -> None:
        state = state_of([])

        async def wait() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await state.passed(CLAIMS, 7)
            state.bookmark(CLAIMS, 8)

        virtualtime.run(wait())
        assert state.seen(CLAIMS) == 8
