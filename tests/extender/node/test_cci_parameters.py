"""What parameters of a claim for CPUs say to the node part."""

from typing import Any

import pytest

from extender.node.compute import Wishes, read_wishes
from extender.node.driver import AllocatedClaim, AllocatedDevice, DriverParameters, PrepareError
from extender.node.plugin import allocated_claim
from extender.node.topology import Topology
from tests.extender.cluster.test_compute_claims import ALONE, PAIRS, parameters
from tests.extender.node.cci_scenes import EIGHT
from tests.extender.node.test_node_plugin import claim as claim_object
from tests.extender.node.test_node_plugin import opaque, result

ONE, TWO = "one.example.com", "two.example.com"


def wishes(*given: Any, devices: dict[str, str] | None = None, machine: Topology = EIGHT) -> Wishes:
    """``given``: parameters of classes before those of the claim. ``devices``: the request of each device."""
    entries = tuple(each if isinstance(each, DriverParameters) else DriverParameters((), each) for each in given)
    found = tuple(AllocatedDevice(request, "n", name) for name, request in (devices or {"cpu-1": "cpus"}).items())
    claim = AllocatedClaim("ns", "a", "uid-a", found, entries)
    return read_wishes(claim, {f"cpu-{each.number}": each for each in machine.cpus})


def driven(name: str, *requests: str) -> DriverParameters:
    return DriverParameters(requests, {"cci driver": name})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), ""),
        ((driven(ONE),), ONE),
        ((driven(ONE), driven(TWO)), TWO),
        ((driven(ONE, "other"),), ""),
        ((driven(ONE, "cpus"),), ONE),
        (({**parameters("1"), "cci driver": ONE},), ONE),
    ],
)
def test_the_last_parameters_that_name_a_driver_for_the_request_count(given: tuple[Any, ...], expected: str) -> None:
    assert wishes(*given) == Wishes(expected)


def test_parameters_of_the_claim_count_before_those_of_its_class() -> None:
    config = (
        opaque({"cci driver": ONE}, driver="dra.cpu"),
        opaque({"cci driver": TWO}, "gpu", source="FromClass", driver="dra.cpu"),
    )
    claim = allocated_claim(claim_object("a", result("cpu-1", driver="dra.cpu"), config=config), "dra.cpu")
    assert read_wishes(claim, {}).driver == ONE


PAIR = {"cpu-1": "cores-0-0/whole", "cpu-5": "cores-0-0/whole", "cpu-2": "cores-0-1/whole", "cpu-6": "cores-0-1/whole"}


@pytest.mark.parametrize(
    ("attribute", "devices", "idle"),
    [
        pytest.param(ALONE, PAIR, {5, 6}, id="a core alone: its sibling has nothing to do"),
        pytest.param(PAIRS, PAIR, set(), id="pairs: both run"),
        pytest.param(ALONE, {"cpu-1": "cores-0-0/single", "cpu-2": "cores-0-1/single"}, set(), id="without siblings"),
        pytest.param(ALONE, {"cpu-1": "mine", "cpu-5": "mine"}, set(), id="a request of the user's own"),
    ],
)
def test_a_core_without_its_sibling_keeps_one_cpu(attribute: str, devices: dict[str, str], idle: set[int]) -> None:
    assert wishes(parameters("2", attribute), devices=devices).idle == idle


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (({"cci drivr": ONE},), r"claim ns/a: parameters\[0\]\.cci drivr: unknown field.*cci driver"),
        (({}, {"cci driver": "A_B"}), r"claim ns/a: parameters\[1\]\.cci driver: .*A_B"),
        (({"cci driver": 5},), r"claim ns/a: parameters\[0\]\.cci driver: 5 is not a string"),
        (({"cores": ["x"]},), r"claim ns/a: parameters\[0\]\.cores\[0\]: .* is neither a number of cores"),
    ],
)
def test_wrong_parameters_are_refused_with_their_field(given: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(PrepareError, match=problem):
        wishes(*given)


def test_a_claim_has_one_driver() -> None:
    with pytest.raises(PrepareError, match=r"requests have different CCI drivers \(none, one\.example\.com\)"):
        wishes(driven(ONE, "a"), devices={"cpu-1": "a", "cpu-2": "b"})
