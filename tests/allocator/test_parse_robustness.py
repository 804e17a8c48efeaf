"""Whatever an object holds: it is a value or an InvalidObjectError, and the rules find problems, never a traceback."""

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import (
    InvalidObjectError,
    parse_claim,
    parse_claim_template,
    parse_device_class,
    parse_node,
    parse_slice,
    parse_taint_rule,
)
from allocator.model.validation import validate
from allocator.tools.printable import shown

Parse = Callable[[Mapping[str, object]], object]

SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}
DEVICE = {
    "name": "d",
    "attributes": {"a": {"string": "x"}, "b": {"ints": [1, 2]}, "c": {"version": "1.0.0"}},
    "capacity": {
        "m": {"value": "1Gi", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "2", "step": "1"}}},
        "n": {"value": "2", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}},
    },
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}, "compatibilityGroups": ["g"]}],
    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2025-01-01T00:00:00Z"}],
    "nodeSelector": SELECTOR,
    "allowMultipleAllocations": True,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
}
WAY = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "true"}}],
    "allocationMode": "ExactCount",
    "count": 1,
    "adminAccess": False,
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "None", "tolerationSeconds": 1}],
    "capacity": {"requests": {"m": "1"}},
    "derivedAttributes": [{"name": "x/y", "expression": "1"}],
}
CONFIG = {"requests": ["r"], "opaque": {"driver": "x", "parameters": {"a": 1}}}
CLAIM_SPEC = {
    "devices": {
        "requests": [
            {"name": "r", "exactly": WAY, **WAY},
            {"name": "s", "firstAvailable": [{"name": "t", **WAY}]},
        ],
        "constraints": [{"requests": ["r"], "matchAttribute": "x/y"}],
        "config": [CONFIG],
    },
}
RESULT = {
    "request": "r",
    "driver": "x",
    "pool": "p",
    "device": "d",
    "shareID": "u",
    "consumedCapacity": {"m": "1"},
    "tolerations": WAY["tolerations"],
}
STATUS = {
    "allocation": {
        "devices": {"results": [RESULT], "config": [{"source": "FromClaim", **CONFIG}]},
        "nodeSelector": SELECTOR,
    },
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
}
OBJECTS: dict[str, tuple[Parse, dict[str, Any]]] = {
    "ResourceSlice": (
        parse_slice,
        {
            "spec": {
                "driver": "x",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "perDeviceNodeSelection": True,
                "devices": [DEVICE, {"name": "e", "basic": DEVICE}],
                "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}],
                "skipNodeOperations": ["*"],
            },
        },
    ),
    "ResourceClaim": (parse_claim, {"spec": CLAIM_SPEC, "status": STATUS}),
    "ResourceClaimTemplate": (parse_claim_template, {"spec": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM_SPEC}}),
    "DeviceClass": (
        parse_device_class,
        {"spec": {"selectors": WAY["selectors"], "config": [CONFIG], "extendedResourceName": "x.y/z"}},
    ),
    "DeviceTaintRule": (
        parse_taint_rule,
        {"spec": {"deviceSelector": {"driver": "x"}, "taint": {"key": "k", "effect": "None"}}},
    ),
    "Node": (parse_node, {"status": {"declaredFeatures": ["a"]}}),
}

texts = st.text(max_size=5) | st.sampled_from(["1Gi", "-1", "0", "a/b", "All", "Exists", "metadata.name"])
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a JSON value, the top left out."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in inner for place in [(*path, key), *places(each, (*path, key))]]


def put(value: Any, path: tuple[str | int, ...], new: object) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@pytest.mark.parametrize("kind", OBJECTS)
@given(data=st.data())
def test_any_json_is_a_value_or_problems(kind: str, data: st.DataObject) -> None:
    parse, parts = OBJECTS[kind]
    version = "v1" if kind == "Node" else f"resource.k8s.io/{data.draw(st.sampled_from(['v1', 'v1beta2', 'v1beta1']))}"
    metadata = {"name": "x", "namespace": "y", "annotations": {"a": "b"}, "ownerReferences": [{"controller": True}]}
    obj = copy.deepcopy({"apiVersion": version, "kind": kind, "metadata": metadata, **parts})
    for _ in range(data.draw(st.integers(0, 3))):
        put(obj, data.draw(st.sampled_from(places(obj))), data.draw(junk))
    before = copy.deepcopy(obj)
    with suppress(InvalidObjectError):
        parse(obj)
    assert all(problem.message for problem in validate(obj))
    assert obj == before


class Unlooked:
    def __str__(self) -> str:
        raise AssertionError("looked at")


@pytest.mark.parametrize("beginning", ["x" * 65, "\x1b" * 65, [""] * 20, [[[]] * 16]], ids=type)
def test_what_comes_after_the_cut_of_a_value_is_not_looked_at(beginning: object) -> None:
    text = shown([beginning, Unlooked()])
    assert len(text) == 67
    assert text.isprintable()
    assert text.endswith("...")


def test_a_value_of_any_depth_is_shown() -> None:
    value: list[object] = []
    for _ in range(10_000):
        value = [value]
    assert shown(value) == "[" * 64 + "..."
