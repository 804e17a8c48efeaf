"""Events on pods that no node can serve: when they are told, how often, and what they say."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.framework.rejected_pods import PATIENCE
from extender.framework.wire import FilterArgs
from extender.kube.resources import EVENTS
from extender.plugins.requeue.unserved import KEPT, REASON, Cause, ToldPods, Unserved, text_of
from extender.tools.faults import Faults
from tests.kit.clusters import Cluster, Object, claim, device_class, local_slice, node, parsed, pod, request, state_of

NONE_FREE = "no free device for request gpu"
NO_MATCH = "no device matches request gpu"
POD = parsed(pod("p", "c"))
MORE = "(kubectl dra explain p -n ns says more)"


class Told:
    """Hears what is told, at a time of its own. Each line takes `seconds` to find."""

    def __init__(self, *objects: Object, seconds: float = 0.0) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.notes: list[tuple[str, Note]] = []
        self.asked: list[str] = []
        self.line = ""
        self.remedy = ""
        self.lines = ToldPods()
        self.meanwhile: Callable[[Pod], None] = lambda _: None
        self._seconds = seconds
        self.unserved = Unserved(
            state_of(objects or [pod("p", "c")]),
            lambda of, note: self.notes.append((of.name, note)),
            lambda: self.now,
            self._seconds_now,
            Faults(),
            self._found,
            self.lines,
        )

    def _seconds_now(self) -> float:
        return self.now.timestamp()

    async def _found(self, of: Pod) -> Cause:
        self.asked.append(of.name)
        self.now += timedelta(seconds=self._seconds)
        self.meanwhile(of)
        return Cause(self.line, self.remedy)

    async def after(self, wait: timedelta) -> list[str]:
        self.now += wait
        await self.unserved.look()
        return [name for name, _ in self.notes]


async def told_text(*reasons: str) -> str:
    told = Told()
    told.unserved.rejected(POD, reasons)
    await told.after(PATIENCE)
    return told.notes[0][1].text


async def test_a_pod_that_stays_pending_is_told_of_once() -> None:
    told = Told()
    told.unserved.rejected(POD, [NONE_FREE])
    assert await told.after(PATIENCE / 2) == []
    told.unserved.rejected(POD, [NONE_FREE, NONE_FREE])
    assert await told.after(PATIENCE / 2) == ["p"]
    told.unserved.rejected(POD, [NONE_FREE])
    assert await told.after(PATIENCE * 10) == ["p"]
    assert told.notes[0][1].reason == REASON


async def test_a_pod_that_finds_a_node_soon_is_not_told_of() -> None:
    told = Told()
    told.unserved.rejected(POD, ["waiting for claim gpu to be created"])
    told.unserved.forget(POD)
    assert await told.after(PATIENCE) == []


async def test_a_reason_that_changes_is_told_and_does_not_start_the_wait_anew() -> None:
    told = Told()
    told.unserved.rejected(POD, [NONE_FREE])
    await told.after(PATIENCE / 2)
    told.unserved.rejected(POD, [NO_MATCH])
    assert await told.after(PATIENCE / 2) == ["p"]
    assert NO_MATCH in told.notes[0][1].text
    told.unserved.rejected(POD, [NONE_FREE])
    assert await told.after(PATIENCE) == ["p", "p"]


async def test_a_pod_that_had_a_node_and_lost_it_is_told_of_again() -> None:
    told = Told()
    for _ in range(2):
        told.unserved.rejected(POD, [NONE_FREE])
        await told.after(PATIENCE)
        told.unserved.forget(POD)
    assert len(told.notes) == 2


async def test_the_text_does_not_depend_on_how_many_nodes_say_what_and_in_which_order() -> None:
    expected = f"no node has the devices that the pod needs: {NO_MATCH}; {NONE_FREE} {MORE}"
    assert await told_text(NONE_FREE, NO_MATCH, NO_MATCH) == await told_text(NO_MATCH, NONE_FREE) == expected


async def test_the_oldest_are_told_first_and_memory_is_bounded() -> None:
    pods = [pod(f"p{number}", "c") for number in range(5000)]
    told = Told(*pods)
    for each in pods:
        told.unserved.rejected(parsed(each), [NONE_FREE])
    names = await told.after(PATIENCE)
    assert len(names) == KEPT
    assert names[0] == "p904"


@pytest.mark.parametrize("now", [pod("other", "c"), pod("p", "c", on="a")], ids=["gone", "bound"])
async def test_pods_that_are_not_pending_any_more_are_not_told_of(now: Object) -> None:
    told = Told(now)
    told.unserved.rejected(POD, [NONE_FREE])
    assert await told.after(PATIENCE) == []


async def test_filter_brings_it_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.requeue.unserved.PATIENCE", timedelta(0))
    cluster = Cluster.of(device_class(), node("a"), claim("c"), pod("p", "c"))
    service = cluster.service()
    await service.filter(FilterArgs(POD, ["a"]))
    await service.background.tick()
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "write events"))
    events = (await cluster.api.list(EVENTS)).items
    assert [(event["reason"], event["note"]) for event in events] == [
        (REASON, text_of(POD, "the nodes have no devices for class gpu"))
    ]
    assert events[0]["regarding"]["name"] == "p"


async def test_the_event_has_the_first_line_of_the_explanation_and_tables_have_it_while_the_reasons_stay() -> None:
    told = Told()
    told.line = "no device has model b200 (a100 4)"
    told.unserved.rejected(POD, [NO_MATCH])
    await told.after(PATIENCE)
    assert told.notes[0][1].text == f"no device has model b200 (a100 4) {MORE}"
    assert told.lines.line(POD, [NO_MATCH, NO_MATCH]) == told.line
    assert told.lines.line(POD, [NONE_FREE]) == ""
    told.unserved.forget(POD)
    assert told.lines.line(POD, [NO_MATCH]) == ""


async def test_the_event_says_what_would_help() -> None:
    told = Told()
    told.line, told.remedy = "no device has model b200 (a100 4)", "ask for model a100"
    told.unserved.rejected(POD, [NO_MATCH])
    await told.after(PATIENCE)
    assert told.notes[0][1].text == f"{told.line}. What would help: ask for model a100 {MORE}"
    assert told.lines.line(POD, [NO_MATCH]) == told.line


async def test_numbers_that_change_are_not_told_again() -> None:
    told = Told()
    for count in (4, 3, 2):
        told.line = f"no device has model b200 (a100 {count})"
        told.unserved.rejected(POD, [NO_MATCH])
        await told.after(PATIENCE * 30)
    assert len(told.notes) == 1


async def test_pods_that_ask_for_the_same_get_one_line() -> None:
    pods = [pod(f"p{number}", f"c{number}") for number in range(100)]
    told = Told(device_class(), *(claim(f"c{number}") for number in range(100)), *pods, seconds=0.5)
    for each in pods:
        told.unserved.rejected(parsed(each), [NONE_FREE])
    assert len(await told.after(PATIENCE)) == 100
    assert told.asked == ["p0"]


def different(count: int) -> list[Object]:
    """Pods that ask for different numbers of devices, with their claims and the class."""
    claims = [claim(f"c{number}", request(count=number + 1)) for number in range(count)]
    return [device_class(), *claims, *(pod(f"p{number}", f"c{number}") for number in range(count))]


async def test_lines_take_a_tenth_of_the_time_and_who_waits_too_long_is_told_without() -> None:
    objects = different(3)
    told = Told(*objects, seconds=1.0)
    told.line = "all 2 devices are in use"
    for each in objects[-3:]:
        told.unserved.rejected(parsed(each), [NONE_FREE])
    assert await told.after(PATIENCE) == ["p0"]
    assert await told.after(timedelta(seconds=8)) == ["p0"]
    assert await told.after(timedelta(seconds=1)) == ["p0", "p1"]
    assert await told.after(timedelta(seconds=8)) == ["p0", "p1"]
    told.unserved.rejected(parsed(objects[-3]), [NO_MATCH])
    assert (await told.after(PATIENCE * 6))[:3] == ["p0", "p1", "p2"]
    assert told.notes[2][1].text.startswith("no node has the devices that the pod needs: ")


async def test_a_namespace_with_many_pods_takes_no_line_from_another() -> None:
    other = pod("q", "c")
    other["metadata"]["namespace"] = "other"
    objects = different(3)
    told = Told(*objects, other, seconds=1.0)
    for each in (*objects[-3:], other):
        told.unserved.rejected(parsed(each), [NONE_FREE])
    assert await told.after(PATIENCE) == ["p0"]
    assert await told.after(timedelta(seconds=9)) == ["p0", "q"]


async def test_a_pod_that_gets_a_node_while_its_line_is_found_is_not_told() -> None:
    told = Told()
    told.meanwhile = told.unserved.forget
    told.unserved.rejected(POD, [NONE_FREE])
    assert await told.after(PATIENCE) == []


async def test_event_table_and_explanation_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.requeue.unserved.PATIENCE", timedelta(0))
    busy = claim("busy", allocated=["a/gpu-0"], at="a", users=["x"])
    cluster = Cluster.of(
        device_class(), node("a"), local_slice("a", 1), claim("c"), pod("p", "c"), busy, pod("x", "busy", on="a")
    )
    extender = cluster.extender()
    result = await extender.service.filter(FilterArgs(POD, ["a"]))
    await extender.service.background.tick()
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "write events"))
    line = "the only device is in use"
    notes = [event["note"] for event in (await cluster.api.list(EVENTS)).items]
    assert extender.overview.told.line(POD, result.unresolvable.counts()) == line
    explanation = await extender.explanations.of_pod(POD.key)
    assert not isinstance(explanation, str)
    assert explanation.summary == f"pod ns/p does not fit on node a: {line}"
    remedy = explanation.proposals[0].order
    assert remedy.startswith("delete pod ns/x ")
    assert notes == [text_of(POD, line, remedy)]
