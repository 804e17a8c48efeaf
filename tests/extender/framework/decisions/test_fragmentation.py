"""The policy fragmentation in a cluster: where pods go, and what is learned."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from immutables import Map

from allocator import DeviceClass, Features, Limits, Selectors, parse_claim, parse_device_class
from allocator.policies import NOTHING_LEFT, POLICIES, Merit, Shape
from allocator.policies.leftover import DeviceModel
from allocator.search import SearchBudget
from extender import Cluster, Settings
from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import Conclusion, as_json
from extender.cluster.timeline import ChangeLog
from extender.config.settings import SchedulingSettings
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.shapes import Shapes
from extender.framework.decisions.verdict import OUT_OF_TIME, Verdict
from extender.framework.filter import Bounds, filter_nodes
from tests.extender.answers.explain.scenes import weighing
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, parsed, pod, request, snapshot_of, solver

SETTINGS = Settings(scheduling=SchedulingSettings(policy="fragmentation"))
OF_SOME_PODS = Settings.model_validate({"scheduling": {"policy": "fragmentation", "cpuOfAllPods": False}})
CLASSES = {"gpu": parse_device_class(GPU)}
POD = parsed(pod("p", "c", resources={"cpu": "1"}))
ASKED = {devices: parse_claim(claim("c", request(count=devices))) for devices in (1, 2)}


def worker(name: str, cpu: str, devices: int) -> list[Object]:
    return [node(name, allocatable={"cpu": cpu}), *([local_slice(name, devices)] if devices else [])]


def asks(name: str, devices: int, cpu: str, created: int = 0) -> list[Object]:
    """A pod with a claim of its own, unless it asks for no devices."""
    at = f"2026-01-01T00:00:{created:02}Z"
    if not devices:
        return [pod(name, resources={"cpu": cpu}, created=at)]
    return [
        claim(f"{name}-claim", request(count=devices)),
        pod(name, f"{name}-claim", resources={"cpu": cpu}, created=at),
    ]


def placed(*objects: Sequence[Object], by: Settings = SETTINGS) -> dict[str, str]:
    cluster = Cluster.from_objects([GPU, *(each for some in objects for each in some)], settings=by)
    return {each.pod.partition("/")[2]: each.node for each in cluster.schedule()}


def test_pod_goes_where_the_cpu_left_serves_nobody_else() -> None:
    """Both nodes have one device; the CPU of "b" is too little for the first pod's shape."""
    found = placed(worker("a", "8", 2), worker("b", "3", 1), asks("large", 1, "4"), asks("small", 1, "1", 1))
    assert found == {"large": "a", "small": "b"}


@pytest.mark.parametrize(("by", "goes"), [(SETTINGS, "b"), (OF_SOME_PODS, "a")])
def test_pod_without_devices_goes_where_it_takes_nothing_from_others_if_its_cpu_counts(by: Settings, goes: str) -> None:
    objects = [worker("a", "8", 2), worker("b", "8", 0), asks("large", 1, "4"), asks("plain", 0, "4", 1)]
    assert placed(*objects, by=by) == {"large": "a", "plain": goes}


@pytest.mark.parametrize(("of_all_pods", "goes"), [(True, "z"), (False, "b")])
def test_cpu_that_a_pod_without_devices_takes_is_known_only_if_it_counts(of_all_pods: bool, goes: str) -> None:
    """The plain pod leaves node "z" 3 cores: too few for a large pod, so a small one takes less from others there."""
    shapes = [{"cpu": cpu, "requests": [request()]} for cpu in ("1", "4")]
    scheduling = {"policy": "fragmentation", "cpuOfAllPods": of_all_pods, "shapes": shapes}
    plain = [pod("plain", resources={"cpu": "5"}, on="z")]
    objects = [worker("b", "4", 1), worker("z", "8", 1), plain, asks("small", 1, "1")]
    assert placed(*objects, by=Settings.model_validate({"scheduling": scheduling})) == {"small": goes}


def test_pods_that_ask_for_two_devices_keep_pairs_whole() -> None:
    found = placed(worker("a", "64", 4), worker("b", "64", 3), asks("pair", 2, "1"), asks("one", 1, "1", 1))
    assert (found["pair"], found["one"]) == ("b", "b")


def test_annotation_without_the_setting_compares_devices_only() -> None:
    objects = [*asks("large", 1, "4"), *asks("small", 1, "1", 1)]
    for each in objects:
        if each["kind"] == "Pod":
            each["metadata"]["annotations"] = {"dra-extender.dev/policy": "fragmentation"}
    by = Settings(scheduling=SchedulingSettings(policy="best-fit"))
    cluster = Cluster.from_objects([GPU, *worker("a", "8", 2), *worker("b", "4", 1), *objects], settings=by)
    assert [each.node for each in cluster.schedule()] == ["b", "a"]


def test_explanation_names_the_policy_and_the_waste_for_programs_as_well() -> None:
    objects = [*worker("a", "8", 2), *worker("b", "3", 1), *asks("large", 1, "4"), *asks("small", 1, "1", 1)]
    cluster = Cluster.from_objects([GPU, *objects], settings=SETTINGS)
    cluster.schedule(before="ns/small")
    found = as_json(cluster.explain("ns/small"))
    assert found["policy"] == "fragmentation"
    assert found["places"] == [
        {
            "node": "b",
            "score": 10,
            "why": "wastes the least: other pods can no longer use 0.50 devices (on the worst node 1.00)",
            "devices": [{"claim": "ns/small-claim", "request": "gpu", "device": device("b", 0)}],
            "leftOut": [],
        },
        {
            "node": "a",
            "score": 0,
            "why": "wastes 0.50 devices more than the best node: other pods can no longer use 1.00 devices",
            "devices": [{"claim": "ns/small-claim", "request": "gpu", "device": device("a", 1)}],
            "leftOut": [],
        },
    ]


def device(pool: str, number: int) -> dict[str, str]:
    return {"driver": DRIVER, "pool": pool, "device": f"gpu-{number}"}


class TestLearning:
    """How often each shape is asked, as pods come."""

    def shapes(self) -> Shapes:
        return Shapes(Selectors(), Features())

    def see(self, shapes: Shapes, name: str, devices: int, classes: dict[str, DeviceClass] = CLASSES) -> Shape:
        shapes.see(replace(POD, uid=name), [ASKED[devices]], classes)
        return Shape(ASKED[devices].spec.requests, 1000)

    def test_each_pod_counts_once(self) -> None:
        shapes = self.shapes()
        one, two = self.see(shapes, "p", 1), self.see(shapes, "q", 2)
        for _ in range(3):
            self.see(shapes, "q", 2)
        assert shapes.shares == {one: 0.5, two: 0.5}

    def test_a_copy_for_pods_that_do_not_exist_learns_nothing(self) -> None:
        shapes = self.shapes()
        one = self.see(shapes, "p", 1)
        still = shapes.still()
        for number in range(50):
            self.see(still, f"made-up-{number}", 2)
        assert (still.shares, shapes.shares) == ({one: 1.0}, {one: 1.0})
        two = self.see(shapes, "q", 2)
        assert shapes.shares == {one: 0.5, two: 0.5}

    def test_a_copy_keeps_its_counts_while_other_threads_go_on_to_count(self) -> None:
        shapes = self.shapes()
        one = self.see(shapes, "p", 1)
        still = shapes.still()
        self.see(shapes, "q", 2)
        self.see(still, "made-up", 1, {**CLASSES})  # other classes: the shares are worked out again
        assert still.shares == {one: 1.0}

    def test_new_shares_replace_old_ones_when_they_have_moved(self) -> None:
        shapes = self.shapes()
        one, two = (Shape(ASKED[devices].spec.requests, 1000) for devices in (1, 2))
        for number in range(100):
            self.see(shapes, f"p{number}", 1)
        before = shapes.shares
        self.see(shapes, "other", 2)
        assert shapes.shares is before
        for number in range(100):
            self.see(shapes, f"q{number}", 2)
        assert shapes.shares[two] > 0.4
        assert sum(shapes.shares.values()) == 1
        assert set(shapes.shares) == {one, two}

    def test_old_shapes_fade(self) -> None:
        shapes = self.shapes()
        old = self.see(shapes, "old", 1)
        for number in range(20_000):
            self.see(shapes, f"old-{number}", 1)
        for number in range(40_000):
            self.see(shapes, f"new-{number}", 2)
        assert shapes.shares[old] < 0.1

    def test_changed_device_class_is_read_anew(self) -> None:
        shapes = self.shapes()
        by_model = DeviceClass("gpu", (f'device.attributes["{DRIVER}"].model == "a100"',))
        read = []
        for classes in (CLASSES, {"gpu": by_model}):
            self.see(shapes, "p", 1, classes)
            read.append(shapes.policy.reads)
        assert read == [(), (f"{DRIVER}/model",)]


@pytest.mark.parametrize(
    "asked",
    [
        [request(selectors=[f'device.driver != "{"x" * 500}"'])],
        [request(selectors=["lists.range(1000).all(i, lists.range(1000).all(j, i * j >= 0))"])],
        [request(selectors=["no expression"])],
        [request(f"{number}-{'x' * 50}") for number in range(32)],
    ],
    ids=["a long selector", "a selector that may take long", "a mistake", "many long names"],
)
def test_what_costs_others_much_is_not_learned(asked: list[Object]) -> None:
    shapes = Shapes(Selectors(), Features())
    shapes.see(replace(POD, uid="costly"), [parse_claim(claim("c", *asked))], CLASSES)
    shapes.see(POD, [ASKED[1]], CLASSES)
    assert shapes.shares == {Shape(ASKED[1].spec.requests, 1000): 1.0}


@pytest.mark.parametrize("name", ["p", "made-up"])
def test_who_explains_a_pod_changes_no_later_score(name: str) -> None:
    shapes = Shapes(Selectors(), Features())
    judge = replace(solver(), policy=POLICIES["fragmentation"], shapes=shapes)
    world = snapshot_of(GPU, node("n"), local_slice("n", 2), pod("p", "c"), claim("c"))
    explained = Explainer.alone(world, judge).explain(parsed(pod(name, "c")))
    assert explained.verdict is Conclusion.FITS
    assert not shapes.shares


def test_weighing_ends_with_the_time_of_the_call_and_the_next_call_goes_on() -> None:
    """Each node has a device model of its own. 30 shapes have a selector each. A look at the clock takes 1 ms."""
    names = [f"n{number}" for number in range(20)]
    objects = [each for name in names for each in (node(name), local_slice(name, 1, **model(name)))]
    asked = (request(selectors=[f"device.attributes['{DRIVER}'].model == '{number}'"]) for number in range(30))
    world = snapshot_of(GPU, *objects, claim("c"))
    reader = count()
    by = replace(weighing(*[(1.0, each) for each in asked]), clock=lambda: next(reader) / 1000)
    decider = Decider(by, ChangeLog(1))
    passed = [0]
    while passed[-1] < len(names):
        bounds = Bounds(until=by.clock() + 1.0)
        result = filter_nodes(parsed(pod("p", "c")), names, world, by, decider=decider, bounds=bounds)
        assert set(result.unresolvable.values()) <= {OUT_OF_TIME}
        assert by.clock() < bounds.until + 0.2
        assert len(result.passed) > passed[-1]
        passed.append(len(result.passed))
    assert len(passed) > 2


def model(name: str) -> Object:
    return {"attributes": {"model": {"string": name}}}


def test_a_loss_is_added_and_every_other_fact_of_a_merit_stays() -> None:
    """Every field of the merit is set, so none that is new is lost."""
    budget = SearchBudget(Limits(), lambda: 0.0)
    facts: dict[str, Any] = dict.fromkeys(Merit._fields, 1) | {"capacity": Map(memory=1), "loss": 0.0}
    left = frozenset([((DeviceModel("driver", is_shared=False), 1.0), 1)])
    found = Merit(**(facts | {"before": left, "after": left}))
    weigher = Shapes(Selectors(), Features()).weighing(1000, budget).weigher
    weighed = weigher.of(Verdict(found), 2000, budget).merit
    assert weighed == found._replace(before=NOTHING_LEFT, after=NOTHING_LEFT)
