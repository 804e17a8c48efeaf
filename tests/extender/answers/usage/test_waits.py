"""How long pods wait for a node: who counts, how often, and what the quantiles say."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.answers.usage.amounts import DAY, MINUTE, OTHERS
from extender.answers.usage.waits import COARSE_BOUNDS, QUARTER, PodWaits, RecordedWaits, WaitCounts
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import PODS
from tests.kit.clusters import Cluster, Object, pod

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Scene:
    """Pods that come, get nodes and go; each change is looked at."""

    def __init__(self, *objects: Object) -> None:
        self.cluster = Cluster.of(*objects)
        self.now = STARTED
        self.waiting: Counter[str] = Counter()
        self.placed: list[float] = []
        self._waits = PodWaits(
            self.cluster.state,
            lambda: self.now,
            lambda namespace, change: self.waiting.update({namespace: change}),
            lambda _, seconds: self.placed.append(seconds),
        )
        self._waits.look(self.cluster.state.snapshot)

    def change(self, after: float, obj: Object, what: EventType = EventType.MODIFIED) -> None:
        self.now += after * SECOND
        version = str(int(self.now.timestamp() * 1000))
        self.cluster.state.apply(
            Event(what, PODS, {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}})
        )
        self._waits.look(self.cluster.state.snapshot)


def created(after: float, on: str = "") -> Object:
    return pod("p", "claim", on=on, created=(STARTED + after * SECOND).isoformat().replace("+00:00", "Z"))


def test_a_pod_waits_until_it_has_a_node() -> None:
    scene = Scene()
    scene.change(5, created(5), EventType.ADDED)
    assert (scene.waiting["ns"], scene.placed) == (1, [])
    scene.change(7, created(5, on="a"))
    scene.change(7, created(5, on="a"))
    assert (scene.waiting["ns"], scene.placed) == (0, [7.0])


def test_a_pod_that_is_deleted_without_a_node_counts_as_waiting_no_longer_and_as_placed_never() -> None:
    scene = Scene()
    scene.change(5, created(5), EventType.ADDED)
    scene.change(5, created(5), EventType.DELETED)
    assert (scene.waiting["ns"], scene.placed) == (0, [])


def test_pods_that_had_a_node_before_this_process_began_do_not_count() -> None:
    scene = Scene(pod("p", "claim", on="a", created="2025-12-31T23:00:00Z"))
    scene.change(1, pod("p", "claim", on="a", created="2025-12-31T23:00:00Z"))
    assert (scene.waiting.total(), scene.placed) == (0, [])


def test_a_pod_that_waited_before_this_process_began_counts_from_its_creation() -> None:
    scene = Scene(created(-100))
    scene.change(20, created(-100, on="a"))
    assert scene.placed == [120.0]


def test_a_pod_that_had_a_node_when_it_was_seen_first_counts_once() -> None:
    scene = Scene()
    scene.change(0.4, created(0, on="a"), EventType.ADDED)
    scene.change(0.1, created(0, on="a"))
    scene.change(3, created(0, on="a"))
    assert scene.placed == [pytest.approx(0.4)]


def test_pods_without_devices_do_not_count() -> None:
    scene = Scene()
    scene.change(5, pod("plain"), EventType.ADDED)
    assert scene.waiting.total() == 0


async def test_another_pod_of_the_same_name_waits_for_itself() -> None:
    scene = Scene(created(-100))
    await scene.cluster.api.delete(PODS, ObjectKey("ns", "p"))
    second = created(10)
    second["metadata"]["uid"] = "uid-second"
    scene.change(10, second, EventType.ADDED)
    scene.change(5, {**created(10, on="a"), "metadata": second["metadata"]})
    assert scene.placed == [5.0]


# --- counts --------------------------------------------------------------------------------------------------

NOW = 1_767_225_600_000
MINUTE_NOW = NOW // MINUTE


@given(st.lists(st.floats(0.1, 100_000), min_size=1, max_size=50), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_at_most_a_third_from_that_of_the_waits(waited: list[float], share: float) -> None:
    counts = WaitCounts(4)
    for each in waited:
        counts.add("ns", each, NOW)
    found = counts.counts(MINUTE_NOW, MINUTE_NOW)["ns"]
    exact = sorted(waited)[max(0, -int(-share * len(waited) // 1) - 1)]
    quantile = found.quantile(share)
    assert found.pods == len(waited)
    assert quantile is not None
    assert exact / 1.31 <= max(quantile, 0.5 / 1.31)
    assert quantile <= max(0.5, exact * 1.31)


def test_counts_are_of_the_quarters_of_an_hour_that_the_minutes_touch() -> None:
    counts = WaitCounts(4)
    counts.add("ns", 1, NOW)
    counts.add("ns", 1, NOW + QUARTER * MINUTE)
    assert counts.counts(MINUTE_NOW, MINUTE_NOW)["ns"].pods == 1
    assert counts.counts(MINUTE_NOW, MINUTE_NOW + QUARTER)["ns"].pods == 2
    assert counts.counts(MINUTE_NOW - 3 * QUARTER, MINUTE_NOW - 1) == {}


def test_what_is_more_than_a_day_ago_is_forgotten() -> None:
    counts = WaitCounts(4)
    counts.add("ns", 1, NOW)
    counts.add("ns", 1, NOW + 2 * DAY)
    assert counts.counts(MINUTE_NOW, MINUTE_NOW) == {}
    assert counts.counts(MINUTE_NOW, MINUTE_NOW + 2 * DAY // MINUTE)["ns"].pods == 1


def test_metrics_count_what_this_process_saw_in_coarser_buckets_that_only_grow() -> None:
    counts = WaitCounts(2)
    counts.expect("ns", NOW)
    assert counts.ever() == {"ns": (0,) * len(COARSE_BOUNDS)}
    for seconds in (0.5, 0.8, 4, 1_000_000):
        counts.add("ns", seconds, NOW)
    counts.put([RecordedWaits("ns", MINUTE_NOW, [7] * len(COARSE_BOUNDS))], NOW)
    (found,) = counts.ever().values()
    assert {bound: count for bound, count in zip(COARSE_BOUNDS, found, strict=True) if count} == {
        0.845: 2,
        4.079: 1,
        float("inf"): 1,
    }


def test_waits_from_elsewhere_count_in_the_quarters_that_are_remembered() -> None:
    counts = WaitCounts(1)
    one = [1, *[0] * (len(COARSE_BOUNDS) - 1)]
    counts.put(
        [RecordedWaits(name, MINUTE_NOW - ago, one) for name, ago in [("a", 0), ("a", 30), ("b", 0), ("a", 2000)]], NOW
    )
    found = counts.counts(MINUTE_NOW - 1440, MINUTE_NOW)
    assert {name: each.pods for name, each in found.items()} == {"a": 2, OTHERS: 1}


def test_namespaces_with_few_pods_are_summed_where_there_are_too_many() -> None:
    counts = WaitCounts(2)
    for _ in range(5):
        counts.add("large", 10, NOW)
    for number in range(7):
        counts.add(f"small-{number}", 10, NOW)
    found = {name: each.pods for name, each in counts.counts(MINUTE_NOW, MINUTE_NOW).items()}
    assert found == {"large": 5, "small-6": 1, OTHERS: 6}
