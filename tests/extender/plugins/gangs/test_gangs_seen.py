"""What people and other verbs see of gangs: simulations, explanations, autoscalers."""

from dataclasses import replace
from itertools import count

import pytest

from extender.faces.simulation.cluster import Cluster as Simulated
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import filter_nodes
from extender.kube.api import ObjectKey
from extender.planning.planner import as_planned
from extender.plugins.table import PLUGINS
from tests.extender.plugins.gangs.scenes import members, nodes
from tests.kit.clusters import Object, claim, snapshot_of, solver


def simulated(*objects: Object) -> Simulated:
    return Simulated.from_objects(objects)


def test_a_simulation_places_gangs_whole_or_not_at_all() -> None:
    found = simulated(*nodes("abc"), *members("x", 2), *members("y", 2)).schedule()
    placed = sorted(each.pod for each in found if each.node)
    assert [each.reason for each in found if not each.node] == [
        "3 waiting for devices for 2 pods of group y together"
    ] * 2
    assert placed == ["ns/x0", "ns/x1"]


TOGETHER = "waiting for devices for 3 pods of group x together"
EXPLAINED = {
    "pods are missing": (
        members("x", 3)[:4],
        "pod ns/x0 cannot be placed: waiting for the pods of group x: 2 of 3 are there",
    ),
    "there is no device for the first pod": (
        [
            *members("x", 3),
            *(claim(f"held-{name}", allocated=[f"{name}/gpu-0"], at=name, users=["someone"]) for name in "ab"),
        ],
        f"pod ns/x0 cannot be placed: {TOGETHER}: 0 of 3 get devices; the first finds none: all 2 devices are in use",
    ),
    "devices are missing": (
        members("x", 3),
        f"pod ns/x0 cannot be placed: {TOGETHER}: 2 of 3 get devices; the third finds none: all 2 devices are in use",
    ),
}


@pytest.mark.parametrize(("pods", "text"), EXPLAINED.values(), ids=EXPLAINED)
def test_an_explanation_names_the_group_and_what_is_missing(pods: list[Object], text: str) -> None:
    assert str(simulated(*nodes("ab"), *pods).explain("ns/x0")).splitlines()[0] == text


def test_an_explanation_says_that_its_time_was_over() -> None:
    snapshot = snapshot_of(*nodes("abc"), *members("x", 3))
    seconds = count()
    hasty = replace(solver(), clock=lambda: float(next(seconds)))
    decider = Decider(hasty, None)
    decider.follow(snapshot)
    found = PLUGINS.explain(snapshot.pods[ObjectKey("ns", "x0")], snapshot, decider, hasty)
    assert found is not None
    assert str(found.refusal) == f"{TOGETHER}: the search ended before it was known how many of them get devices"


def test_an_explanation_says_that_there_are_devices_for_all() -> None:
    note = "there are devices for 2 pods of group x together; dra-extender keeps them all or none"
    assert note in simulated(*nodes("ab"), *members("x", 2)).explain("ns/x0").notes


def test_an_autoscaler_sees_each_pod_of_a_gang_alone() -> None:
    snapshot = snapshot_of(*nodes("a"), *members("x", 3))
    asked, _ = as_planned(snapshot.pods[ObjectKey("ns", "x0")], snapshot)
    assert filter_nodes(asked, ["a"], snapshot, solver()).passed == ("a",)
