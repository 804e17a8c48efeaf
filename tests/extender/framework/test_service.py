"""Which filter calls are answered on the event loop, and which leave it."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from extender import Settings
from extender.config.settings import SchedulingSettings
from extender.faces.assembly import make_extender, make_solver
from extender.framework.decisions.evaluate import MOST_NEW_DEVICES, MOST_NEW_LOSSES, MOST_NEW_NODES
from extender.framework.service import Service
from extender.framework.wire import FilterArgs
from extender.kube.api import Event, EventType
from extender.kube.resources import SLICES
from tests.kit.clusters import GPU, Cluster, Object, claim, device_class, local_slice, network_slice, node, parsed, pod

_T = TypeVar("_T")

RESOURCE = "example.com/gpu"
CLAIMING = pod("claiming", "c")
ORDINARY = pod("ordinary", resources={RESOURCE: "1"})
"""Each node may offer the resource by a device plugin, so that each node is asked for what the pod needs there."""


class Threads:
    """An `extender.tools.offload.Offload` that counts, and has no thread."""

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


async def test_pods_that_share_an_allocated_claim_are_answered_on_the_event_loop() -> None:
    """Nothing is searched for them, on however many nodes, and the policy learns nothing from them."""
    names = [f"n{index}" for index in range(10 * MOST_NEW_NODES)]
    pods = [pod(f"p{index}", "c") for index in range(4)]
    shared = claim("c", allocated=["all/gpu-0"], users=["first"])
    cluster = Cluster.of(GPU, shared, *pods, network_slice("all"), *map(node, names))
    threads = Threads()
    service = service_with(Settings(), cluster, threads)
    await service.filter(FilterArgs(parsed(pods[0]), names))
    threads.used = 0
    for each in pods[1:]:
        result = await service.filter(FilterArgs(parsed(each), [*names, "unknown"]))
        assert result.passed
        assert list(result.unresolvable) == ["unknown"]
    assert threads.used == 0


@pytest.mark.parametrize("published", [local_slice, network_slice], ids=["of its own", "of all nodes"])
@pytest.mark.parametrize(("devices", "leaves"), [(MOST_NEW_DEVICES, False), (MOST_NEW_DEVICES + 1, True)])
async def test_a_node_with_many_devices_is_examined_off_the_event_loop(
    devices: int, published: Callable[[str, int], Object], *, leaves: bool
) -> None:
    pool = published("n", devices)
    cluster, threads = Cluster.of(GPU, claim("c"), CLAIMING, node("n"), pool), Threads()
    service = cluster.service(off_loop=threads)
    assert not await left_again(service, threads, CLAIMING, ("n",))
    cluster.state.apply(Event(EventType.MODIFIED, SLICES, later(pool)))
    await service.filter(FilterArgs(parsed(CLAIMING), ("n",)))
    assert bool(threads.used) is leaves


def later(obj: Object) -> Object:
    """An object as the next event tells it."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": "1000000"}}


@pytest.mark.parametrize(
    ("device", "leaves"),
    [({}, False), ({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}, True)],
    ids=["no device takes any", "some devices take CPU"],
)
async def test_resources_that_devices_take_are_compared_off_the_event_loop(device: Object, leaves: bool) -> None:
    names = ("a", "b")
    pools = [each for name in names for each in (node(name), local_slice(name, **device))]
    cluster, threads = Cluster.of(GPU, claim("c"), CLAIMING, *pools, counts_resources=True), Threads()
    settings = Settings().over({"DRANodeAllocatableResources": True})
    assert await left_again(service_with(settings, cluster, threads), threads, CLAIMING, names) is leaves


def service_with(settings: Settings, cluster: Cluster, threads: Threads) -> Service:
    return make_extender(cluster.api, cluster.state, make_solver(settings), settings, off_loop=threads).service


@pytest.mark.parametrize(
    ("pods", "nodes", "leaves"),
    [(21, 10, [False]), (24, 10, [True]), (21, MOST_NEW_LOSSES + MOST_NEW_NODES + 11, [True, True, False])],
    ids=["known losses", "shares that may move", "new nodes, then many losses to look up, then known ones"],
)
async def test_losses_that_are_not_known_are_found_off_the_event_loop(
    pods: int, nodes: int, leaves: list[bool]
) -> None:
    """The shares of shapes are published when there are a quarter more pods: after pods 15, 19 and 24, for example."""
    names = tuple(f"n{index}" for index in range(nodes))
    pools = [each for name in names for each in (node(name), local_slice(name))]
    claims = [claim(f"c{number}") for number in range(pods)]
    cluster, threads = Cluster.of(GPU, *claims, *pools), Threads()
    by_fragmentation = Settings(scheduling=SchedulingSettings(policy="fragmentation"))
    service = service_with(by_fragmentation, cluster, threads)
    for number in range(pods - 1):
        asked = pod(f"p{number}", f"c{number}")
        await service.filter(FilterArgs(parsed(asked), names[: min(nodes, 10)]))
    last = FilterArgs(parsed(pod("last", f"c{pods - 1}")), names)
    found = []
    for _ in leaves:
        threads.used = 0
        assert (await service.filter(last)).passed
        found.append(bool(threads.used))
    assert found == leaves
