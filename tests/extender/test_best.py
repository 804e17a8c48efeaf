"""The best nodes: how many are named, and which."""

import pytest

from allocator.outcome import Merit
from allocator.policy import BEST_FIT, FIRST_FIT
from extender.settings import SchedulingSettings, Settings
from extender.verbs.best import best
from extender.wire import FilterArgs
from tests.extender.clusters import Cluster, claim, device_class, local_slice, node, parsed, pod

HIGH, LOW = Merit(preference=8), Merit(preference=7)


@pytest.mark.parametrize(
    ("asked", "named"),
    [(0, 0), (1, 1), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (5625, 281), (20000, 1000)],
)
def test_by_default_as_many_are_named_as_kube_scheduler_would_score(asked: int, named: int) -> None:
    assert SchedulingSettings().most_nodes(asked) == named


@pytest.mark.parametrize(("setting", "named"), [(0, 5000), (7, 7)])
def test_a_setting_names_as_many_as_it_says_and_0_all(setting: int, named: int) -> None:
    assert SchedulingSettings.model_validate({"bestNodes": setting}).most_nodes(5000) == named


def test_few_nodes_are_all_named() -> None:
    merits = {"a": LOW, "b": HIGH}
    assert best(merits, 2, BEST_FIT) is merits


def test_the_best_are_named_in_the_order_asked() -> None:
    merits = {"a": LOW, "b": HIGH, "c": LOW, "d": HIGH}
    assert list(best(merits, 2, FIRST_FIT)) == ["b", "d"]
    assert list(best(merits, 3, FIRST_FIT)) == ["a", "b", "d"]


def test_among_equals_those_that_stand_first_are_named() -> None:
    merits = {name: Merit(preference=8) for name in "dbca"}
    assert list(best(merits, 3, BEST_FIT)) == ["d", "b", "c"]


async def test_an_answer_names_the_best_nodes_and_prioritize_scores_them() -> None:
    names = ("a", "b", "c")
    slices = [local_slice("a", capacity={"memory": {"value": "8Gi"}}), *map(local_slice, "bc")]
    cluster = Cluster.of(device_class(), *map(node, names), *slices, claim("c"))
    service = cluster.service(Settings.model_validate({"scheduling": {"bestNodes": 2}}))
    pending = parsed(pod("p", "c"))
    result = await service.filter(FilterArgs(pending, names))
    assert (list(result.passed), result.unresolvable) == (["a", "b"], {})
    assert await service.prioritize(FilterArgs(pending, ("b", "a"))) == [("b", 10), ("a", 10)]


async def test_pods_without_devices_get_all_their_nodes_back() -> None:
    names = ("a", "b", "c")
    service = Cluster.of().service(Settings.model_validate({"scheduling": {"bestNodes": 1}}))
    assert (await service.filter(FilterArgs(parsed(pod()), names))).passed is names
