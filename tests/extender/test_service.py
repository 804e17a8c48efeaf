"""Which filter calls are answered on the event loop, and which leave it."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from extender.decisions.inquiry import MOST_NEW_NODES
from extender.service import Service
from extender.verbs.wire import FilterArgs
from tests.kit.clusters import GPU, Cluster, Object, claim, device_class, local_slice, node, parsed, pod

_T = TypeVar("_T")

RESOURCE = "example.com/gpu"
CLAIMING = pod("claiming", "c")
ORDINARY = pod("ordinary", resources={RESOURCE: "1"})
"""Each node may offer the resource by a device plugin, so that each node is asked for what the pod needs there."""


class Threads:
    """An `extender.offload.Offload` that counts, and has no thread."""

    def __init__(self) -> None:
        self.used = 0

    async def __call__(self, work: Callable[[], _T]) -> _T:
        self.used += 1
        return work()


async def left_again(service: Service, threads: Threads, asked: Object, names: tuple[str, ...]) -> bool:
    """Whether the second call leaves the event loop. After the first call everything is known."""
    args = FilterArgs(parsed(asked), names)
    first = await service.filter(args)
    threads.used = 0
    assert first.passed
    assert (await service.filter(args)).passed == first.passed
    return bool(threads.used)


@pytest.mark.parametrize(
    ("asked", "nodes", "unknown", "leaves"),
    [
        (CLAIMING, 10 * MOST_NEW_NODES, 0, False),
        (CLAIMING, 1, 10_000, True),
        (ORDINARY, MOST_NEW_NODES, 0, False),
        (ORDINARY, MOST_NEW_NODES + 1, 0, True),
    ],
    ids=["known nodes", "more names than clusters have nodes", "few nodes to examine", "many nodes to examine"],
)
async def test_a_call_that_takes_more_than_a_look_up_leaves_the_event_loop(
    asked: Object, nodes: int, unknown: int, leaves: bool
) -> None:
    known = [f"n{index}" for index in range(nodes)]
    names = (*known, *(f"unknown-{index}" for index in range(unknown)))
    pools = [each for name in known for each in (node(name), local_slice(name))]
    cluster = Cluster.of(GPU, device_class("whole", extended=RESOURCE), claim("c"), asked, *pools)
    threads = Threads()
    assert await left_again(cluster.service(off_loop=threads), threads, asked, names) is leaves
