"""The memory of a page has a bound: an hour's updates leave no more behind than some minutes' do."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from playwright.sync_api import Route, expect

from tests.console.browser import Console
from tests.console.service import Served

Open = Callable[..., Console]

A_SECOND = 2.5
"""Messages that the service sends in a second at most."""

MINUTES = 3
HOUR = 60
MOST_GROWTH = 2_000_000
"""Bytes of the heap between a few minutes and an hour, with what the garbage collector leaves."""

POOL = {"driver": "gpu.example.com", "pool": "gpu-east-1"}


class Stream:
    """Streams of changes that a test writes. The page connects again after each."""

    def __init__(self, position: int) -> None:
        self._waiting: list[Route] = []
        self._position = position

    def connect(self, route: Route) -> None:
        self._waiting.append(route)

    @property
    def is_open(self) -> bool:
        return bool(self._waiting)

    def send(self, messages: Iterator[dict[str, Any]]) -> None:
        """All messages in one stream, which ends then."""
        lines = ["retry: 50\n\n"]
        for message in messages:
            self._position += 1
            lines.append(f"id: {self._position}\nevent: changes\ndata: {orjson.dumps(message).decode()}\n\n")
        self._waiting.pop().fulfill(headers={"content-type": "text/event-stream"}, body="".join(lines))


def updates(document: dict[str, Any], first: int, minutes: int) -> Iterator[dict[str, Any]]:
    """In each message, devices change, a pod comes and the one before it goes, and a decision is made."""
    rows = [row for row in document["rows"] if row["pool"] == POOL["pool"] and row["driver"] == POOL["driver"]]
    for number in range(first, first + int(minutes * 60 * A_SECOND)):
        digit = str(number % 2)
        changed = [{**row, "states": digit * len(row["states"])} for row in rows]
        yield {
            **{name: document[name] for name in ("shapes", "labels", "groups", "namespaces")},
            "pools": [POOL],
            "rows": changed,
            "pods": [pod(number, "pending"), pod(number - 1, "bound")],
            "decisions": [decision(number)],
            "doubt": "",
        }


def pod(number: int, state: str) -> dict[str, Any]:
    return {
        "namespace": "demo",
        "pod": f"made-{number}",
        "state": state,
        "created": "2026-01-01T00:00:00Z",
        "priority": 0,
        "requests": ["gpu: 1 gpu.example.com"],
        "reason": f"why {number}",
        "node": "",
    }


def decision(number: int) -> dict[str, Any]:
    return {
        "id": f"made-{number}",
        "time": "2026-01-01T00:00:00Z",
        "verb": "filter",
        "namespace": "demo",
        "pod": f"made-{number}",
        "node": "",
        "passed": 0,
        "rejected": {f"reason {number}": 1},
        "milliseconds": 1,
        "error": "",
    }


@pytest.mark.parametrize(
    ("route", "latest"),
    [("", ""), ("#/waiting?text=made", ".pod"), ("#/decisions?text=made", "tbody tr")],
    ids=["fleet", "waiting", "decisions"],
)
def test_an_hours_updates_take_no_more_memory_than_some_minutes_do(
    console: Open, example: Served, route: str, latest: str
) -> None:
    page = console(example, "#/problems")
    document = page.page.evaluate("fetch('console/fleet').then((reply) => reply.json())")
    stream = Stream(document["position"])
    page.page.route("**/console/changes?*", stream.connect)
    page.page.clock.install()
    page.open(route)
    few = int(MINUTES * 60 * A_SECOND)
    heap = []
    for first, minutes in ((0, MINUTES), (few, HOUR - MINUTES)):
        while not stream.is_open:
            page.page.clock.run_for(1000)
            page.page.wait_for_timeout(20)
        stream.send(updates(document, first, minutes))
        last = first + int(minutes * 60 * A_SECOND) - 1
        if latest:
            expect(page.one(latest).first).to_contain_text(f"made-{last}")
        page.page.clock.run_for(minutes * 60_000)
        heap.append(used(page))
    assert heap[1] - heap[0] < MOST_GROWTH, heap
    assert page.page.evaluate("document.getElementsByTagName('*').length") < 4000


def used(page: Console) -> int:
    """Bytes of the heap after the garbage is gone."""
    session = page.page.context.new_cdp_session(page.page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    found = session.send("Runtime.getHeapUsage")
    session.detach()
    return int(found["usedSize"])
