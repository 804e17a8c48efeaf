"""An explanation has a time of its own, and then says what is known."""

from extender.decisions.evaluate import Decider
from extender.decisions.verdict import OUT_OF_TIME
from extender.explain.document import as_json
from extender.explain.explaining import Explainer
from extender.explain.explanation import Explanation, Verdict
from extender.explain.text import as_text
from extender.kube.api import ObjectKey
from tests.kit.clusters import Object, claim, device_class, local_slice, node, pod, request, snapshot_of, solver

WORLD = (device_class(), node("a"), node("b"), local_slice("a"), claim("c"), pod("p", "c"))


def explained(*objects: Object, until: float) -> Explanation:
    """With a clock that stands still at 0."""
    snapshot = snapshot_of(*objects)
    explainer = Explainer(snapshot, Decider(solver(), lambda _: None), lambda: None, until)
    return explainer.explain(snapshot.pods[ObjectKey("ns", "p")])


def test_nodes_that_were_not_looked_at_in_time_are_named() -> None:
    found = explained(*WORLD, until=-1.0)
    assert found.verdict is Verdict.FITS_NOWHERE
    assert [(group.reason, group.nodes) for group in found.nodes] == [(OUT_OF_TIME, ("a", "b"))]
    assert found.notes == ("there was not enough time to check every device and to try out changes",)


def test_changes_that_were_not_tried_in_time_are_no_proposals_and_the_text_says_so() -> None:
    snapshot = snapshot_of(*WORLD[:-2], claim("c", request(count=2)), WORLD[-1])
    decider = Decider(solver(), lambda _: None)
    for seconds, tried in ((-1.0, False), (1.0, True)):
        explainer = Explainer(snapshot, decider, lambda: None, seconds=seconds)
        found = explainer.explain(snapshot.pods[ObjectKey("ns", "p")])
        assert (bool(found.proposals), found.all_tried, as_json(found)["allTried"]) == (tried, tried, tried)
        assert ("Not every change was tried" in as_text(found)) is not tried


def test_a_pod_whose_class_is_missing_is_told_so_without_proposals() -> None:
    found = explained(*WORLD[1:], until=-1.0)
    assert (found.verdict, found.cause, found.proposals) == (Verdict.BLOCKED, "device class gpu does not exist", ())


def test_with_time_there_is_an_answer() -> None:
    assert explained(*WORLD, until=1.0).verdict is Verdict.FITS
