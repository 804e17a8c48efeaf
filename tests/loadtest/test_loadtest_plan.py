"""Which runs there are, and in which order; what goes on where one fails."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from extender.kube.api import ApiError
from loadtest.endtoend.__main__ import to_the_end
from loadtest.endtoend.campaign import Campaign, Place, Told
from loadtest.endtoend.plan import Choice, PlanError, Site, Turn, plan
from loadtest.endtoend.results import Mood, Run
from loadtest.endtoend.workload import Churn, Devices, SubjectName
from tests.kit.process import Process, running
from tests.kit.waiting import WaitError
from tests.loadtest.measured import CLAIMS, MOOD, NOW, WORKLOADS, run


def turns(*chosen: str, choice: Choice) -> list[tuple[int, str, str, int]]:
    """Nodes, workload, subject and pods of each, in order."""
    planned = plan(WORKLOADS, chosen, choice)
    return [(site.nodes, turn.name, turn.subject, turn.pods) for site, each in planned.items() for turn in each]


SUBJECTS: tuple[SubjectName, ...] = ("in-tree", "idle")


def test_subjects_take_turns_workload_by_workload_again_and_again() -> None:
    rounds = [(500, name, subject, 30) for name in ("claims", "none") for subject in SUBJECTS]
    assert turns("claims", "none", choice=Choice(pods=30, repetitions=2, subjects=SUBJECTS)) == rounds * 2


def test_one_cluster_after_another() -> None:
    found = turns("claims", choice=Choice(nodes=(20, 10), pods=30, repetitions=1, subjects=SUBJECTS))
    assert [nodes for nodes, *_ in found] == [20, 20, 10, 10]


def test_workloads_with_other_devices_have_a_cluster_of_their_own() -> None:
    other = CLAIMS.model_copy(update={"devices": Devices(gpus=4)})
    planned = plan({"claims": CLAIMS, "other": other, "more": CLAIMS}, ["claims", "other", "more"], Choice())
    assert [{turn.name for turn in each} for each in planned.values()] == [{"claims", "more"}, {"other"}]


def test_what_is_compared_with_its_undisturbed_like_runs_with_as_many_pods() -> None:
    choice = Choice(pods=30, repetitions=1)
    assert turns("crowded", choice=choice) == [
        (500, "claims", "dra-extender", 30),
        *((500, "crowded", subject, 30) for subject in ("in-tree", "dra-extender", "idle")),
    ]


def test_no_run_is_there_twice() -> None:
    choice = Choice(pods=30, repetitions=1)
    expected = [(500, name, each, 30) for name in ("claims", "crowded") for each in ("in-tree", "dra-extender", "idle")]
    assert turns("claims", "crowded", choice=choice) == expected
    assert turns("crowded", "claims", choice=choice) == expected


def test_with_other_numbers_of_pods_both_run() -> None:
    crowded = WORKLOADS["crowded"].model_copy(update={"pods": 300})
    planned = plan(WORKLOADS | {"crowded": crowded}, ["claims", "crowded"], Choice(repetitions=1))
    found = {(turn.name, turn.pods, turn.subject) for each in planned.values() for turn in each}
    assert {(name, pods) for name, pods, _ in found} == {("claims", 1000), ("claims", 300), ("crowded", 300)}
    assert [subject for name, pods, subject in found if (name, pods) == ("claims", 300)] == ["dra-extender"]


def test_repetitions_differ_by_workload() -> None:
    workloads = {"often": CLAIMS, "once": CLAIMS.model_copy(update={"repetitions": 1})}
    (found,) = plan(workloads, workloads, Choice(subjects=("idle",))).values()
    assert [str(turn) for turn in found] == [
        "often, idle, 1 of 3",
        "once, idle, 1 of 1",
        "often, idle, 2 of 3",
        "often, idle, 3 of 3",
    ]


@pytest.mark.parametrize(
    ("name", "choice", "problem"),
    [
        ("claims", Choice(nodes=(10,), pods=81), "claims: 81 pods need 81 devices, and 10 nodes have 80"),
        ("none", Choice(nodes=(1,), pods=111), "none: 111 pods need 111 places for pods, and 1 nodes have 110"),
    ],
)
def test_pods_have_room(name: str, choice: Choice, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        plan(WORKLOADS, [name], choice)


def test_pods_that_go_make_room() -> None:
    churn = CLAIMS.model_copy(update={"churn": Churn(living=0.5)})
    assert plan({"churn": churn}, ["churn"], Choice(nodes=(10,), pods=160))


def test_a_workload_for_nobody() -> None:
    only = CLAIMS.model_copy(update={"subjects": ("in-tree",)})
    with pytest.raises(PlanError, match="only: it is for in-tree, not for idle"):
        plan({"only": only}, ["only"], Choice(subjects=("idle",)))


# --- doing it


class Stand:
    """Places where turns come out as they are told, in order; an error is raised."""

    def __init__(self, *outcomes: float | Exception, broken: int = 0) -> None:
        self.outcomes: Iterator[float | Exception] = iter(outcomes)
        self.broken = broken
        self.opened = 0
        self.done: list[Run] = []

    @asynccontextmanager
    async def open(self, _: Site) -> AsyncIterator[Place]:
        self.opened += 1
        if self.opened <= self.broken:
            raise WaitError("etcd is ready: not within 120 s")
        yield self._run

    async def _run(self, turn: Turn, before: Mood, told: Told) -> Run:
        outcome = next(self.outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        told(turn.pods)
        return run(turn.name, turn.subject, outcome, repetition=turn.repetition).model_copy(update={"before": before})

    async def measure(self) -> list[tuple[float, tuple[str, ...]]]:
        """The rate and the findings of each of four turns."""
        bound: list[int] = []
        planned = plan(WORKLOADS, ["claims", "none"], Choice(pods=5, repetitions=1, subjects=SUBJECTS))
        campaign = Campaign(self.open, lambda _: MOOD, lambda: NOW, lambda _, __: bound.append, self.done.append)
        await campaign.run(planned)
        assert [(run.workload, run.subject) for run in self.done] == [
            (turn.name, turn.subject) for each in planned.values() for turn in each
        ]
        return [(round(run.rate), run.findings) for run in self.done]


async def test_runs_follow_each_other_in_one_place() -> None:
    stand = Stand(1, 2, 3, 4)
    assert await stand.measure() == [(1, ()), (2, ()), (3, ()), (4, ())]
    assert stand.opened == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            WaitError("kube-scheduler is ready: not within 120 s"),
            ["WaitError: kube-scheduler is ready: not within 120 s"],
        ),
        (OSError("no /proc/7"), ["OSError: no /proc/7"]),
        (
            ExceptionGroup("both", [ApiError(500, "Internal", "no"), ExceptionGroup("in", [KeyError("x")])]),
            ["ApiError: ", "KeyError: 'x'"],
        ),
    ],
)
async def test_one_that_fails_is_told_and_the_others_run_elsewhere(error: Exception, told: list[str]) -> None:
    stand = Stand(1, error, 3, 4)
    first, failed, *others = await stand.measure()
    assert (first, *others) == ((1, ()), (3, ()), (4, ()))
    assert failed[0] == 0
    for finding, start in zip(failed[1], told, strict=True):
        assert finding.startswith(f"given up: {start}")
    assert stand.opened == 2


async def test_where_no_place_opens_each_turn_is_tried_once() -> None:
    stand = Stand(4, broken=3)
    *failed, last = await stand.measure()
    assert {findings for _, findings in failed} == {("given up: WaitError: etcd is ready: not within 120 s",)}
    assert stand.opened == 4
    assert last == (4, ())


# What a load test has started does not outlive it, whatever ends it.


FOREVER = (sys.executable, "-c", "import time; time.sleep(600)")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_program_runs_within_and_not_after(tmp_path: Path) -> None:
    process = Process("forever", FOREVER, lambda: True, tmp_path / "log")
    async with running(process, within=10):
        assert is_alive(process.pid)
        pid = process.pid
    assert not is_alive(pid)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_one_that_is_cancelled_while_it_starts_is_stopped(tmp_path: Path, times: int) -> None:
    asked, may_be_ready = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()

    def ready() -> bool:
        loop.call_soon_threadsafe(asked.set)
        return may_be_ready.wait(10)

    process = Process("forever", FOREVER, ready, tmp_path / "log")

    async def run() -> None:
        async with running(process, within=10):
            raise AssertionError("it was cancelled before")

    task = asyncio.create_task(run())
    await asked.wait()
    pid = process.pid
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    may_be_ready.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


async def test_one_that_is_cancelled_while_it_stops_is_stopped(tmp_path: Path) -> None:
    process = Process("forever", FOREVER, lambda: True, tmp_path / "log")
    is_ready = asyncio.Event()

    async def run() -> None:
        async with running(process, within=10):
            is_ready.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await is_ready.wait()
    pid = process.pid
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)


async def test_one_that_ends_before_it_is_ready_is_told(tmp_path: Path) -> None:
    process = Process(
        "brief", (sys.executable, "-c", "print('no'); raise SystemExit(3)"), lambda: False, tmp_path / "log"
    )
    with pytest.raises(WaitError, match=r"(?s)brief has ended with exit code 3.*no"):
        async with running(process, within=10):
            raise AssertionError("it never was ready")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_load_test_in_order(number: signal.Signals) -> None:
    left = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            left.append("in order")

    assert not to_the_end(work())
    assert left == ["in order"]


def test_without_one_it_goes_on_to_its_end() -> None:
    assert to_the_end(asyncio.sleep(0))
