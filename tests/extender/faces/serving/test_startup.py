"""What is told of a start: the first lists, and where to look."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.cluster.cluster_state import ClusterState
from extender.faces.serving.run import tell_of_first_lists, tell_where_to_look
from extender.kube.resources import CLAIMS, NODES, RESOURCES, SLICES
from tests.kit.clusters import claim, local_slice, node
from tests.kit.virtualtime import elapse, in_virtual_time

FIRST = {NODES.kind: [node("a"), node("b")], SLICES.kind: [local_slice("a", 3)], CLAIMS.kind: [claim("c")]}


async def told(seconds: float, draw: Callable[[str], None] | None = None) -> list[Any]:
    """The lines of a start whose lists take so long; those of claims and slices end last.

    Args:
        seconds: until then.
        draw: shows lines on a terminal.
    """
    state = ClusterState()
    last = (CLAIMS, SLICES)
    for resource in RESOURCES.values():
        if resource not in last:
            state.replace(resource, FIRST.get(resource.kind, ()), 1)
    with capture_logs() as lines:
        telling = asyncio.create_task(tell_of_first_lists(state, draw))
        await elapse(seconds)
        for resource in last:
            state.replace(resource, FIRST[resource.kind], 1)
        await telling
    return list(lines)


@in_virtual_time
async def test_a_quick_start_is_one_line() -> None:
    (line,) = await told(1.0)
    assert line.pop("seconds") == pytest.approx(1.0, abs=0.2)
    assert line == {
        "event": "cluster read",
        "log_level": "info",
        "nodes": 2,
        "pools": 1,
        "devices": 3,
        "claims": 1,
        "pods_with_devices": 0,
    }


@in_virtual_time
async def test_a_slow_start_says_every_two_seconds_what_it_waits_for() -> None:
    *waiting, last = await told(5.0)
    assert [(each["event"], each["waiting_for"], each["objects"]) for each in waiting] == [
        ("reading the cluster", ["resourceclaims", "resourceslices"], 2)
    ] * 2
    assert [round(each["seconds"]) for each in waiting] == [2, 4]
    assert last["event"] == "cluster read"


@in_virtual_time
async def test_on_a_terminal_a_slow_start_is_one_line_that_is_rewritten_and_gone_in_the_end() -> None:
    drawn: list[str] = []
    (line,) = await told(4.9, drawn.append)
    assert line["event"] == "cluster read"
    waits = "reading resourceclaims, resourceslices"
    assert drawn == [f"{waits} ({seconds} s); nodes 2" for seconds in (2, 3, 4, 5)] + [""]
    assert await told(1.0, drawn.append)
    assert len(drawn) == 5


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("http://127.0.0.1:8888", "http://127.0.0.1:8888"),
        ("http://0.0.0.0:8888", "http://127.0.0.1:8888"),
        ("https://[::]:8443", "https://127.0.0.1:8443"),
        ("http://gpu-1.example.com:8888", "http://gpu-1.example.com:8888"),
    ],
)
def test_a_person_is_told_what_to_open_once_the_service_answers(url: str, opened: str) -> None:
    said: list[str] = []
    started = iter([False, False, True])

    @in_virtual_time
    async def wait() -> None:
        await tell_where_to_look(url, lambda: next(started), said.append)

    wait()
    assert said == [f"open {opened}"]
