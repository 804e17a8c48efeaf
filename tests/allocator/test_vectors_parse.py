"""Every object that upstream's allocator was recorded with is read, and its results come back as they were."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from allocator import Quantity, allocation_to_json, parse_claim, parse_device_class, parse_node, parse_slice

EMPTY = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "c"}}
VECTORS = Path(__file__).parents[3] / "shared" / "vectors"
PARSERS: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    "claims": parse_claim,
    "deviceClasses": parse_device_class,
    "nodes": parse_node,
    "resourceSlices": parse_slice,
}

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="recorded vectors are not here")


def cases(name: str) -> Iterator[dict[str, Any]]:
    yield from json.loads((VECTORS / name).read_text())


def with_exact_amounts(value: object, key: str = "") -> object:
    """JSON in which amounts compare by value."""
    if isinstance(value, dict):
        if key == "consumedCapacity":
            return {name: Quantity.parse(amount) for name, amount in value.items()}
        return {name: with_exact_amounts(each, name) for name, each in value.items()}
    return [with_exact_amounts(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["allocator.json", "defects.json", "fuzz.json"])
def test_recorded_objects_are_read(name: str) -> None:
    for case in cases(name):
        for part, parse in PARSERS.items():
            for obj in case.get(part) or []:
                assert str(parse(obj))


@pytest.mark.parametrize("name", ["allocator.json", "defects.json", "fuzz.json"])
def test_recorded_results_are_written_as_they_were(name: str) -> None:
    for case in cases(name):
        for run in case["runs"]:
            for result in run.get("results") or []:
                claim = parse_claim({**EMPTY, "status": {"allocation": result}})
                assert claim.allocation is not None
                rendered = allocation_to_json(claim.allocation)
                assert with_exact_amounts(rendered) == with_exact_amounts(result), case["name"]


@pytest.mark.parametrize("name", ["allocator.json", "defects.json"])
def test_specs_mean_the_same_in_every_version(name: str) -> None:
    """v1beta1 has the fields of ``exactly`` in the request itself."""
    for case in cases(name):
        for claim in case["claims"]:
            spec = parse_claim(claim).spec
            devices = claim["spec"]["devices"]
            flat = [{**request, **request.get("exactly", {}), "exactly": None} for request in devices["requests"]]
            older = {**claim, "spec": {"devices": {**devices, "requests": flat}}}
            assert parse_claim({**claim, "apiVersion": "resource.k8s.io/v1beta2"}).spec == spec, case["name"]
            assert parse_claim({**older, "apiVersion": "resource.k8s.io/v1beta1"}).spec == spec, case["name"]
