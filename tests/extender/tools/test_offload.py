"""Searches in threads: those that take long go on one at a time, in turns; nobody else waits for them.

Background work has its own turns, and a share of the time while verbs are called.
"""

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import pytest

from extender.tools.offload import (
    BACKGROUND_SECONDS,
    SHORT_SECONDS,
    SLICE_SECONDS,
    Of,
    Offload,
    Queue,
    Searches,
    in_thread,
    switching_soon,
    waited_for,
)
from extender.tools.verb_priority import ASKED_SECONDS, CREDIT_SECONDS, LONGEST_WAIT, SHARE, VerbPriority

ENOUGH = 10.0
"""Seconds after which a test that waits for a thread has failed. Where a test says who goes on, no turn ends before."""


class Script:
    """Threads that go on only when they are told to, over a clock that is set.

    Attributes:
        now: the time.
        order: who has gone on, in that order.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self.searches = Searches(lambda: self.now, hold_seconds=ENOUGH)
        self._steps: dict[str, threading.Semaphore] = {}
        self._looked: dict[str, threading.Semaphore] = {}

    def search(self, name: str, looks: int) -> Callable[[], str]:
        """A search that looks at the clock this number of times, each time when it is told to."""
        self._steps[name], self._looked[name] = threading.Semaphore(0), threading.Semaphore(0)

        def work() -> str:
            for _ in range(looks):
                assert self._steps[name].acquire(timeout=ENOUGH)
                self.searches.clock()
                self.order.append(name)
                self._looked[name].release()
            return name

        return work

    def step(self, name: str) -> None:
        self._steps[name].release()

    async def looked(self, name: str) -> None:
        """The search has gone on."""
        assert await asyncio.to_thread(self._looked[name].acquire, timeout=ENOUGH)

    def has_looked(self, name: str) -> bool:
        return self._looked[name].acquire(blocking=False)


async def test_work_that_is_waited_for_has_ended_when_its_caller_ends() -> None:
    begun, go, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        assert go.wait(ENOUGH)
        done.append("work")

    async def call() -> None:
        try:
            await waited_for(in_thread)(work)
        finally:
            done.append("caller")

    calling = asyncio.create_task(call())
    assert await asyncio.to_thread(begun.wait, ENOUGH)
    for _ in range(3):
        calling.cancel()
        await asyncio.sleep(0)
    assert done == []
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert done == ["work", "caller"]


@pytest.mark.filterwarnings("error")
async def test_nobody_hears_of_an_error_of_work_whose_caller_has_left() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go.wait(ENOUGH)
        raise ValueError

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    calling = asyncio.create_task(waited_for(in_thread)(work))
    assert await asyncio.to_thread(begun.wait, ENOUGH)
    calling.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    del calling
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


class Held:
    """Something large that work uses."""


@pytest.mark.parametrize(
    "off_loop",
    [in_thread, Searches().in_thread, Searches().in_background, waited_for(in_thread)],
    ids=["a thread", "a search", "background work", "work that is waited for"],
)
async def test_what_failed_work_has_used_is_free_without_a_collection(off_loop: Offload) -> None:
    def work(held: Held) -> None:
        raise ValueError(type(held).__name__)

    used, told = Held(), ""
    seen = weakref.ref(used)
    gc.disable()
    try:
        try:
            await off_loop(partial(work, used))
        except ValueError as error:
            told = str(error)
        del used
        await off_loop(bool)  # the thread itself has let go of the work before then
        assert (told, seen()) == ("Held", None)
    finally:
        gc.enable()


async def start(script: Script, *names: str, looks: int) -> list["asyncio.Task[str]"]:
    tasks = [asyncio.create_task(script.searches.in_thread(script.search(name, looks))) for name in names]
    await asyncio.sleep(0)
    return tasks


async def test_what_is_soon_done_waits_for_nobody() -> None:
    script = Script()
    (hard,) = await start(script, "hard", looks=2)
    script.step("hard")
    await script.looked("hard")
    script.now += SHORT_SECONDS
    script.step("hard")
    await script.looked("hard")
    assert await hard == "hard"
    (easy,) = await start(script, "easy", looks=1)
    script.step("easy")
    assert await easy == "easy"


async def test_of_those_that_take_long_one_goes_on_at_a_time_and_an_easy_one_beside_it() -> None:
    script = Script()
    first, second = await start(script, "first", "second", looks=3)
    for name in ("first", "second"):
        script.step(name)
        await script.looked(name)
    script.now += SHORT_SECONDS
    script.step("first")
    await script.looked("first")
    script.step("second")
    (easy,) = await start(script, "easy", looks=1)
    script.step("easy")
    assert await easy == "easy"
    assert not script.has_looked("second")
    script.now += SLICE_SECONDS
    script.step("first")
    await script.looked("second")
    script.step("second")
    await script.looked("second")
    assert (await first, await second) == ("first", "second")


async def test_a_search_that_ends_or_fails_gives_its_turn_to_the_next() -> None:
    script = Script()

    def failing() -> None:
        script.now += SHORT_SECONDS
        script.searches.clock()
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await script.searches.in_thread(failing)


def test_whoever_is_in_no_search_is_told_the_time_at_once() -> None:
    script = Script()
    script.now = 1e9
    assert script.searches.clock() == 1e9


class Shared:
    """Background work beside verbs, in virtual time: work and rests move the clock.

    Attributes:
        now: the time.
        worked: seconds of background work.
        order: who has gone on, in that order.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.worked = 0.0
        self.order: list[str] = []
        self.verbs = VerbPriority(lambda: self.now, self._sleep)
        self.searches = Searches(lambda: self.now, self.verbs, lambda: self.worked, hold_seconds=ENOUGH)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def search(self, name: str, pieces: int, *, asked: bool) -> Callable[[], float]:
        """A search that takes so many pieces; its result is how long it has taken by its own clock."""

        def work() -> float:
            began = self.searches.clock()
            for _ in range(pieces):
                if asked:
                    self.verbs.calls += 1
                self.now += BACKGROUND_SECONDS
                self.worked += BACKGROUND_SECONDS
                self.searches.clock()
                self.order.append(name)
            return self.searches.clock() - began

        return work


async def test_background_work_has_its_share_of_the_time_while_verbs_are_called() -> None:
    shared = Shared()
    took = await shared.searches.in_background(shared.search("hard", 1000, asked=True))
    assert shared.worked == pytest.approx(1.0)
    assert shared.worked - CREDIT_SECONDS <= SHARE * shared.now < shared.worked
    assert took == pytest.approx(shared.worked), "its rests are no time of the search"


async def test_background_work_has_the_same_share_while_somebody_waits_for_a_page() -> None:
    shared = Shared()
    with shared.verbs.reader():
        await shared.searches.in_background(shared.search("hard", 1000, asked=False))
    assert shared.worked - CREDIT_SECONDS <= SHARE * shared.now < shared.worked
    shared.now += ASKED_SECONDS
    began, worked = shared.now, shared.worked
    await shared.searches.in_background(shared.search("alone", 1000, asked=False))
    assert shared.now - began == pytest.approx(shared.worked - worked)


async def test_a_verb_that_runs_goes_first_but_background_work_never_stands_still() -> None:
    shared = Shared()
    with shared.verbs.verb():
        await shared.searches.in_background(shared.search("hard", 1000, asked=False))
    rest = LONGEST_WAIT + BACKGROUND_SECONDS / SHARE
    assert 500 * rest < shared.now < 1500 * rest


async def test_many_short_works_have_the_share_together() -> None:
    shared = Shared()
    for number in range(200):
        await shared.searches.in_background(shared.search(f"short-{number}", 2, asked=True))
    assert shared.worked - CREDIT_SECONDS <= SHARE * shared.now


async def test_background_work_rests_for_nobody_if_no_verb_was_called_for_a_while() -> None:
    shared = Shared()
    await shared.searches.in_background(shared.search("asked", 2, asked=True))
    shared.now += ASKED_SECONDS
    began, worked = shared.now, shared.worked
    await shared.searches.in_background(shared.search("alone", 1000, asked=False))
    assert shared.now - began == pytest.approx(shared.worked - worked)


async def test_background_works_take_turns() -> None:
    shared, never = Shared(), threading.Event()

    def search(name: str) -> float:
        while not (shared.order or shared.searches.waiting_in_background):
            never.wait(0)
        return shared.search(name, 20, asked=True)()

    first, second = (partial(search, name) for name in ("first", "second"))
    await asyncio.gather(shared.searches.in_background(first), shared.searches.in_background(second))
    assert all(one != next_one for one, next_one in pairwise(shared.order[:-1]))


async def test_background_work_keeps_no_search_of_a_verb_waiting() -> None:
    script = Script()

    def verb() -> str:
        script.now += SHORT_SECONDS
        script.searches.clock()
        return "verb"

    background = asyncio.create_task(script.searches.in_background(script.search("background", 1)))
    await asyncio.sleep(0)
    assert await script.searches.in_thread(verb) == "verb"
    script.step("background")
    assert await background == "background"


async def test_a_background_work_that_fails_gives_its_turn_to_the_next() -> None:
    shared = Shared()

    def failing() -> None:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await shared.searches.in_background(failing)


@pytest.mark.parametrize(
    ("namespaces", "turns"),
    [("aaaaa", [0, 1, 2, 3, 4]), ("aaaab", [0, 4, 1, 2, 3]), ("abcab", [0, 1, 2, 3, 4])],
    ids=["of one namespace", "one with many, and another", "of several"],
)
def test_in_a_queue_namespaces_take_turns_and_in_each_the_first_comes_first(namespaces: str, turns: list[int]) -> None:
    queue, order = Queue(ENOUGH), list[int]()
    first = queue.enter()

    def wait(number: int) -> None:
        turn = queue.enter(namespaces[number])
        order.append(number)
        queue.leave(turn)

    with waiting(queue, wait, 5):
        assert len(queue) == 5
        queue.leave(first)
    assert order == turns


def test_in_a_queue_nobody_waits_for_ever_for_one_who_does_not_end_his_turn() -> None:
    queue, begun, go_on = Queue(0.001), threading.Event(), threading.Event()
    stuck = queue.enter()

    def wait() -> None:
        turn = queue.enter()
        begun.set()
        assert go_on.wait(ENOUGH)
        queue.leave(turn)

    other = threading.Thread(target=wait)
    other.start()  # it may have its turn before anybody sees it in the queue
    assert begun.wait(ENOUGH)
    assert queue.is_to_end(stuck)
    queue.leave(stuck)
    assert len(queue) == 0, "the turn of the other goes on"
    go_on.set()
    other.join(ENOUGH)
    assert not other.is_alive()
    last = queue.enter()
    assert not queue.is_to_end(last)


async def test_a_search_that_does_not_look_at_the_clock_keeps_no_other_one_waiting_for_long() -> None:
    searches, begun, blind = Searches(), threading.Event(), threading.Event()

    def look_long(done: Callable[[], bool]) -> str:
        until = searches.clock() + SHORT_SECONDS + SLICE_SECONDS
        while searches.clock() < until:
            pass
        assert done()
        return "done"

    def wait() -> bool:
        begun.set()
        return blind.wait(ENOUGH)

    stuck = asyncio.create_task(searches.in_thread(lambda: look_long(wait)))
    assert await asyncio.to_thread(begun.wait, ENOUGH)
    assert await searches.in_thread(lambda: look_long(lambda: True)) == "done"
    assert not stuck.done()
    blind.set()
    assert await stuck == "done"


async def test_long_searches_of_a_namespace_delay_one_of_another_by_one_turn() -> None:
    script = Script()
    names = [f"many-{number}" for number in range(4)]
    tasks = [asyncio.create_task(script.searches.in_thread(Of("many", script.search(name, 3)))) for name in names]
    tasks.append(asyncio.create_task(script.searches.in_thread(Of("one", script.search("one", 3)))))
    await asyncio.sleep(0)
    for name in (*names, "one"):
        script.step(name)
        await script.looked(name)
    script.now += SHORT_SECONDS
    script.step(names[0])
    await script.looked(names[0])
    for number, name in enumerate((*names[1:], "one"), 1):
        script.step(name)
        for _ in iter(lambda: script.searches.waiting, number):
            await asyncio.sleep(0)
    script.now += SLICE_SECONDS
    script.step(names[0])
    await script.looked(names[1])
    script.now += SLICE_SECONDS
    script.step(names[1])
    await script.looked("one")
    for name in (*names, "one"):
        for _ in range(3):
            script.step(name)
            script.now += SLICE_SECONDS
    assert len(await asyncio.gather(*tasks)) == len(tasks)


@contextmanager
def waiting(queue: Queue, wait: Callable[[int], None], number: int) -> Iterator[None]:
    """Threads that have come to a queue in their order; at the end they are waited for."""
    threads = [threading.Thread(target=wait, args=(each,)) for each in range(number)]
    for each, thread in enumerate(threads):
        thread.start()
        while len(queue) <= each:
            thread.join(0)
    yield
    for thread in threads:
        thread.join(ENOUGH)
        assert not thread.is_alive()


def test_while_the_service_runs_threads_give_way_ten_times_as_soon() -> None:
    before = sys.getswitchinterval()
    with switching_soon():
        assert sys.getswitchinterval() == pytest.approx(before / 10)
    assert sys.getswitchinterval() == before
