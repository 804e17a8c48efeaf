"""Sessions: which are kept, for how long, and how large they may get."""

import tracemalloc
from collections.abc import Callable
from itertools import count

import pytest

from extender.autoscaler.sessions import (
    OBJECT_BYTES,
    Session,
    SessionLimits,
    Sessions,
    SessionTooLargeError,
    UnknownSessionError,
)
from extender.autoscaler.simulated_cluster import World
from extender.framework.decisions.solver import No
from extender.planning.templates import Catalog, Supply
from tests.extender.autoscaler.scenes import machine, made_up, node_template, pod_of, world_of
from tests.kit.clusters import GPU, local_slice, parsed, snapshot_of, solver
from tests.kit.virtualtime import StillClock

UNKNOWN = "it has expired or made room for others, or the service was started again since; start another one"


def sessions_of(clock: Callable[[], float] | None = None, **limits: float) -> Sessions:
    ids = count()
    return Sessions(SessionLimits(**limits), clock=clock or StillClock(), new_id=lambda: f"s{next(ids)}")  # type: ignore[arg-type]


def kept(sessions: Sessions, *ids: str) -> list[str]:
    found = []
    for each in ids:
        try:
            found.append(sessions.find(each).id)
        except UnknownSessionError:
            continue
    return found


def grown(world: World, pods: int) -> World:
    """The world with this number of pods on made-up nodes, two on each."""
    for number in range(pods):
        (node,) = made_up(machine(f"n{number // 2}", "g"))
        after = world.with_nodes((node,)).with_pod(parsed(pod_of(f"p{number}", "gpu")), node, solver())
        assert not isinstance(after, No)
        world = after
    return world


# --- which are kept -----------------------------------------------------------------------------------------


def test_the_least_recently_used_session_makes_room() -> None:
    sessions = sessions_of(count=2)
    world = world_of()
    first, second = (sessions.start(world).id for _ in range(2))
    sessions.find(first)
    third = sessions.start(world).id
    assert kept(sessions, first, second, third) == [first, third]


def test_no_caller_ends_a_session_of_another_that_has_fewer() -> None:
    sessions = sessions_of(count=4)
    world = world_of()
    other = sessions.start(world, owner="other").id
    greedy = [sessions.start(world, owner="greedy").id for _ in range(100)]
    assert kept(sessions, other, *greedy) == [other, *greedy[-3:]]
    third = sessions.start(world, owner="third").id
    assert kept(sessions, other, *greedy, third) == [other, *greedy[-2:], third]


def test_of_callers_that_have_as_many_the_one_that_has_used_none_for_longest_makes_room() -> None:
    sessions = sessions_of(count=3)
    world = world_of()
    one, two, three = (sessions.start(world, owner=owner).id for owner in ("one", "two", "three"))
    sessions.find(one)
    four = sessions.start(world, owner="four").id
    assert kept(sessions, one, two, three, four) == [one, three, four]


def test_a_session_that_grows_takes_no_room_from_others_that_take_less() -> None:
    world = world_of((), node_template("g", 2))
    small, large = grown(world, 2), grown(world, 40)
    sessions = sessions_of(size=large.weight + small.weight)
    other, second = (sessions.start(world, owner="other") for _ in range(2))
    for each in (other, second):
        sessions.keep(each, small, world.snapshot)
    growing = sessions.start(world, owner="growing")
    with pytest.raises(SessionTooLargeError, match="more than its share of the limit"):
        sessions.keep(growing, large, world.snapshot)
    assert kept(sessions, other.id, second.id, growing.id) == [other.id, second.id]


def test_a_session_lives_so_long_from_its_start_however_often_it_is_used() -> None:
    clock = StillClock()
    sessions = sessions_of(clock, seconds=10.0)
    session = sessions.start(world_of()).id
    for now in (5.0, 10.0):
        clock.now = now
        assert kept(sessions, session) == [session]
    clock.now = 10.1
    assert kept(sessions, session) == []
    assert len(sessions) == 0


@pytest.mark.parametrize("asked", ["", "s7", "x" * 500])
def test_an_unknown_session_is_an_error_that_says_so(asked: str) -> None:
    with pytest.raises(UnknownSessionError, match=UNKNOWN) as caught:
        sessions_of().find(asked)
    assert len(str(caught.value)) < 300


def test_a_session_keeps_what_it_has_come_to_and_others_do_not_see_it() -> None:
    sessions = sessions_of()
    world = world_of((), node_template("g", 2))
    one, other = sessions.start(world), sessions.start(world)
    after = grown(world, 2)
    sessions.keep(one, after, world.snapshot)
    assert sessions.find(one.id).world is after
    assert sessions.find(other.id).world is world


# --- how large ----------------------------------------------------------------------------------------------


def test_sessions_that_grow_push_out_the_least_recently_used() -> None:
    world = world_of((), node_template("g", 2))
    after = grown(world, 20)
    sessions = sessions_of(size=after.weight * 2)
    ids = [sessions.start(world).id for _ in range(3)]
    for each in ids:
        sessions.keep(sessions.find(each), after, world.snapshot)
    assert kept(sessions, *ids) == ids[1:]
    assert sessions.weight(world.snapshot) == 2 * after.weight


def test_a_session_that_is_too_large_by_itself_is_dropped_with_an_error() -> None:
    world = world_of((), node_template("g", 2))
    after = grown(world, 20)
    sessions = sessions_of(size=after.weight - 1)
    small, large = sessions.start(world), sessions.start(world)
    with pytest.raises(SessionTooLargeError, match=r"more than the limit of \d+ bytes \(autoscaler.sessionBytes\)"):
        sessions.keep(large, after, world.snapshot)
    assert kept(sessions, small.id, large.id) == []


def test_a_session_that_was_pushed_out_meanwhile_does_not_come_back() -> None:
    sessions = sessions_of(count=1)
    world = world_of()
    first = sessions.start(world)
    sessions.start(world)
    sessions.keep(first, world, world.snapshot)
    assert (kept(sessions, first.id), len(sessions)) == ([], 1)


def test_what_only_a_session_still_knows_is_on_its_account() -> None:
    objects = (machine("a"), local_slice("a"))
    snapshot = snapshot_of(GPU, *objects)
    session = Session("s", World(snapshot, Supply(Catalog(), snapshot)), began=0.0)
    later = snapshot_of(GPU, *objects, machine("b"))
    assert session.weight(snapshot) == 0
    assert session.weight(later) == OBJECT_BYTES * (later.version - snapshot.version)
    much_later = snapshot_of(GPU, *objects, *(machine(f"n{index}") for index in range(50)))
    assert session.weight(much_later) == OBJECT_BYTES * 2


def test_the_weight_is_about_what_a_session_takes() -> None:
    world = world_of((), node_template("g", 8, attributes={"model": {"string": "a"}}))
    grown(world, 10)  # what is made once, and for all
    tracemalloc.start()
    after = grown(world, 400)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 < after.weight / taken < 2


# --- steps --------------------------------------------------------------------------------------------------


def test_booking_takes_the_same_effort_for_each_pod_however_many_there_are() -> None:
    reads = count()
    counting = solver()
    object.__setattr__(counting, "clock", lambda: float(next(reads)))
    world = world_of((), node_template("g", 2))
    effort = []
    for number in range(200):
        (node,) = made_up(machine(f"n{number // 2}", "g"))
        before = next(reads)
        after = world.with_nodes((node,)).with_pod(parsed(pod_of(f"p{number}", "gpu")), node, counting)
        assert not isinstance(after, No)
        world = after
        effort.append(next(reads) - before)
    assert effort[-2:] == effort[:2]
