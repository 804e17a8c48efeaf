"""Explanations of pods that have a node without their claims: whether these can be allocated there."""

from collections.abc import Sequence

import pytest

from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import Conclusion
from extender.kube.api import ObjectKey
from tests.kit.clusters import (
    GPU,
    Object,
    claim,
    device_class,
    local_slice,
    node,
    pinned,
    pod,
    request,
    snapshot_of,
    solver,
)

ROOM = (GPU, node("n"), local_slice("n"))

CASES: list[tuple[str, Sequence[Object], Object, tuple[str, ...]]] = [
    (
        "there is room",
        [claim("a")],
        pinned("p", "a"),
        ("its claims can be allocated there: a running dra-extender does that by itself",),
    ),
    (
        "the node is full",
        [claim("a"), claim("x", allocated=["n/gpu-0"])],
        pinned("p", "a"),
        ("its claims cannot be allocated there: no free device for request gpu",),
    ),
    (
        "the node does not exist",
        [claim("a")],
        pinned("p", "a", on="x"),
        ("its claims cannot be allocated: node not yet known",),
    ),
    (
        "a selector does not compile",
        [claim("a", request(selectors=["device.nonsense"]))],
        pinned("p", "a"),
        ("its claims cannot be allocated: ",),
    ),
    ("the pod has started", [claim("a")], pod("p", "a", on="n"), ()),
    (
        "another scheduler",
        [claim("a")],
        pinned("p", "a") | {"spec": pinned("p", "a")["spec"] | {"schedulerName": "other"}},
        ("no scheduler of ours is asked: schedulerName is other; write ours",),
    ),
]


def test_it_is_said_that_the_pod_starts_without_devices_for_extended_resources() -> None:
    offered = device_class(extended="example.com/gpu")
    asked = pinned("p", resources={"example.com/gpu": "1"})
    snapshot = snapshot_of(offered, node("n"), local_slice("n"), asked)
    found = Explainer.alone(snapshot, solver(), []).explain(snapshot.pods[ObjectKey("ns", "p")])
    (note,) = found.notes
    assert note.startswith("the pod has node n, and kubelet starts it without example.com/gpu: ")


@pytest.mark.parametrize(("objects", "asked", "notes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_it_is_said_whether_the_claims_can_be_allocated(
    objects: Sequence[Object], asked: Object, notes: tuple[str, ...]
) -> None:
    snapshot = snapshot_of(*ROOM, *objects, asked)
    schedulers = ["ours"] if "schedulerName" in asked["spec"] else []
    found = Explainer.alone(snapshot, solver(), schedulers).explain(snapshot.pods[ObjectKey("ns", "p")])
    assert found.verdict is Conclusion.BOUND_WITHOUT_CLAIMS
    assert len(found.notes) == len(notes)
    assert all(note.startswith(start) for note, start in zip(found.notes, notes, strict=True))
