"""What is measured at a scrape: the cluster as it is known, and how it is followed."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from allocator import AllocationResult, DeviceId, DeviceResult, Features
from allocator.checks import DeviceState
from allocator.device_states import DeviceKind
from extender.answers.metrics import ClusterMetrics
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.overview import Overview
from extender.answers.observe.pool_sizes import MOST_OF_NODE, MOST_OF_POOL, PoolSizes, SizesKeeper
from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import FollowTiming, LiveCluster, Timing
from extender.config.settings import Settings
from extender.faces.assembly import Surroundings, make_overview
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import filter_nodes
from extender.kube.api import ApiError, Event, EventType
from extender.kube.connection.transport import NO_ANSWER
from extender.kube.resources import CLAIMS, NODES, PODS, SLICES
from extender.lab.api import MemoryApi
from extender.tools.offload import at_once
from extender.tools.version import __version__
from tests.extender.kube.live_scenes import default, following, make_claim
from tests.kit.clusters import (
    DRIVER,
    NOW,
    Object,
    claim,
    device_class,
    local_slice,
    node,
    parsed,
    pod,
    solver,
    state_of,
    taint_rule,
)
from tests.kit.objects.parts import api_object, slice_spec
from tests.kit.servers.transport import FakeApi, Fault
from tests.kit.virtualtime import elapse, run

_T = TypeVar("_T")


def overview_of(state: ClusterState, live: LiveCluster | None = None) -> Overview:
    api = live.api if live else MemoryApi(now=lambda: NOW, new_uid=str)
    return make_overview(
        api,
        state,
        Decider(solver(), state),
        Settings(),
        lambda _states: (),
        around=Surroundings(now=lambda: NOW, live=live),
    )


def registry_of(overview: Overview) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(overview))
    return registry


def sampled(state: ClusterState) -> Callable[..., float | None]:
    registry = registry_of(overview_of(state))
    return lambda name, **labels: registry.get_sample_value(f"dra_extender_{name}", labels)


STATES = {
    "allocated": [claim("c", allocated=["a/gpu-0"])],
    "tainted": [taint_rule("t", driver=DRIVER, pool="a", device="gpu-0")],
    "free": [],
}


@pytest.mark.parametrize("state", STATES)
def test_devices_by_driver_and_state(state: str) -> None:
    sample = sampled(state_of([node("a"), local_slice("a"), *STATES[state]]))
    assert {
        each.value: sample("devices", driver=DRIVER, kind="physical", state=each.value) for each in DeviceState
    } == {each.value: float(each.value == state) for each in DeviceState}


def large(devices: int) -> list[Object]:
    """Two pools of node a, with so many devices together; each slice has as many as an API server allows."""
    sizes = [128] * (devices // 128) + ([devices % 128] if devices % 128 else [])
    half = len(sizes) // 2
    found = []
    for pool, parts in (("one", sizes[:half]), ("two", sizes[half:])):
        for number, size in enumerate(parts):
            published = [{"name": f"gpu-{number}-{place}"} for place in range(size)]
            spec = slice_spec(pool, published, slices=len(parts), nodeName="a")
            found.append(
                api_object("ResourceSlice", f"{pool}-{number}", metadata={"uid": f"{pool}-{number}"}, spec=spec)
            )
    return found


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        (MOST_OF_NODE, {"pool": 0, "node": 0}),
        (MOST_OF_NODE + 1, {"pool": 0, "node": 1}),
        (2 * MOST_OF_POOL + 1, {"pool": 1, "node": 1}),
    ],
)
def test_pools_and_nodes_with_too_many_devices(devices: int, found: dict[str, int]) -> None:
    state = state_of([node("a"), *large(devices)])
    sample = sampled(state)
    assert {scope: sample("too_many_devices", scope=scope) for scope in ("pool", "node")} == found


async def test_a_pool_that_becomes_too_large_is_told_once_each_time() -> None:
    told: list[str] = []
    state = state_of([node("a"), *large(MOST_OF_NODE)])
    keeper = SizesKeeper(state, PoolSizes(state), at_once, lambda found: told.append(str(found)))
    one_more = large(MOST_OF_NODE + 128)[-1]
    for kind in (EventType.ADDED, EventType.DELETED, EventType.ADDED):
        state.apply(Event(kind, SLICES, one_more))
        await keeper.tick()
        await keeper.tick()
    assert told == [f"node a has {MOST_OF_NODE + 128} devices, more than {MOST_OF_NODE}"] * 2


async def test_however_many_pods_change_the_pools_are_not_looked_at_again() -> None:
    """Else each look would read all changes since a pool has changed last, on the event loop."""
    state, looks = ClusterState(log_size=4), list[object]()
    for resource, objects in ((NODES, [node("a")]), (SLICES, [local_slice("a")]), (PODS, [])):
        state.replace(resource, objects, 0)

    async def counted(work: Callable[[], _T]) -> _T:
        looks.append(work)
        return await at_once(work)

    keeper = SizesKeeper(state, PoolSizes(state), counted)
    for number in range(30):
        await keeper.tick()
        state.apply(Event(EventType.ADDED, PODS, pod(f"p{number}", "c")))
    assert len(looks) == 1


def test_devices_are_counted_anew_where_something_has_changed() -> None:
    objects = [each for name in "abc" for each in (node(name), local_slice(name))]
    state, counts = state_of(objects[:-1]), DeviceStates(Features())

    def count(which: DeviceState) -> int:
        return counts.count(state.snapshot)[DRIVER, DeviceKind.PHYSICAL, which]

    assert count(DeviceState.FREE) == 2
    held = AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "a", "gpu-0")),))
    state.assume("uid", held, "pod")
    assert (count(DeviceState.FREE), count(DeviceState.ALLOCATED)) == (1, 1)
    state.forget("uid")
    assert count(DeviceState.FREE) == 2
    state.assume("uid", AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "a", "gpu-0"), share_id="s"),)), "pod")
    assert (count(DeviceState.FREE), count(DeviceState.SHARED)) == (1, 1)
    state.forget("uid")
    state.apply(Event(EventType.ADDED, SLICES, local_slice("c", devices=3)))
    assert count(DeviceState.FREE) == 5
    state.apply(Event(EventType.DELETED, SLICES, local_slice("b")))
    assert count(DeviceState.FREE) == 4


def test_objects_by_kind_and_what_is_in_flight() -> None:
    state = state_of([node("a"), node("b"), device_class(), claim("c")])
    state.apply(Event(EventType.ADDED, SLICES, {**local_slice("a"), "spec": "x"}))
    state.assume("uid-c", AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "a", "gpu-0")),)), "uid-p")
    sample = sampled(state)
    assert sample("objects", kind="nodes") == 2
    assert sample("objects", kind="resourceclaims") == 1
    assert sample("unreadable_objects", kind="resourceslices") == 1
    assert sample("allocations_in_flight") == 1


def test_nodes_that_are_alike_are_searched_once_and_known_from_then_on() -> None:
    state = state_of(
        [device_class(), claim("c"), *(each for name in "abc" for each in (node(name), local_slice(name)))]
    )
    overview = overview_of(state)
    registry = registry_of(overview)
    overview.decider.follow(state.snapshot)
    for _ in range(2):
        filter_nodes(parsed(pod("p", "c")), "abc", state.snapshot, overview.decider.solver, decider=overview.decider)
    assert registry.get_sample_value("dra_extender_node_verdicts_total", {"source": "search"}) == 1
    assert (registry.get_sample_value("dra_extender_node_verdicts_total", {"source": "memory"}) or 0) >= 5


def test_readiness_by_kind() -> None:
    state = state_of([])
    state.doubt(NODES, "too old")
    sample = sampled(state)
    assert (sample("kind_ready", kind="nodes"), sample("kind_ready", kind="pods")) == (0, 1)


def test_how_a_live_cluster_is_followed() -> None:
    async def main() -> Callable[..., float | None]:
        fake, state = FakeApi(), ClusterState()
        fake.put(CLAIMS, make_claim("a"))
        never_looked_for = Timing(follow=FollowTiming(absent=1000.0))
        async with following(fake, state, timing=never_looked_for) as live:
            await elapse(1)
            fake.put(CLAIMS, make_claim("b"))
            await elapse(1)
            fake.faults.extend([Fault(409, reason="Conflict"), Fault(500)])
            with pytest.raises(ApiError):
                await live.api.delete(CLAIMS, default("a"))
            await live.api.get(CLAIMS, default("a"))
            fake.fault_for = lambda _: Fault(refused=True)
            await elapse(100)
            # Ages are those at the scrape.
            text = generate_latest(registry_of(overview_of(state, live))).decode()
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return lambda name, **labels: samples.get((f"dra_extender_{name}", *sorted(labels.items())))

    sample = run(main())
    kind = CLAIMS.plural
    assert sample("lists_total", kind=kind) == 1
    assert sample("watch_events_total", kind=kind) == 1
    assert (sample("watch_failures_total", kind=kind) or 0) > 3
    assert sample("watch_age_seconds", kind=kind) == pytest.approx(55, abs=1)
    assert sample("api_requests_total", verb="delete", resource=kind, code="409") == 1
    assert sample("api_requests_total", verb="get", resource=kind, code="500") == 1
    assert (sample("api_requests_total", verb="watch", resource=kind, code="200") or 0) >= 2
    assert (sample("api_requests_total", verb="watch", resource=kind, code=NO_ANSWER) or 0) > 3
    assert sample("api_read_retries_total") == 1
    assert sample("api_request_duration_seconds_count", verb="get") == 2
    assert sample("api_request_duration_seconds_bucket", verb="get", le="+Inf") == 2


def test_a_cluster_in_memory_is_not_followed() -> None:
    sample = sampled(state_of([]))
    assert sample("watch_age_seconds", kind="nodes") is None
    assert sample("lists_total", kind="nodes") is None
    assert sample("build_info", version=__version__) == 1
