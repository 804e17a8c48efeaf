"""What is read of a pod without devices is what the full reading would say."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import InvalidObjectError, Problem, parse_claim
from allocator.model.json import read_claim_spec
from allocator.tools import Fields
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import SpecCache
from extender.cluster.objects.pods import Pod, parse_counted_pod, parse_pod, parse_waiting_pod
from extender.cluster.resources import cpu_request
from extender.kube.api import ObjectKey, RawObject
from extender.kube.plain_pods import PlainPod, plain_pod, plain_pod_of_event
from extender.kube.resources import CLAIMS
from tests.kit.clusters import Object, claim, pod, request

AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu", "requests.cpu", "kubernetes.io/batch"]),
    st.sampled_from(["1", "250m", 2, "no amount", "1e3", -1]),
    max_size=3,
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b"])},
        optional={"resources": RESOURCES, "restartPolicy": st.just("Always")},
    ),
    max_size=3,
)
SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "initContainers": CONTAINERS,
        "nodeName": st.sampled_from(["", "n"]),
        "overhead": AMOUNTS,
        "resources": RESOURCES,
        "resourceClaims": st.just([{"name": "gpu", "resourceClaimName": "mine"}]),
        "schedulingGroup": st.just({"podGroupName": "g"}),
    },
)
ANNOTATIONS = st.dictionaries(st.sampled_from(["dra-extender.dev/group", "note"]), st.just("g"))
PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])


def counted(found: Pod) -> tuple[object, ...]:
    return found.key, found.node_name, found.cpu, found.is_finished, found.needs_devices, found.gang_key


def waiting(found: Pod) -> tuple[object, ...]:
    return *counted(found), found.uid, found.deleting


def outcome(read: Callable[[Object], Pod], raw: Object, of: Callable[[Pod], object]) -> object:
    """What a reading has of a pod, or why it refuses the pod."""
    try:
        return of(read(raw))
    except InvalidObjectError as error:
        return error.summary


@given(SPECS, ANNOTATIONS, PHASES)
def test_what_counts_of_a_pod_is_what_the_full_reading_says(spec: Object, annotations: Object, phase: str) -> None:
    made = pod("p")
    metadata = {**made["metadata"], "annotations": annotations}
    read = {**made, "metadata": metadata, "spec": spec, "status": {"phase": phase}}
    try:
        expected = parse_pod(read)
    except InvalidObjectError:
        for parse in (parse_counted_pod, parse_waiting_pod):
            with pytest.raises(InvalidObjectError):
                parse(read)
    else:
        assert counted(parse_counted_pod(read)) == counted(expected)
        assert waiting(parse_waiting_pod(read)) == waiting(expected)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"resourceClaims": [{"name": "gpu"}]}, id="a claim without a source"),
        pytest.param({"containers": [7]}, id="a container that is a number"),
        pytest.param({"containers": [{"resources": 7}]}, id="resources that are a number"),
        pytest.param({"containers": [{"resources": {"limits": 7}}]}, id="limits that are a number"),
        pytest.param({"containers": 7}, id="containers that are a number"),
        pytest.param({"nodeName": 7}, id="a node that is a number"),
    ],
)
def test_pod_with_a_wrong_type_is_refused_as_by_the_full_reading(spec: Object) -> None:
    with pytest.raises(InvalidObjectError) as expected:
        parse_pod({**pod("p"), "spec": spec})
    with pytest.raises(InvalidObjectError) as refused:
        parse_counted_pod({**pod("p"), "spec": spec})
    assert refused.value.summary == expected.value.summary


@pytest.mark.parametrize("field", ["metadata", "spec"])
def test_pod_without_metadata_or_spec_is_read_in_full(field: str) -> None:
    odd = {**pod("p"), field: None}
    assert outcome(parse_counted_pod, odd, counted) == outcome(parse_pod, odd, counted)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"name": "p", "uid": "u"}, id="no namespace"),
        pytest.param({"name": "p", "namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"}, id="being deleted"),
        pytest.param({"namespace": "ns", "uid": "u"}, id="no name"),
        pytest.param({"name": "p", "uid": 7}, id="a uid that is a number"),
        pytest.param({"name": 7}, id="a name that is a number"),
    ],
)
def test_pod_that_a_scheduler_asks_about_has_the_identity_of_the_full_reading(metadata: Object) -> None:
    asked = {**pod("p"), "metadata": metadata}
    assert outcome(parse_waiting_pod, asked, waiting) == outcome(parse_pod, asked, waiting)


# What is read of the JSON of a pod without devices, which is not decoded.


MISLEADING = st.dictionaries(
    st.sampled_from(["nodeName", "phase", "spec", "resourceClaims", "requests", "name", '"nodeName":"n"']),
    st.recursive(
        st.sampled_from(["n", "Failed", None, 7, '{"spec":{"resourceClaims":[{}]}}', '"', "\\"]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["spec", "status"]), inner),
        max_leaves=4,
    ),
    max_size=3,
)
"""Fields by the names of fields that count, where they do not count."""


@given(SPECS, ANNOTATIONS, PHASES, MISLEADING, st.booleans())
def test_what_is_read_of_the_json_of_a_pod_is_what_the_full_reading_says(
    spec: Object, annotations: Object, phase: str, misleading: Object, indented: bool
) -> None:
    made = pod("p")
    metadata = {"labels": misleading, **made["metadata"], "annotations": annotations, "resourceVersion": "7"}
    read = {
        "kind": "Pod",
        "metadata": metadata | {"managedFields": [misleading]},
        "spec": {"volumes": [misleading], **spec, "affinity": misleading},
        "status": {"containerStatuses": [misleading], "phase": phase},
    }
    text = orjson.dumps(read, option=orjson.OPT_INDENT_2 if indented else None)
    found = plain_pod(text)
    if found is None:
        assert not is_usual(spec)
    else:
        expected = outcome(parse_counted_pod, read, by_event)
        assert (found.key, found.node_name, found.is_over, cpu_request(found.spec)) == expected
        assert found.revision == 7


def by_event(found: Pod) -> tuple[object, ...]:
    """What counts of a pod that uses no devices."""
    assert not found.needs_devices
    assert not found.pod_group
    return found.key, found.node_name, found.is_finished, found.cpu


def is_usual(spec: Object) -> bool:
    """Whether a pod uses no devices, and has amounts as an API server writes them."""
    each = [*spec["containers"], *spec.get("initContainers", ())]
    found = [amounts for container in each for amounts in container.get("resources", {}).values()]
    others = [spec.get("overhead", {}), *spec.get("resources", {}).values()]
    are_texts = all(isinstance(amount, str) for amounts in [*found, *others] for amount in amounts.values())
    names = {name for amounts in found for name in amounts}
    return are_texts and not any("/" in name for name in names) and not {"resourceClaims", "schedulingGroup"} & {*spec}


SOME: Object = {"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "7"}, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    ("kind", "phase", "is_over"),
    [("ADDED", "Running", False), ("MODIFIED", "Failed", True), ("DELETED", "Running", True)],
)
def test_an_event_of_a_pod_without_devices_says_whether_the_pod_is_over(kind: str, phase: str, is_over: bool) -> None:
    line = orjson.dumps({"type": kind, "object": SOME | {"status": {"phase": phase}}})
    assert plain_pod_of_event(line) == PlainPod(ObjectKey("ns", "p"), 7, "n", is_over, {"nodeName": "n"})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"17"}}}', id="bookmark"),
        pytest.param(b'{"type":"ERROR","object":{"code":410}}', id="error"),
        pytest.param(orjson.dumps({"type": "ADDED", "object": SOME})[:-1], id="cut"),
        pytest.param(orjson.dumps({"type": "ADDED", "object": SOME | {"status": 7}}), id="a status that is a number"),
        pytest.param(orjson.dumps({"type": "ADDED", "object": SOME | {"metadata": {"name": "p"}}}), id="no revision"),
        pytest.param(b'{"type":"ADDED","object":{"deep":' + b"[" * 10_000 + b"]" * 10_000 + b"}}", id="deep"),
    ],
)
def test_an_event_that_is_not_of_a_usual_pod_has_to_be_decoded(line: bytes) -> None:
    assert plain_pod_of_event(line) is None


# Specs of claims: read once for all claims that say the same.


V1, V1BETA1 = "resource.k8s.io/v1", "resource.k8s.io/v1beta1"


def spec(**more: Any) -> RawObject:
    return {"devices": {"requests": [request("gpu")], **more}}


def fields(raw: object) -> Fields:
    return Fields({"spec": raw}, "", []).child("spec")


def test_claims_that_say_the_same_share_their_spec() -> None:
    state = ClusterState()
    state.replace(CLAIMS, [claim("one"), claim("two"), claim("other", request("other"))], 1)
    one, two, other = (state.snapshot.claims[ObjectKey("ns", name)].claim.spec for name in ("one", "two", "other"))
    assert one is two
    assert other != one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((spec(), V1), (spec(config=[{"opaque": {"driver": "d"}}]), V1)),
        ((spec(), V1), (spec(), V1BETA1)),
        ((spec(config=[{"opaque": {"parameters": 1}}]), V1), (spec(config=[{"opaque": {"parameters": 1.0}}]), V1)),
        ((spec(config=[{"opaque": {"parameters": 1}}]), V1), (spec(config=[{"opaque": {"parameters": True}}]), V1)),
    ],
    ids=["more", "another version", "a number written otherwise", "another type"],
)
def test_what_differs_is_read_for_itself(one: tuple[RawObject, str], other: tuple[RawObject, str]) -> None:
    specs = SpecCache()
    for raw, version in (one, other, one):
        assert specs.read(fields(raw), version) == read_claim_spec(fields(raw), version)
    assert specs.read(fields(one[0]), one[1]) is not specs.read(fields(other[0]), other[1])


def test_long_specs_take_the_room_of_many_short_ones() -> None:
    specs = SpecCache(limit=10_000)
    raws = [spec(config=[{"opaque": {"driver": "d", "parameters": {"n": n, "text": "a" * 4000}}}]) for n in range(3)]
    first = specs.read(fields(raws[0]), V1)
    assert specs.read(fields(raws[0]), V1) is first
    for raw in raws[1:]:
        specs.read(fields(raw), V1)
    assert specs.read(fields(raws[0]), V1) is not first


@pytest.mark.parametrize(
    "wrong",
    [{"devices": {"requests": [{}]}}, {"devices": 1}, {"devices": {"requests": [{"name": 2**70}]}}, "text"],
    ids=["lacks a name", "wrong type", "a number that JSON has not", "no object"],
)
def test_what_is_wrong_is_told_each_time(wrong: object) -> None:
    specs, obj = SpecCache(), {**claim("gpu"), "spec": wrong}
    told: list[tuple[Problem, ...]] = []
    for _ in range(2):
        with pytest.raises(InvalidObjectError) as error:
            parse_claim(obj, specs.read)
        told.append(error.value.problems)
    assert told[0] == told[1]
    with pytest.raises(InvalidObjectError) as plain:
        parse_claim(obj)
    assert told[0] == plain.value.problems
