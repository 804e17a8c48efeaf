"""Events on pods that no node can serve: when they are told, how often, and what they say."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from extender.cluster.writes.events import Note
from extender.framework.rejected_pods import PATIENCE
from extender.framework.wire import FilterArgs
from extender.kube.resources import EVENTS
from extender.plugins.requeue.unserved import REASON, Unserved, summary
from extender.tools.faults import Faults
from tests.kit.clusters import Cluster, Object, claim, device_class, node, parsed, pod, state_of

NONE_FREE = "no free device for request gpu"
NO_MATCH = "no device matches request gpu"
POD = parsed(pod("p", "c"))


class Told:
    """Hears what is told, at a time of its own."""

    def __init__(self, *pods: Object) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.notes: list[tuple[str, Note]] = []
        state = state_of(pods or [pod("p", "c")])
        self.unserved = Unserved(state, lambda of, note: self.notes.append((of.name, note)), lambda: self.now, Faults())

    def after(self, wait: timedelta) -> list[str]:
        self.now += wait
        self.unserved.look()
        return [name for name, _ in self.notes]


def text_of(*reasons: str) -> str:
    told = Told()
    told.unserved.rejected(POD, reasons)
    told.after(PATIENCE)
    return told.notes[0][1].text


def test_a_pod_that_stays_pending_is_told_of_once() -> None:
    told = Told()
    told.unserved.rejected(POD, [NONE_FREE])
    assert told.after(PATIENCE / 2) == []
    told.unserved.rejected(POD, [NONE_FREE, NONE_FREE])
    assert told.after(PATIENCE / 2) == ["p"]
    told.unserved.rejected(POD, [NONE_FREE])
    assert told.after(PATIENCE * 10) == ["p"]
    assert told.notes[0][1].reason == REASON


def test_a_pod_that_finds_a_node_soon_is_not_told_of() -> None:
    told = Told()
    told.unserved.rejected(POD, ["waiting for claim gpu to be created"])
    told.unserved.forget(POD)
    assert told.after(PATIENCE) == []


def test_a_reason_that_changes_is_told_and_does_not_start_the_wait_anew() -> None:
    told = Told()
    told.unserved.rejected(POD, [NONE_FREE])
    told.after(PATIENCE / 2)
    told.unserved.rejected(POD, [NO_MATCH])
    assert told.after(PATIENCE / 2) == ["p"]
    assert NO_MATCH in told.notes[0][1].text
    told.unserved.rejected(POD, [NONE_FREE])
    assert told.after(PATIENCE) == ["p", "p"]


def test_a_pod_that_had_a_node_and_lost_it_is_told_of_again() -> None:
    told = Told()
    for _ in range(2):
        told.unserved.rejected(POD, [NONE_FREE])
        told.after(PATIENCE)
        told.unserved.forget(POD)
    assert len(told.notes) == 2


def test_the_text_does_not_depend_on_how_many_nodes_say_what_and_in_which_order() -> None:
    expected = f"no node has the devices that the pod needs: {NO_MATCH}; {NONE_FREE} (GET /explain/ns/p says more)"
    assert text_of(NONE_FREE, NO_MATCH, NO_MATCH) == text_of(NO_MATCH, NONE_FREE) == expected


def test_the_oldest_are_told_first_and_memory_is_bounded() -> None:
    pods = [pod(f"p{number}", "c") for number in range(5000)]
    told = Told(*pods)
    for each in pods:
        told.unserved.rejected(parsed(each), [NONE_FREE])
    names = told.after(PATIENCE)
    assert len(names) == 4096
    assert names[0] == "p904"


@pytest.mark.parametrize("now", [pod("other", "c"), pod("p", "c", on="a")], ids=["gone", "bound"])
def test_pods_that_are_not_pending_any_more_are_not_told_of(now: Object) -> None:
    told = Told(now)
    told.unserved.rejected(POD, [NONE_FREE])
    assert told.after(PATIENCE) == []


async def test_filter_brings_it_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.plugins.requeue.unserved.PATIENCE", timedelta(0))
    cluster = Cluster.of(device_class(), node("a"), claim("c"), pod("p", "c"))
    service = cluster.service()
    await service.filter(FilterArgs(POD, ["a"]))
    await service.background.tick()
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "write events"))
    events = (await cluster.api.list(EVENTS)).items
    assert [(event["reason"], event["note"]) for event in events] == [
        (REASON, summary(POD, ["no device for request gpu"]))
    ]
    assert events[0]["regarding"]["name"] == "p"
