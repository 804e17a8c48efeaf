"""Specs of claims: read once for all claims that say the same."""

from typing import Any

import pytest

from allocator import InvalidObjectError, Problem, parse_claim
from allocator.model.json import read_claim_spec
from allocator.tools import Fields
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import SpecCache
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS
from tests.kit.clusters import claim, request

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
