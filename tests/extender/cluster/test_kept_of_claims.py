"""What is kept of claims, templates and pods: what decisions need, however much their authors write into metadata."""

import tracemalloc
from typing import Any

import pytest

from allocator import ClaimTemplate
from allocator.model.optional import OPTIONAL_REQUESTS, optional_problem
from extender.cluster.cluster_state import ClusterState
from extender.cluster.controller_marks import Mark
from extender.cluster.objects.claims import (
    ALLOCATION_MODE,
    MARK,
    MARK_FINALIZER,
    READ,
    SPECIAL,
    mode_problem,
    parse_claim_object,
)
from extender.cluster.objects.pods import parse_pod
from extender.kube.api import RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, TEMPLATES, Resource
from tests.extender.cluster.writes.scenes import ALLOCATE, PROTECT, Scene
from tests.extender.cluster.writes.scenes import READ as READ_CALL
from tests.kit.clusters import claim, claim_template, pod

LONG = "x" * 255_000
OTHERS: dict[str, dict[str, Any]] = {
    "an annotation": {"annotations": {"example.com/notes": LONG}},
    "many annotations": {"annotations": {f"example.com/{number}": "y" for number in range(10_000)}},
    "labels": {"labels": {f"example.com/{number}": "z" * 63 for number in range(3_000)}},
    "finalizers": {"finalizers": [f"example.com/{number}" for number in range(10_000)]},
    "owners": {"ownerReferences": [{"kind": "ConfigMap", "name": f"o-{n}", "uid": f"{n}"} for n in range(3_000)]},
    "managed fields": {"managedFields": [{"manager": LONG}]},
}


@pytest.mark.parametrize("metadata", OTHERS.values(), ids=OTHERS)
def test_what_nothing_is_decided_from_is_not_kept(metadata: dict[str, Any]) -> None:
    plain, kept = parse_claim_object(claim("gpu")), parse_claim_object(claim("gpu", metadata=metadata))
    assert len(kept.raw) < 2_000
    assert kept.claim == plain.claim


def test_short_labels_and_annotations_of_others_are_kept_so_that_most_claims_are_whole() -> None:
    kept = parse_claim_object(claim("gpu", metadata={"labels": {"a": "b"}, "annotations": {"example.com/c": "d"}}))
    assert kept.is_whole
    assert b'"example.com/c":"d"' in kept.raw


def test_what_decisions_need_is_kept_of_a_claim_with_long_metadata() -> None:
    owners = [{"kind": "ConfigMap", "name": f"o-{n}", "uid": f"{n}"} for n in range(100)]
    owners[50] |= {"kind": "Pod", "uid": "uid-p", "controller": True}  # type: ignore[dict-item]
    metadata = {
        "annotations": {"example.com/notes": LONG, SPECIAL: "true", **dict.fromkeys(READ - {SPECIAL}, "r")},
        "finalizers": [*(f"example.com/{n}" for n in range(100)), FINALIZER, MARK_FINALIZER],
        "ownerReferences": owners,
    }
    kept = parse_claim_object(claim("gpu", metadata=metadata))
    assert not kept.is_whole
    assert kept.claim.annotations.keys() == READ
    assert kept.claim.finalizers == (FINALIZER, MARK_FINALIZER)
    assert kept.special_of == "uid-p"


def test_an_annotation_that_is_too_long_is_a_mistake_that_names_it() -> None:
    long = {ALLOCATION_MODE: LONG, OPTIONAL_REQUESTS: f"gpu,{LONG}", MARK: LONG}
    kept = parse_claim_object(claim("gpu", metadata={"annotations": long}))
    assert len(kept.raw) < 40_000
    assert ALLOCATION_MODE in mode_problem(kept.claim.annotations)
    assert OPTIONAL_REQUESTS in optional_problem(kept.claim.spec)
    assert Mark.of(kept.claim) == Mark("", 0, ""), "as a mark that somebody has changed"


def _many(number: int, make: Any) -> list[RawObject]:
    return [make(f"c-{index}", {"example.com/notes": f"{index} {LONG}"}) for index in range(number)]


def _claim(name: str, annotations: dict[str, str]) -> RawObject:
    return claim(name, metadata={"annotations": annotations})


def _template(name: str, annotations: dict[str, str]) -> RawObject:
    found = claim_template(name)
    found["spec"]["metadata"] = {"annotations": annotations, "labels": {"example.com/notes": LONG}}
    return found


@pytest.mark.parametrize(("resource", "make"), [(CLAIMS, _claim), (TEMPLATES, _template)], ids=["claims", "templates"])
def test_annotations_of_255_kilobytes_take_no_memory(resource: Resource, make: Any) -> None:
    state, objects = ClusterState(), _many(100, make)
    tracemalloc.start()
    try:
        assert state.replace(resource, objects, 1)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000, "they are 25 MB"
    finally:
        tracemalloc.stop()
    assert state.count(resource) == 100


def test_of_a_template_the_spec_of_its_claims_is_kept() -> None:
    state, plain = ClusterState(), ClusterState()
    state.replace(TEMPLATES, [_template("c", {"example.com/notes": LONG})], 1)
    plain.replace(TEMPLATES, [claim_template("c")], 1)
    [one], [other] = (each.snapshot.objects(ClaimTemplate).values() for each in (state, plain))
    assert one == other


def test_of_very_many_labels_of_a_pod_some_are_kept() -> None:
    labels = {f"example.com/{number}": "z" * 63 for number in range(3_000)}
    kept = parse_pod(pod("p", "gpu") | {"metadata": {**pod("p", "gpu")["metadata"], "labels": labels}}).labels
    assert 100 < len(kept) < 300
    assert kept.items() <= labels.items()


# --- writes --------------------------------------------------------------------------------------------------

NOTES: dict[str, Any] = {"annotations": {"example.com/notes": LONG}, "labels": {"a": "b"}}


def test_what_is_not_kept_of_a_claim_survives_a_bind_and_its_undo() -> None:
    scene = Scene(claim("gpu", metadata=NOTES))
    scene.reserve()
    assert scene.transport.calls == [READ_CALL, PROTECT, ALLOCATE]
    assert (scene.device, scene.users) == ("gpu-0", ["p"])
    scene.release()
    assert scene.device is None
    assert scene.claim["metadata"]["annotations"] == NOTES["annotations"]
    assert scene.claim["metadata"]["labels"] == NOTES["labels"]


def test_a_claim_that_is_not_whole_and_has_changed_is_written_as_it_is_now() -> None:
    scene = Scene(claim("gpu", metadata=NOTES))
    scene.transport.script(PROTECT, scene.by_others({"metadata": {"labels": {"a": "c"}}}))
    scene.reserve()
    assert (scene.device, scene.users) == ("gpu-0", ["p"])
    assert scene.claim["metadata"]["labels"] == {"a": "c"}
    assert scene.claim["metadata"]["annotations"] == NOTES["annotations"]
