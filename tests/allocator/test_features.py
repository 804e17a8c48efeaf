"""Every feature can be switched off: claims that need it are errors, devices that need it are passed over."""

from dataclasses import fields, replace

import pytest

from allocator import GATES, Allocation, DeviceTaint, Features, InvalidClaimError, Request, with_gates
from allocator.model.claims import DerivedAttribute
from allocator.model.features import ALL_FEATURES, NO_FEATURES
from tests.allocator.worlds import DRIVER, World, alternative, claim, device, first_of, pool, q, want


def without(name: str) -> Features:
    return replace(ALL_FEATURES, **{name: False})


CLAIMS = [
    # feature, a request that needs it, the error
    ("prioritized_list", first_of("gpu", alternative("one")), "has subrequests, the feature DRAPrioritizedList is off"),
    ("admin_access", want("gpu", admin_access=True), "asks for admin access, the feature DRAAdminAccess is off"),
    (
        "consumable_capacity",
        want("gpu", capacity=(("memory", q("1")),)),
        "requests capacity, the feature DRAConsumableCapacity is off",
    ),
    ("consumable_capacity", want("gpu", capacity=()), "requests capacity, the feature DRAConsumableCapacity is off"),
    (
        "derived_attributes",
        want("gpu", derived_attributes=(DerivedAttribute(f"{DRIVER}/x", "1"),)),
        "has derived attributes, the feature DRADerivedAttributes is off",
    ),
]


@pytest.mark.parametrize(("feature", "request_", "message"), CLAIMS)
def test_a_claim_that_needs_a_feature_that_is_off_is_an_error(feature: str, request_: Request, message: str) -> None:
    devices = pool(device("gpu", capacity={"memory": "1"}))
    with pytest.raises(InvalidClaimError) as caught:
        World(devices, features=without(feature)).allocate(claim(request_))
    assert (caught.value.claim, caught.value.request, caught.value.problem) == ("default/claim", "gpu", message)
    assert World(devices).devices(claim(request_)) != []


class TestDevices:
    def test_partitions_are_passed_over(self) -> None:
        slices = pool(device("part", draws={"s": {"x": 1}}), device("plain"), counters={"s": {"x": 1}})
        world = World(slices, features=without("partitionable_devices"))
        assert world.devices(claim(want())) == [["plain"]]
        assert world.devices(claim(want("gpu", 2))) == "not enough free devices for request gpu"
        assert World(slices).devices(claim(want("gpu", 2))) == [["part", "plain"]]

    def test_partitions_of_unknown_counters_are_no_contradiction(self) -> None:
        slices = pool(device("part", draws={"s": {"x": 1}}), device("plain"))
        world = World(slices, features=without("partitionable_devices"))
        assert world.devices(claim(want("a"), want("b"))) == "not enough free devices for request b"

    def test_partitions_are_refused_while_their_feature_is_off(self) -> None:
        slices = pool(device("part", draws={"s": {"x": 1}}), counters={"s": {"x": 1}})
        world = World(slices, features=without("partitionable_devices"))
        assert world.devices(claim(want())) == "partitionable devices are off, request gpu needs them"

    def test_taints_are_ignored(self) -> None:
        slices = pool(device("sick", taints=(DeviceTaint("k", "NoSchedule"),)))
        assert World(slices, features=without("device_taints")).devices(claim(want())) == [["sick"]]

    def test_what_could_be_shared_is_taken_as_a_whole(self) -> None:
        slices = pool(device("gpu", capacity={"memory": "1"}, allow_multiple_allocations=True))
        world = World(slices, features=without("consumable_capacity"))
        answer = world.allocate(claim(want()))
        assert isinstance(answer, Allocation)
        (result,) = answer.results[0].results
        assert (result.share_id, result.consumed_capacity) == (None, None)
        assert world.devices(claim(want("a"), want("b"))) == "not enough free devices for request b"

    def test_compatibility_groups_hide_a_slice(self) -> None:
        grouped = device("gpu", draws={"s": {"x": 1}})
        (draw,) = grouped.consumes_counters
        slices = pool(
            replace(grouped, consumes_counters=(replace(draw, compatibility_groups=("g",)),)), counters={"s": {"x": 1}}
        )
        assert World(slices).devices(claim(want())) == [["gpu"]]
        world = World(slices, features=without("compatibility_groups"))
        assert world.devices(claim(want())) == "resource pool is not usable for request gpu"


def test_gates_have_kubernetes_names() -> None:
    assert set(GATES.values()) == {f.name for f in fields(Features)}
    assert with_gates(NO_FEATURES, dict.fromkeys(GATES, True)) == ALL_FEATURES
    assert with_gates(Features(), {"DRADeviceTaints": False}) == replace(Features(), device_taints=False)
    with pytest.raises(KeyError):
        with_gates(Features(), {"DRAUnheardOf": True})
