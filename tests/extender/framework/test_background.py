"""The runner of background tasks: all hear the same, and what fails in one task keeps no other from its work."""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import EMPTY
from extender.framework.asked import Asked
from extender.framework.background_runner import (
    LONGEST_SECONDS,
    PAUSE_SECONDS,
    REST_SECONDS,
    TURN_SECONDS,
    BackgroundRunner,
)
from extender.framework.bind_errors import BindError
from extender.framework.decisions.verdict import UNKNOWN_NODE, Reasons
from extender.framework.filter import FilterResult
from extender.framework.task import UNTIL_NEWS, BackgroundTask, Rejection
from extender.framework.victims import Victims
from extender.framework.wire import FilterArgs
from extender.kube.api import Event, EventType
from extender.kube.resources import CLAIMS, RESOURCES
from extender.tools.faults import Faults
from tests.kit import virtualtime
from tests.kit.clusters import claim
from tests.kit.virtualtime import in_virtual_time

POD = Pod("ns", "p", "uid-p")
VICTIMS = Victims(("v",))
PREEMPT = ["preempt for p on n", "victims for p"]
NOT_BOUND = "not bound uid-p to n: no"


def nobody() -> Asked:
    """No scheduler has asked yet."""
    return Asked(lambda: 0.0)


class Told:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.subjects: list[object] = []

    def error(self, event: str, **fields: object) -> None:
        self.subjects.append((event, fields["subject"]))


class Failing(BackgroundTask):
    def on_rejected(self, rejection: Rejection) -> None:
        raise ZeroDivisionError(rejection.sent.name)

    async def tick(self) -> None:
        raise ZeroDivisionError


class Hearing(BackgroundTask):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_rejected(self, rejection: Rejection) -> None:
        self.heard.append(f"rejected {rejection.sent.name}")

    def on_passed(self, pod: Pod) -> None:
        self.heard.append(f"passed {pod.name}")

    async def before_preempt(self, pod: Pod, nodes: Collection[str]) -> None:
        self.heard.append(f"preempt for {pod.name} on {', '.join(nodes)}")

    async def allowed(self, pod: Pod, offered: Mapping[str, Victims]) -> Mapping[str, Victims]:
        return {node: victims for node, victims in offered.items() if pod.name == "p" and node != "not-now"}

    def on_victims(self, pod: Pod) -> None:
        self.heard.append(f"victims for {pod.name}")

    def on_bind_failed(self, uid: str, node: str, error: BindError) -> None:
        self.heard.append(f"not bound {uid} to {node}: {error}")

    def judge_anew(self, pod: Pod) -> None:
        self.heard.append(f"judge {pod.name}")

    def on_woken(self, pod: Pod) -> None:
        self.heard.append(f"woken {pod.name}")

    def on_released(self, controller: str) -> None:
        self.heard.append(f"released by {controller}")

    async def tick(self) -> None:
        self.heard.append("tick")


def test_a_task_that_fails_keeps_no_other_from_hearing_or_from_its_turn() -> None:
    log, hearing = Told(), Hearing()
    runner = BackgroundRunner(ClusterState(), nobody(), Faults(log), (Failing(), hearing))
    args = FilterArgs(POD, ["n"])
    runner.note(args, FilterResult([], unresolvable=Reasons.alike(["n"], UNKNOWN_NODE)), EMPTY)
    runner.note(args, FilterResult(["n"]), EMPTY)
    virtualtime.run(runner.before_preempt(POD, ["n"], EMPTY))
    assert virtualtime.run(runner.allowed(POD, {"not-now": VICTIMS})) == {}
    assert virtualtime.run(runner.allowed(POD, {"n": VICTIMS, "not-now": VICTIMS})) == {"n": VICTIMS}
    runner.note_bind_failed("uid-p", "n", BindError("no"))
    virtualtime.run(runner.tick())
    assert hearing.heard == ["rejected p", "passed p", *PREEMPT, NOT_BOUND, "tick"]
    assert log.subjects == [("fault", "pod ns/p"), ("fault", "Failing")]


def test_what_one_task_has_found_is_told_to_all_in_their_order() -> None:
    first, second = Hearing(), Hearing()
    second.heard = first.heard
    runner = BackgroundRunner(ClusterState(), nobody(), Faults(Told()), (first,))
    runner.tasks.append(second)
    runner.judge_anew(POD)
    runner.note_woken(POD)
    runner.note_released("licenses")
    assert first.heard == ["judge p"] * 2 + ["woken p"] * 2 + ["released by licenses"] * 2


def test_the_tasks_hear_that_a_pod_passes_if_they_were_told_of_it_before() -> None:
    hearing = Hearing()
    runner = BackgroundRunner(ClusterState(), nobody(), Faults(Told()), (hearing,))
    known, preempted, other = (Pod("ns", name, f"uid-{name}") for name in ("k", "e", "o"))
    runner.note(FilterArgs(known, ["n"]), FilterResult([], unresolvable=Reasons.alike(["n"], UNKNOWN_NODE)), EMPTY)
    virtualtime.run(runner.before_preempt(preempted, ["n"], EMPTY))
    hearing.heard.clear()
    for each in (known, preempted, other, known):
        runner.note(FilterArgs(each, ["n"]), FilterResult(["n"]), EMPTY)
    assert hearing.heard == ["passed k", "passed e", "passed k"]


def test_all_schedulers_that_ask_are_known_up_to_a_bound() -> None:
    now = 5.0
    asked = Asked(lambda: now)
    assert (list(asked.schedulers), asked.at) == ([], -math.inf)
    for number in range(2000):
        asked.note(Pod("ns", "p", "uid-p", scheduler_name=f"s-{number}"))
    assert (len(asked.schedulers), "s-1999" in asked.schedulers, asked.at) == (1024, True, 5.0)


class Slow(BackgroundTask):
    """Its turns take long.

    Attributes:
        begun: how many turns have begun.
    """

    def __init__(self) -> None:
        self.begun = 0

    async def tick(self) -> None:
        self.begun += 1
        await virtualtime.elapse(30.0)


async def ticks_in(seconds: float, *tasks: BackgroundTask) -> int:
    """The tasks have their turns for some seconds; returns how many turns have not ended then."""
    runner = BackgroundRunner(ClusterState(), nobody(), Faults(Told()), tasks)
    running = asyncio.create_task(runner.run())
    await virtualtime.elapse(seconds)
    unfinished = await runner.finish(0.0)
    await asyncio.gather(running, return_exceptions=True)
    return unfinished


def test_a_turn_that_takes_long_goes_on_beside_the_turns_of_others() -> None:
    slow, hearing = Slow(), Hearing()
    assert virtualtime.run(ticks_in(10.0, slow, hearing)) > 0
    assert slow.begun == 1
    assert len(hearing.heard) >= 10.0 / (PAUSE_SECONDS + TURN_SECONDS)


class Waiting(BackgroundTask):
    """Each of its turns waits for something."""

    async def tick(self) -> None:
        await virtualtime.elapse(0.15)


def test_however_many_turns_wait_for_something_a_task_has_its_turn_soon() -> None:
    hearing = Hearing()
    virtualtime.run(ticks_in(10.0, *(Waiting() for _ in range(10)), hearing))
    assert len(hearing.heard) >= 10.0 / (PAUSE_SECONDS + 0.1) - 1


class Turns:
    """A runner with one task, in virtual time.

    Attributes:
        state: the cluster.
        task: gets the turns.
    """

    def __init__(self, task: BackgroundTask) -> None:
        self.state, self.task = ClusterState(), task
        self.runner = BackgroundRunner(self.state, nobody(), Faults(Told()), [task])
        self._running = asyncio.create_task(self.runner.run())

    async def end(self) -> None:
        await self.runner.finish(0.0)
        await asyncio.gather(self._running, return_exceptions=True)


@in_virtual_time
async def test_while_nothing_happens_turns_become_rare() -> None:
    hearing = Hearing()
    turns = Turns(hearing)
    await virtualtime.elapse(100.0)
    assert 100 / REST_SECONDS * 0.8 <= len(hearing.heard) <= 100 / REST_SECONDS + 10
    await turns.end()


def _a_change(turns: Turns) -> None:
    turns.state.apply(Event(EventType.ADDED, CLAIMS, claim("a")))


def _a_message(turns: Turns) -> None:
    turns.runner.note_released("licenses")


@pytest.mark.parametrize("happens", [_a_change, _a_message], ids=["a change of the cluster", "a message"])
@in_virtual_time
async def test_what_happens_gives_a_turn_soon_and_more_of_them_for_a_while(happens: Callable[[Turns], None]) -> None:
    hearing = Hearing()
    turns = Turns(hearing)
    await virtualtime.elapse(50.0)
    for seconds in (0.9, 0.05, 0.15, 0.4):  # whatever is left of the rest
        await virtualtime.elapse(seconds)
        before = hearing.heard.count("tick")
        happens(turns)
        await virtualtime.elapse(PAUSE_SECONDS + 0.01)
        assert hearing.heard.count("tick") == before + 1
        await virtualtime.elapse(2 * PAUSE_SECONDS)
        assert hearing.heard.count("tick") == before + 3
        await virtualtime.elapse(50.0)
    await turns.end()


class Idle(Hearing):
    """Has nothing to do while nothing happens, until some time.

    Attributes:
        until: the time.
    """

    def __init__(self, until: float = UNTIL_NEWS) -> None:
        super().__init__()
        self.until = until

    @property
    def idle_seconds(self) -> float:
        return self.until - asyncio.get_running_loop().time()


async def turns_in(seconds: float, *tasks: Hearing) -> list[int]:
    """How many turns tasks have had after some seconds, one list for all."""
    await ticks_in(seconds, *tasks)
    return [each.heard.count("tick") for each in tasks]


@in_virtual_time
async def test_while_nothing_happens_a_task_that_has_nothing_to_do_has_few_turns_and_others_have_theirs() -> None:
    idle, busy = await turns_in(1000.0, Idle(), Hearing())
    assert 1000 / LONGEST_SECONDS * 0.9 <= idle <= 1000 / LONGEST_SECONDS + 10
    assert busy >= 1000 / REST_SECONDS * 0.8
    assert (await turns_in(1000.0, Idle()))[0] == pytest.approx(idle, abs=5)


@in_virtual_time
async def test_a_task_that_waits_for_some_time_has_a_turn_then() -> None:
    waiting = Idle(until=16.5)
    turns = Turns(waiting)
    await virtualtime.elapse(16.4)
    before = waiting.heard.count("tick")
    await virtualtime.elapse(0.1 + PAUSE_SECONDS)
    assert waiting.heard.count("tick") == before + 1
    await turns.end()


def _the_end_of_all_doubt(turns: Turns) -> None:
    for each in RESOURCES.values():
        turns.state.trust(each)


@pytest.mark.parametrize("happens", [_a_change, _a_message, _the_end_of_all_doubt])
@in_virtual_time
async def test_what_happens_gives_a_task_a_turn_soon_that_had_nothing_to_do(happens: Callable[[Turns], None]) -> None:
    idle = Idle()
    turns = Turns(idle)
    await virtualtime.elapse(57.3)
    before = idle.heard.count("tick")
    happens(turns)
    await virtualtime.elapse(PAUSE_SECONDS + 0.01)
    assert idle.heard.count("tick") == before + 1
    await turns.end()


@in_virtual_time
async def test_a_task_that_cannot_say_how_long_it_has_nothing_to_do_keeps_no_other_from_its_turns() -> None:
    class Failing(Idle):
        @property
        def idle_seconds(self) -> float:
            raise ZeroDivisionError

    failing, idle = await turns_in(100.0, Failing(), Idle())
    assert failing == idle >= 100 / REST_SECONDS * 0.8


@in_virtual_time
async def test_a_turn_that_had_work_is_followed_by_another_one_soon() -> None:
    class Working(BackgroundTask):
        turns = 0

        async def tick(self) -> None:
            self.turns += 1
            if self.turns < 20:
                await virtualtime.elapse(0.02)

    working = Working()
    turns = Turns(working)
    await virtualtime.elapse(20 * (PAUSE_SECONDS + 0.02))
    assert working.turns >= 20
    await turns.end()


@in_virtual_time
async def test_while_something_that_was_begun_goes_on_turns_are_not_rare() -> None:
    class Begun(Hearing):
        @property
        def unfinished(self) -> Sequence[asyncio.Task[None]]:
            return [endless]

    endless = asyncio.create_task(virtualtime.elapse(3600.0))
    begun = Begun()
    turns = Turns(begun)
    await virtualtime.elapse(50.0)
    assert len(begun.heard) >= 50 / PAUSE_SECONDS * 0.9
    endless.cancel()
    await turns.end()


@in_virtual_time
async def test_a_runner_that_is_cancelled_leaves_no_turn_behind() -> None:
    running = asyncio.create_task(BackgroundRunner(ClusterState(), nobody(), Faults(Told()), [Slow()]).run())
    await virtualtime.elapse(1.0)
    running.cancel()
    await asyncio.wait([running])
    await virtualtime.elapse(0.1)
    assert ({each for each in asyncio.all_tasks() if each is not asyncio.current_task()}) == set()


class Where(BackgroundTask):
    """Notes which task of the event loop gives it its turns."""

    def __init__(self) -> None:
        self.turns: list[asyncio.Task[object] | None] = []

    async def tick(self) -> None:
        self.turns.append(asyncio.current_task())


@in_virtual_time
async def test_turns_that_wait_for_nothing_follow_each_other_in_one_task_of_the_loop() -> None:
    first, slow, second, third = Where(), Slow(), Where(), Where()
    runner = BackgroundRunner(ClusterState(), nobody(), Faults(Told()), [first, slow, second, third])
    await runner.tick(TURN_SECONDS)
    assert first.turns != second.turns
    assert second.turns == third.turns
    await runner.finish(0.0)


class Alone(BackgroundTask):
    """Notes how many of its turns go on at the same time.

    Attributes:
        most: at most.
    """

    def __init__(self) -> None:
        self.going_on = self.most = 0

    async def tick(self) -> None:
        self.going_on += 1
        self.most = max(self.most, self.going_on)
        await virtualtime.elapse(10.0)
        self.going_on -= 1


@in_virtual_time
async def test_a_task_has_one_turn_at_a_time_whoever_gives_it() -> None:
    tasks = [Alone(), Alone(), Alone()]
    runner = BackgroundRunner(ClusterState(), nobody(), Faults(Told()), tasks)
    rounds = []
    for _ in range(4):
        rounds.append(asyncio.create_task(runner.tick()))
        await virtualtime.elapse(4.0)
    await asyncio.gather(*rounds)
    assert [each.most for each in tasks] == [1, 1, 1]
