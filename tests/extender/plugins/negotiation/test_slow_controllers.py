"""Controllers that are slow and in time: their own pods wait for them, and no others."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.json import PARAMETERS_REF
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.negotiation.protocol import UNSUITABLE_NODES, NegotiatedAnswer, NegotiatedQuestion
from extender.tools.fairness import QUICK_SECONDS, SAVED_SECONDS, WaitingBudget
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, TimedScene, now, pods
from tests.kit import virtualtime
from tests.kit.clusters import Object, claim, pod, rejected
from tests.kit.controllers import NO_LICENSE, Licenses
from tests.kit.servers.memory import Fault as ApiFault
from tests.kit.virtualtime import in_virtual_time

WAITING = [f"waiting for controller {NAME}"]


@dataclass
class Slow(Licenses):
    """A controller that takes its time for an answer about nodes.

    Attributes:
        seconds: for each answer.
        is_serial: it answers one question after the other.
        most: questions that were open at the same time.
    """

    seconds: float = 1.9
    is_serial: bool = False
    most: int = 0
    _open: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        if question.kind != UNSUITABLE_NODES:
            return await super().ask(question)
        self._open += 1
        self.most = max(self.most, self._open)
        try:
            if self.is_serial:
                async with self._turn:
                    await virtualtime.elapse(self.seconds)
            else:
                await virtualtime.elapse(self.seconds)
            return await super().ask(question)
        finally:
            self._open -= 1


def other(namespace: str, name: str) -> list[Object]:
    """A pod of another namespace, with a claim."""
    found = [pod(name, f"{name}-c"), claim(f"{name}-c", LICENSE)]
    for each in found:
        each["metadata"]["namespace"] = namespace
    return found


@in_virtual_time
async def test_a_wait_that_its_caller_leaves_is_spent() -> None:
    names = [f"p{number}" for number in range(10)]
    scene = TimedScene(*pods(*names), licenses=Slow(left=40, seconds=0.3))
    for name in names[:-1]:
        call = asyncio.create_task(scene.took(name))
        await virtualtime.elapse(0.25)
        call.cancel()
        await virtualtime.elapse(0.1)
    assert await scene.took(names[-1]) <= 2 * QUICK_SECONDS


@in_virtual_time
async def test_forty_pods_of_a_slow_controller_delay_a_scheduler_for_one_second_in_all() -> None:
    names = [f"p{number}" for number in range(40)]
    scene = TimedScene(*pods(*names), licenses=Slow(left=40))
    took = [await scene.took(name) for name in names]
    assert sum(took) <= 1.0 + 2 * QUICK_SECONDS
    assert await scene.reasons(names[-1]) == WAITING
    took = [await scene.took(name) for name in names]
    assert sum(took) <= 0.2


@in_virtual_time
async def test_pod_that_filter_does_not_wait_for_is_woken_by_the_answer_and_bound() -> None:
    scene = TimedScene(*pods("p", "q"), licenses=Slow(left=2))
    assert await scene.reasons("p") == WAITING
    assert await scene.reasons("q") == WAITING
    await scene.turns(4)
    assert await scene.woken("p")
    assert await scene.woken("q")
    await scene.turns(12)  # kube-scheduler's backoff: the answer is old by then
    questions = len(scene.licenses.asked(UNSUITABLE_NODES))
    for name in ("p", "q"):
        assert await scene.took(name) == 0.0
        assert await scene.reasons(name) == []
        assert await scene.bind(name) == ""
    assert len(scene.licenses.asked(UNSUITABLE_NODES)) == questions


@in_virtual_time
async def test_answer_that_nobody_waited_for_tells_why_the_pod_waits() -> None:
    scene = TimedScene(*pods("p"), licenses=Slow(left=0))
    assert await scene.reasons() == WAITING
    await scene.turns(4)
    assert not await scene.woken()
    assert await scene.reasons() == [f"controller {NAME}: {NO_LICENSE}"]
    scene.licenses.left = 1
    await scene.turns(8)
    assert await scene.woken()
    assert await scene.reasons() == []


@in_virtual_time
async def test_quick_controller_is_always_waited_for() -> None:
    names = [f"p{number}" for number in range(500)]
    scene = TimedScene(*pods(*names), licenses=Slow(left=500, seconds=QUICK_SECONDS / 2))
    for name in names:
        assert await scene.reasons(name) == []


@in_virtual_time
async def test_controller_that_is_quick_again_is_waited_for_again() -> None:
    scene = TimedScene(*pods("p", "q"), licenses=(slow := Slow(left=2)))
    assert await scene.reasons("p") == WAITING
    await scene.turns(3)
    slow.seconds = 0.005
    await scene.turns(12)
    for name, reasons in (("r", WAITING), ("s", [])):
        made, asks = pods(name)
        await scene.cluster.api.create(CLAIMS, asks)
        await scene.cluster.api.create(PODS, made)
        assert await scene.reasons(name) == reasons
        await scene.turns(1)


@in_virtual_time
async def test_share_of_zero_waits_for_no_answer() -> None:
    scene = TimedScene(*pods("p"), licenses=Slow(left=1))
    by = scene.replica(controllers=[{"name": NAME, "url": "http://localhost:1", "waitingShare": 0}])
    began = now()
    assert await scene.reasons(by=by) == WAITING
    assert now() == began
    await scene.turns(4, by=by)
    assert await scene.reasons(by=by) == []


@pytest.mark.parametrize("is_serial", [True, False])
@in_virtual_time
async def test_slow_controller_is_asked_so_few_questions_at_once_that_it_answers_in_time(is_serial: bool) -> None:
    names = [f"p{number}" for number in range(12)]
    slow = Slow(left=12, seconds=0.9, is_serial=is_serial)
    scene = TimedScene(*pods(*names), licenses=slow)
    await scene.filter("p0")  # the budget lets it see how slow the controller is
    passed = [bool((await scene.filter(name)).passed) for name in names]
    slow.most = 0
    await scene.turns(20)
    assert slow.most == 2
    assert [await scene.woken(name) for name in names] == [not each for each in passed] == [False, *11 * [True]]


@in_virtual_time
async def test_namespaces_take_turns_at_a_slow_controller() -> None:
    names = [f"p{number}" for number in range(30)]
    scene = TimedScene(*pods(*names), *rejected(*other("theirs", "q")), licenses=Slow(left=40))
    for name in names:
        await scene.filter(name)
    await scene.turns(12)
    uids = [each.claims[0].uid for each in scene.licenses.questions]
    assert "uid-q-c" in uids[:4]


@in_virtual_time
async def test_question_that_filter_does_not_wait_for_is_asked_once() -> None:
    scene = TimedScene(*pods("p"), licenses=Slow(left=1))
    for _ in range(3):
        assert await scene.reasons() == WAITING
    await scene.turns(2)
    assert len(scene.licenses.asked(UNSUITABLE_NODES)) == 1


@in_virtual_time
async def test_parameters_that_the_api_server_is_slow_to_hand_out_delay_no_scheduler() -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
    there = pods("p", "q")
    for each in there[1::2]:
        ref = {"apiGroup": "", "kind": "ConfigMap", "name": "small"}
        each["metadata"]["annotations"] = {PARAMETERS_REF: json.dumps(ref)}
    scene = TimedScene(*there, *pods("r"), licenses=Licenses(left=3))
    by = scene.replica(controllers=[{"name": NAME, "url": "http://localhost:1", "parameters": [kind]}])
    scene.transport.script("get configmaps", *[ApiFault(seconds=5.0)] * 10)
    began = now()
    for name in ("p", "q") * 10:
        assert await scene.reasons(name, by=by)
    assert now() - began <= 1.0 + 20 * QUICK_SECONDS
    began = now()
    await scene.reasons("r", by=by)
    assert now() - began <= QUICK_SECONDS
    await scene.turns(3, by=by)
    assert await scene.reasons("r", by=by) == []


# --- the budget ---------------------------------------------------------------------------------------------

NAMESPACES = ("a", "b", "c")
CALLS = st.lists(st.tuples(st.sampled_from(NAMESPACES), st.floats(0, 3), st.floats(0, 5)), max_size=60)


@given(CALLS, st.floats(0.01, 1))
def test_schedulers_wait_no_longer_than_the_share_of_the_time_and_what_was_saved(
    calls: list[tuple[str, float, float]], share: float
) -> None:
    budget, time, waited = WaitingBudget(share), 100.0, 0.0
    for namespace, pause, answer in calls:
        time += pause
        wait = min(budget.left(namespace, time), answer)
        time += wait
        budget.spend(namespace, wait)
        waited += wait
        free = QUICK_SECONDS * len(calls)
        assert waited <= share * (SAVED_SECONDS + time - 100.0) + free + 1e-6


@given(st.integers(1, 200), st.floats(0.1, 5))
def test_namespace_that_asks_all_the_time_leaves_another_its_part(calls: int, answer: float) -> None:
    budget, time = WaitingBudget(0.1), 100.0
    for namespace in ("quiet", *["busy"] * calls, "quiet"):
        wait = min(budget.left(namespace, time), answer)
        time += wait
        budget.spend(namespace, wait)
    for _ in range(30):  # both ask all the time
        left = budget.left("busy", time)
        budget.spend("busy", left)
        assert budget.left("quiet", time) > 0.0
        time += 1.0
    assert budget.left("quiet", time) >= 0.4


def test_namespace_alone_has_the_whole_budget_and_gets_it_back_in_time() -> None:
    budget = WaitingBudget(0.1)
    assert budget.left("a", 0.0) == pytest.approx(1.0 + QUICK_SECONDS)
    budget.spend("a", 1.0 + QUICK_SECONDS)
    assert budget.left("a", 1.0) == pytest.approx(0.1 + QUICK_SECONDS)
    assert budget.left("a", 6.0) == pytest.approx(0.6 + QUICK_SECONDS)
    assert budget.left("a", 60.0) == pytest.approx(1.0 + QUICK_SECONDS)


def test_namespaces_that_were_met_a_thousand_times_are_forgotten() -> None:
    budget = WaitingBudget(0.1)
    for number in range(5000):
        budget.left(f"ns-{number}", 0.001 * number)
    assert budget.left("last", 5.0) > 0.0
    assert budget.left("last", 60.0) == pytest.approx(1.0 + QUICK_SECONDS)
