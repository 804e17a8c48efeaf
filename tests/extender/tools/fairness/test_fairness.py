"""Laws of what serves all namespaces: memories in which nobody takes another's place, backlogs, and fair turns."""

import asyncio
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.tools.fairness import (
    CREDIT_SECONDS,
    HALF_SECONDS,
    MOST_WAITING,
    WAITING_SECONDS,
    Backlog,
    CrowdedError,
    FairMemory,
    Places,
    ReportingMemory,
    Turns,
    one_of_each,
)
from extender.tools.intake import CycleTurns
from extender.tools.verb_priority import VerbPriority
from tests.kit import virtualtime
from tests.kit.clusters import GPU, Cluster, HeldClock, app_over, claim, device_class, local_slice, node, pod, solver
from tests.kit.virtualtime import StillClock

NAMESPACES = st.sampled_from("abcdefgh")


# --- memory -------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NAMESPACES, st.integers(0, 30))), st.integers(1, 20))
def test_a_namespace_with_no_more_than_its_share_forgets_nothing(kept: Sequence[tuple[str, int]], limit: int) -> None:
    memory = ReportingMemory[int](limit)
    wanted: dict[str, dict[str, int]] = {}
    for namespace, number in kept:
        uid = f"{namespace}-{number}"
        memory.keep(namespace, uid, number)
        own = wanted.setdefault(namespace, {})
        own.pop(uid, None)
        own[uid] = number
        assert len(memory) <= limit
        for each, entries in wanted.items():
            there = memory.of_namespace(each)
            assert there == list(entries.items())[len(entries) - len(there) :], "the youngest are remembered"
    share = limit // max(1, len(wanted))
    for namespace, entries in wanted.items():
        assert len(memory.of_namespace(namespace)) >= min(share, len(entries))
        assert len(entries) > share or namespace not in memory.forgotten


def test_a_thousand_entries_of_one_namespace_leave_those_of_another_alone() -> None:
    memory = ReportingMemory[int](100)
    memory.keep("b", "mine", 0)
    for number in range(1000):
        memory.keep("a", f"a-{number}", number)
    assert memory.get("mine") == 0
    assert (len(memory), memory.forgotten) == (100, frozenset("a"))
    assert memory.look_again() == {"a"}
    assert not memory.forgotten


def test_what_is_taken_out_on_purpose_is_not_forgotten() -> None:
    memory = ReportingMemory[int](2)
    memory.keep("a", "1", 1)
    assert (memory.pop("1"), memory.pop("1"), memory.forgotten) == (1, None, frozenset())


def test_there_is_room_for_a_namespace_that_has_less_than_another() -> None:
    memory = ReportingMemory[int](4)
    for number in range(4):
        assert memory.has_room("a")
        memory.keep("a", str(number), number)
    assert not memory.has_room("a")
    assert memory.has_room("b")


def test_the_oldest_entry_of_a_namespace_gives_its_place_if_it_may() -> None:
    memory = FairMemory[int](2)
    memory.keep("a", "1", 1)
    memory.keep("a", "2", 2)
    assert not memory.make_room("a", lambda value: value > 1)
    assert len(memory) == 2
    assert memory.make_room("a", lambda value: value == 1)
    assert memory.items() == [("2", 2)]
    assert memory.make_room("a", lambda _: False), "there is room now"


def test_a_namespace_without_entries_gets_room_in_any_case() -> None:
    memory = FairMemory[int](2)
    memory.keep("a", "1", 1)
    memory.keep("b", "2", 2)
    assert memory.make_room("c", lambda _: False)
    memory.keep("c", "3", 3)
    assert sorted(memory.namespaces) == ["b", "c"]


def test_namespaces_that_have_lost_entries_are_told_once_there_is_room_for_one_of_them() -> None:
    memory = ReportingMemory[int](2)
    for number in range(3):
        memory.keep("a", str(number), number)
    assert memory.missed() == frozenset()
    memory.pop("2")
    assert memory.missed() == {"a"}
    assert memory.missed() == frozenset()


def test_a_memory_that_nobody_asks_for_what_it_has_forgotten_keeps_nothing_of_it() -> None:
    memory = FairMemory[str](16)
    names = [f"namespace-{number}" for number in range(10_000)]
    tracemalloc.start()
    try:
        for each in names:
            memory.keep(each, each, each)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


# --- backlog ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NAMESPACES, st.integers(0, 9)), max_size=60), st.sets(NAMESPACES), st.integers(1, 9))
def test_all_that_waits_is_taken_in_its_order_and_in_turns_unless_it_is_refused(
    added: Sequence[tuple[str, int]], refused: Collection[str], most: int
) -> None:
    backlog = Backlog[tuple[str, int]](lambda item: item[1] % 3 > 0)
    for item in added:
        backlog.add(item[0], item)
    taken: list[tuple[str, int]] = []

    def take(item: tuple[str, int]) -> bool:
        is_taken = item[0] not in refused
        taken.extend([item] if is_taken else [])
        return is_taken

    for _ in range(len(added) * (1 + len(refused))):
        backlog.offer(take, most)
    wanted = [item for item in dict.fromkeys(added) if item[1] % 3]
    for namespace in {*dict(added)}.difference(refused):
        assert [item for item in taken if item[0] == namespace] == [item for item in wanted if item[0] == namespace]
    assert bool(len(backlog)) == any(item[0] in refused for item in wanted)


def test_items_that_wait_no_more_are_dropped_behind_one_that_is_refused() -> None:
    waiting = {0}
    backlog = Backlog[int](waiting.__contains__)
    backlog.add("a", 0)
    for number in range(1, 10_000):
        waiting.add(number)
        backlog.add("a", number)
        backlog.offer(lambda _: False, 10)
        waiting.discard(number - 5)
        waiting.add(0)
        assert len(backlog) <= 3 * len(waiting) + 3


# --- turns --------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(NAMESPACES, st.floats(0.001, 2.0)), max_size=60))
def test_who_goes_next_is_in_credit_or_has_used_the_least(work: Sequence[tuple[str, float]]) -> None:
    clock = StillClock(100.0)
    turns, left = Turns(clock), Counter(namespace for namespace, _ in work)
    done = []
    for namespace, seconds in turns.ordered(work, lambda each: each[0]):
        others = {each: turns.used(each) for each, number in left.items() if number}
        assert turns.used(namespace) <= max(CREDIT_SECONDS, min(others.values()) * 1.000001)
        with turns.of(namespace):
            clock.now += seconds
        left[namespace] -= 1
        done.append((namespace, seconds))
    assert sorted(done) == sorted(work)
    for namespace in left:
        assert [s for name, s in done if name == namespace] == [s for name, s in work if name == namespace]


def test_in_credit_the_order_of_all_work_counts() -> None:
    turns = Turns(StillClock(100.0))
    work = ["a1", "b2", "a3", "c4", "b5"]
    assert list(turns.ordered(work, lambda each: each[0])) == work


def test_a_namespace_with_much_work_delays_others_by_its_credit_and_one_piece() -> None:
    clock = StillClock(100.0)
    turns, began = Turns(clock), clock.now
    for each in turns.ordered([*["a"] * 10_000, "b"], str):
        if each == "b":
            break
        with turns.of(each):
            clock.now += 0.03
    assert clock.now - began <= CREDIT_SECONDS + 0.03


def test_what_was_used_long_ago_does_not_count() -> None:
    clock = StillClock(100.0)
    turns = Turns(clock)
    with turns.of("a"):
        clock.now += 8.0
    clock.now += 3 * HALF_SECONDS
    assert list(turns.ordered(["a", "b"], str)) == ["b", "a"]
    assert abs(turns.used("a") - 1.0) < 1e-9
    clock.now += 60 * HALF_SECONDS
    assert list(turns.ordered(["a", "b"], str)) == ["a", "b"]
    assert turns.used("a") < 1e-9


@pytest.mark.parametrize("seconds", [HALF_SECONDS, 3600.0, 365 * 86_400.0])
def test_after_any_quiet_time_turns_go_on(seconds: float) -> None:
    clock = StillClock(100.0)
    turns = Turns(clock)
    for _ in range(2):
        with turns.of("a"):
            clock.now += 1.0
        clock.now += seconds
    assert list(turns.ordered(["b", "a"], str)) == ["b", "a"]
    assert turns.used("a") <= 1.0


# Places for works: few at a time, with shares by caller and a bound on waiting; tables and explanations on HTTP.


ENOUGH = 10.0
"""Real seconds after which a test that waits for a thread has failed."""


class Scene:
    """Works of virtual seconds, two at a time and of one caller one.

    Attributes:
        ended: when each work had ended, by its name; or why it was refused.
    """

    def __init__(self, most: int = 2, of_caller: int = 1) -> None:
        self._clock = asyncio.get_running_loop().time
        self._places = Places(most, of_caller, self._clock)
        self._works: list[asyncio.Task[None]] = []
        self.ended: dict[str, float | str] = {}

    def work(self, name: str, seconds: float) -> asyncio.Task[None]:
        """A work that takes some seconds. The caller is the name's first letter."""
        self._works.append(asyncio.create_task(self._work(name, seconds)))
        return self._works[-1]

    async def _work(self, name: str, seconds: float) -> None:
        async def slowly(work: Callable[[], None]) -> None:
            await virtualtime.elapse(seconds)
            work()

        try:
            await self._places.offload(slowly, name[0])(lambda: None)  # type: ignore[arg-type]  # works without a result
            self.ended[name] = self._clock()
        except CrowdedError as error:
            self.ended[name] = str(error)

    async def all(self) -> Mapping[str, float | str]:
        await asyncio.gather(*self._works, return_exceptions=True)
        return self.ended


def played(story: Callable[[], Coroutine[Any, Any, Mapping[str, float | str]]]) -> Mapping[str, float | str]:
    return virtualtime.run(story())


def test_two_slow_works_of_one_caller_keep_nobody_else_waiting() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene()
        for name, seconds in (("a1", 5.0), ("a2", 5.0), ("b1", 1.0)):
            scene.work(name, seconds)
        return await scene.all()

    assert played(story) == {"b1": 1.0, "a1": 5.0, "a2": 10.0}


def test_who_has_used_little_comes_next_whoever_has_come_first() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene()
        for name in ("a1", "b1", "a2", "b2", "a3", "b3"):
            scene.work(name, 2.0)
        await virtualtime.elapse(1.0)
        scene.work("c1", 0.05)
        return await scene.all()

    found = played(story)
    assert found["c1"] == 2.05
    assert found["a3"] == found["b3"] or {found["a3"], found["b3"]} == {6.0, 6.05}


def test_nobody_waits_for_longer_than_a_bound() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene(1)
        scene.work("a1", 100.0)
        scene.work("b1", 1.0)
        began = asyncio.get_running_loop().time()
        await virtualtime.elapse(WAITING_SECONDS + 1.0)
        assert scene.ended == {"b1": "the requests of others take long; try again"}
        assert began == 0.0
        return await scene.all()

    assert played(story)["a1"] == 100.0


def test_a_caller_that_waits_with_many_works_is_refused_alone() -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene()
        for number in range(MOST_WAITING + 3):
            scene.work(f"a{number}", 0.5)
        scene.work("b1", 0.5)
        return await scene.all()

    found = played(story)
    refused = [name for name, ended in found.items() if isinstance(ended, str)]
    assert refused == [f"a{MOST_WAITING + 1}", f"a{MOST_WAITING + 2}"]
    assert found["b1"] == 0.5


@pytest.mark.parametrize("until", [0.0, 1.0])
def test_a_caller_that_leaves_keeps_its_place_until_the_work_ends_and_waits_no_more(until: float) -> None:
    async def story() -> Mapping[str, float | str]:
        scene = Scene(1)
        leaving = [scene.work("a1", 3.0), scene.work("b1", 3.0)]
        scene.work("c1", 1.0)
        await virtualtime.elapse(until)
        for each in leaving:
            each.cancel()
        return await scene.all()

    assert played(story) == {"c1": 4.0}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0.01, 5.0), st.floats(0.0, 3.0)), max_size=30))
def test_in_any_case_places_are_given_back_and_no_wait_exceeds_its_bound(works: list[tuple[str, float, float]]) -> None:
    async def story() -> Mapping[str, float | str]:
        scene, clock = Scene(), asyncio.get_running_loop().time
        for number, (caller, seconds, pause) in enumerate(works):
            scene.work(f"{caller}{number}", seconds)
            await virtualtime.elapse(pause)
        began = clock()
        await scene.all()
        assert clock() <= began + WAITING_SECONDS + 5.0
        scene.work("z1", 1.0)
        scene.work("y1", 1.0)
        now = clock()
        await scene.all()
        assert clock() == now + 1.0
        return scene.ended

    assert len(played(story)) == len(works) + 2


# --- on HTTP -------------------------------------------------------------------------------------------------


def client_at(app: FastAPI, address: str) -> AsyncClient:
    """A caller at an address of its own."""
    return AsyncClient(transport=ASGITransport(app, client=(address, 1)), base_url="http://localhost")


def slow_app(clock: Callable[[], float]) -> FastAPI:
    """Selectors take as long as a clock says."""
    chosen = device_class("slow", selectors=("device.driver != ''",))
    cluster = Cluster.of(GPU, chosen, node("a"), local_slice("a"), claim("c"))
    slow = replace(solver(), clock=clock)
    return app_over(make_extender(cluster.api, cluster.state, slow, Settings()))


async def test_two_tables_with_slow_selectors_keep_no_other_reader_waiting() -> None:
    clock = HeldClock()
    app = slow_app(clock)
    async with client_at(app, "10.0.0.1") as greedy, client_at(app, "10.0.0.2") as other:
        slow = [asyncio.create_task(greedy.get("/devices?class=slow")) for _ in range(2)]
        assert await asyncio.to_thread(clock.reached.wait, ENOUGH)
        for reader in (greedy, other):
            async with asyncio.timeout(ENOUGH):
                assert (await reader.get("/claims")).status_code == 200
                assert (await reader.get("/devices")).status_code == 200
        clock.go.set()
        assert [each.status_code for each in await asyncio.gather(*slow)] == [200, 200]


async def test_whoever_waits_with_too_many_tables_is_told_to_come_later() -> None:
    clock = HeldClock()
    app = slow_app(clock)
    async with client_at(app, "10.0.0.1") as greedy, client_at(app, "10.0.0.2") as other:
        first = asyncio.create_task(greedy.get("/devices?class=slow"))
        assert await asyncio.to_thread(clock.reached.wait, ENOUGH)
        slow = [asyncio.create_task(greedy.get("/devices?class=slow")) for _ in range(MOST_WAITING + 1)]
        found, _ = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED, timeout=ENOUGH)
        (refused,) = found
        assert refused.result().status_code == 429
        assert refused.result().headers["retry-after"]
        assert refused.result().json() == {
            "error": f"{MOST_WAITING} other requests of yours wait for their turn; try again"
        }
        clock.go.set()
        assert (await other.get("/devices?class=slow")).status_code == 200
        replies = await asyncio.gather(first, *slow)
    assert sorted(each.status_code for each in replies) == [200] * (MOST_WAITING + 1) + [429]


async def test_a_table_and_the_fleet_pause_while_a_verb_runs() -> None:
    paused: list[float] = []
    extender = Cluster.of(node("a"), local_slice("a")).extender()
    priority = VerbPriority(lambda: 0.0, paused.append)
    app = app_over(replace(extender, overview=replace(extender.overview, verb_priority=priority)))
    async with client_at(app, "10.0.0.1") as reader:
        for path in ("/devices", "/pools", "/console/fleet"):
            with priority.verb():
                assert (await reader.get(path)).status_code == 200
            assert paused, path
            paused.clear()
            assert (await reader.get(path)).status_code == 200
            assert not paused, path


STREAM = "/console/changes"
"""Its answer doesn't end."""

SELECTING = ("/devices?class=gpu", "/resources?by=class", "/console/matches?class=gpu")


async def test_every_view_pauses_for_a_verb_in_the_thread_that_makes_it_and_never_on_the_event_loop() -> None:
    paused: list[int] = []
    priority = VerbPriority(lambda: 0.0, lambda _: paused.append(threading.get_ident()))
    selecting = device_class("gpu", selectors=("device.driver != ''",))
    extender = Cluster.of(selecting, node("a"), local_slice("a"), pod("plain", "c"), claim("c")).extender()
    app = app_over(replace(extender, overview=replace(extender.overview, verb_priority=priority)))
    names = {"namespace": "ns", "name": "plain", "pod": "plain", "claim": "c"}
    views = [path.format_map(names) for path, verbs in app.openapi()["paths"].items() if "get" in verbs]
    async with client_at(app, "10.0.0.1") as reader:
        for path in (*SELECTING, *views):
            if path != STREAM:
                paused.clear()
                with priority.verb():
                    await reader.get(path)
                assert threading.get_ident() not in paused, path
                assert paused or path not in SELECTING, path


# Explanations wait for verbs: who goes first.


class Time:
    """A clock that moves when somebody sleeps, and a little whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        self.now += 0.0004
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def test_an_explanation_waits_while_a_verb_is_under_way_but_not_for_ever() -> None:
    time = Time()
    verb_priority = VerbPriority(time, time.sleep)
    pause = verb_priority.turn()
    with verb_priority.verb():
        pause()
    assert 0.9 < sum(time.slept) < 1.2
    before = len(time.slept)
    pause()
    assert len(time.slept) <= before + 1


def test_work_is_in_small_pieces_with_a_breath_between_them() -> None:
    time = Time()
    pause = VerbPriority(time, time.sleep).turn()
    for _ in range(100):
        pause()
    assert len(time.slept) > 20
    assert sum(time.slept) < 0.01


def test_a_verb_that_ends_lets_the_explanation_go_on() -> None:
    verb, slept = ExitStack(), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        verb.close()

    verb_priority = VerbPriority(lambda: 0.0, sleep)
    verb.enter_context(verb_priority.verb())
    verb_priority.turn()()
    assert len(slept) == 1


# Pieces of long requests: one in a cycle of the event loop, in turns of the callers.


async def looked(turns: CycleTurns, caller: str, pieces: int, order: list[str]) -> None:
    for _ in range(pieces):
        await turns.turn(caller)
        order.append(caller)


async def test_a_caller_with_hundreds_of_pieces_delays_another_one_by_one_piece() -> None:
    turns, order = CycleTurns(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        for caller in [*["many"] * 200, "other"]:
            tasks.create_task(looked(turns, caller, 2, order))
    first, second = (place for place, caller in enumerate(order) if caller == "other")
    assert first <= 2
    assert second - first <= 2
    assert order.count("many") == 400
    assert not len(turns)


async def test_there_is_one_piece_in_a_cycle_of_the_event_loop() -> None:
    turns, order, cycles = CycleTurns(), list[str](), list[int]()
    async with asyncio.TaskGroup() as tasks:
        for caller in "ab":
            tasks.create_task(looked(turns, caller, 10, order))
        while len(order) < 20:
            await asyncio.sleep(0)
            cycles.append(len(order))
    assert all(later - earlier <= 1 for earlier, later in pairwise(cycles))


async def test_a_caller_that_leaves_while_it_waits_takes_no_turn() -> None:
    turns, order = CycleTurns(), list[str]()
    tasks = [asyncio.create_task(looked(turns, caller, 1, order)) for caller in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "c"]
    await turns.turn("d")


async def test_a_piece_that_is_begun_by_a_call_has_its_turn_and_one_without_anything_to_do_takes_none() -> None:
    turns, events = CycleTurns(), list[str]()

    def begin(name: str, *, is_left: bool) -> bool:
        events.append(name)
        return is_left

    for _ in range(2):
        assert turns.is_free()
        for caller, is_left in (("a", True), ("a", True), ("b", False), ("c", True)):
            assert not turns.is_free()
            turns.wait(caller, partial(begin, caller, is_left=is_left))
        for _ in range(4):
            await asyncio.sleep(0)
            events.append("cycle")
    assert events == ["a", "cycle", "b", "c", "cycle", "a", "cycle", "cycle"] * 2


async def test_after_a_piece_that_fails_the_others_have_their_turns() -> None:
    def fail() -> bool:
        raise ValueError

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    turns, order = CycleTurns(), list[str]()
    assert turns.is_free()
    turns.wait("a", fail)
    await looked(turns, "b", 2, order)
    assert order == ["b", "b"]
    assert [type(each) for each in errors] == [ValueError]


def test_items_of_namespaces_come_in_turn_and_each_once() -> None:
    queues = {"a": ["1", "2", "3"], "b": ["2", "4"], "c": []}
    assert list(one_of_each(queues)) == ["1", "2", "3", "4"]
    assert list(one_of_each({})) == []
