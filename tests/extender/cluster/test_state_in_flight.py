"""Allocations over time: since when, in flight until the watch shows them, and who waits for that."""

import asyncio
from collections.abc import Callable

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import double_allocation
from extender.cluster.kinds import Topic
from extender.kube.resources import CLAIMS, NODES
from tests.extender.cluster.scenes import KEY, POOL, allocation, at, change, delete, found, held
from tests.kit import virtualtime
from tests.kit.clusters import (
    claim,
    state_of,
)


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
