"""An explanation has a time of its own, and then says what is known."""

import sys
from dataclasses import replace
from itertools import count
from typing import cast

import pytest

from allocator import Clock, Limits
from extender.answers.explain.explainer import Explainer, WorkClock
from extender.answers.explain.explanation import Conclusion, Explanation, as_json
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.verdict import OUT_OF_TIME
from extender.kube.api import ObjectKey
from tests.kit.clusters import DRIVER, Object, claim, device_class, local_slice, node, pod, request, snapshot_of, solver

WORLD = (device_class(), node("a"), node("b"), local_slice("a"), claim("c"), pod("p", "c"))


def explained(*objects: Object, until: float) -> Explanation:
    """With a clock that stands still at 0."""
    snapshot = snapshot_of(*objects)
    explainer = Explainer(snapshot, Decider(solver(), None), lambda: None, until)
    return explainer.explain(snapshot.pods[ObjectKey("ns", "p")])


def test_nodes_that_were_not_looked_at_in_time_are_named() -> None:
    found = explained(*WORLD, until=-1.0)
    assert found.verdict is Conclusion.FITS_NOWHERE
    assert [(group.reason, group.nodes) for group in found.nodes] == [(OUT_OF_TIME.in_words(), ("a", "b"))]
    assert found.notes == ("there was not enough time to check every device and to try out changes",)


def test_changes_that_were_not_tried_in_time_are_no_proposals_and_the_text_says_so() -> None:
    snapshot = snapshot_of(*WORLD[:-2], claim("c", request(count=2)), WORLD[-1])
    decider = Decider(solver(), None)
    for seconds, tried in ((-1.0, False), (1.0, True)):
        explainer = Explainer(snapshot, decider, lambda: None, seconds=seconds)
        found = explainer.explain(snapshot.pods[ObjectKey("ns", "p")])
        assert (bool(found.proposals), found.all_tried, as_json(found)["allTried"]) == (tried, tried, tried)
        assert ("Not every change was tried" in str(found)) is not tried


def test_the_search_for_changes_is_limited_by_its_work_and_not_by_the_time_that_passes() -> None:
    snapshot = snapshot_of(*WORLD[:-2], claim("c", request(count=2)), WORLD[-1])
    slow, working = cast("Clock", count(step=100).__next__), cast("Clock", count().__next__)
    for clock, worked, tried in ((slow, WorkClock(), True), (lambda: 0.0, working, False)):
        decider = Decider(replace(solver(), clock=clock, limits=Limits(seconds=1e6)), None)
        found = Explainer(snapshot, decider, lambda: None, worked=worked).explain(snapshot.pods[ObjectKey("ns", "p")])
        assert (bool(found.proposals), found.all_tried) == (tried, tried)


def test_a_pod_whose_class_is_missing_is_told_so_without_proposals() -> None:
    found = explained(*WORLD[1:], until=-1.0)
    assert (found.verdict, found.cause, found.proposals) == (Conclusion.BLOCKED, "device class gpu does not exist", ())


@pytest.mark.parametrize("until", [5, 20, 50])
def test_a_selector_that_takes_long_ends_with_the_time(until: int) -> None:
    """The clock moves when somebody looks at it. The values differ, so that each device costs an evaluation."""
    clock = cast("Clock", count().__next__)
    long = f'lists.range(999).all(x, lists.range(5).all(y, x + y >= 0)) && device.attributes["{DRIVER}"].n == 0'
    slice_of_a = local_slice("a", 64)
    for number, device in enumerate(slice_of_a["spec"]["devices"]):
        device["attributes"] = {"n": {"int": number + 1}}
    asked = claim("c", request(selectors=(long,)))
    snapshot = snapshot_of(device_class(), node("a"), slice_of_a, asked, pod("p", "c"))
    explainer = Explainer(snapshot, Decider(replace(solver(), clock=clock), None), lambda: None, until)
    found = explainer.explain(snapshot.pods[ObjectKey("ns", "p")])
    assert found.notes == ("there was not enough time to check every device and to try out changes",)
    assert clock() < until + 10


def many_devices(number: int) -> tuple[Object, ...]:
    """A pod that no device suits, and a node with so many devices, of which each has another value."""
    slice_of_a = local_slice("a", number)
    for each, device in enumerate(slice_of_a["spec"]["devices"]):
        device["attributes"] = {"n": {"int": each}}
    asked = claim("c", request(selectors=("device.driver == 'nobody.example.com'",)))
    return device_class(), node("a"), slice_of_a, asked, pod("p", "c")


def calls_for(number: int) -> int:
    """How many functions an explanation of a pod beside so many devices calls."""
    snapshot, calls = snapshot_of(*many_devices(number)), 0

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        Explainer(snapshot, Decider(solver(), None), lambda: None).explain(snapshot.pods[ObjectKey("ns", "p")])
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_of_an_explanation_grows_no_faster_than_the_number_of_devices() -> None:
    calls_for(16)  # what is read once
    assert calls_for(128) < 2.5 * calls_for(64)


def test_within_a_large_pool_an_explanation_lets_others_go_on() -> None:
    snapshot, pauses = snapshot_of(*many_devices(1280)), list[None]()
    explainer = Explainer(snapshot, Decider(solver(), None), lambda: pauses.append(None))
    explainer.explain(snapshot.pods[ObjectKey("ns", "p")])
    assert len(pauses) > 2 * 1280 / 64  # the devices are judged, and then looked at for proposals


def test_with_time_there_is_an_answer() -> None:
    assert explained(*WORLD, until=1.0).verdict is Conclusion.FITS
