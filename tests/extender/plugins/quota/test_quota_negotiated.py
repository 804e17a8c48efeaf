"""DeviceQuotas on what controllers allocate: licenses count as they are asked for, whatever the controller returns."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from allocator import AllocationResult, DeviceId
from extender.kube.api import ObjectKey
from extender.kube.resources import DEVICE_QUOTAS
from extender.plugins.negotiation.protocol import ALLOCATE, DEALLOCATE, UNSUITABLE_NODES
from tests.extender.plugins.negotiation.scenes import LICENSE, Scene, TimedScene, negotiated_class, pods
from tests.kit.clusters import DRIVER, GPU, Object, local_slice, node, request
from tests.kit.controllers import Licenses
from tests.kit.objects.quotas import quota
from tests.kit.virtualtime import in_virtual_time

SEATS: Object = {"name": "seats", "deviceClassName": "license", "devices": 2}
OVER = "device quota gold: limit seats allows 2 devices"
NAMES = ("p0", "p1", "p2", "p3", "p4")


@dataclass
class Seats(Licenses):
    """A controller whose allocations name a device each, in the pool of node n."""

    numbers: Iterator[int] = field(default_factory=count)

    def _result(self, request: str, node: str) -> AllocationResult:
        self.device = DeviceId(DRIVER, "n", f"gpu-{next(self.numbers)}")
        return super()._result(request, node)


async def bound(scene: Scene, name: str) -> bool:
    """Whether filter and bind let a pod run."""
    return bool((await scene.filter(name)).passed) and await scene.bind(name) == ""


@pytest.mark.parametrize("controller", [Licenses, Seats])
@in_virtual_time
async def test_limit_on_licenses_holds_whether_the_controller_returns_results_or_not(
    controller: type[Licenses],
) -> None:
    scene = Scene(*pods(*NAMES), quota(SEATS), licenses=controller(left=10))
    assert [await bound(scene, name) for name in NAMES] == [True, True, False, False, False]
    assert await scene.reasons("p4") == [OVER]
    assert len(scene.licenses.held) == 2
    assert scene.licenses.asked(DEALLOCATE) == []
    await scene.end("p0")
    await scene.tick()
    await scene.tick()
    assert await scene.woken("p2")
    scene.seconds += 2.0
    assert await bound(scene, "p2")
    assert not await bound(scene, "p3")


@in_virtual_time
async def test_claim_that_asks_for_more_licenses_than_the_limit_is_refused_before_its_controller_is_asked() -> None:
    scene = Scene(*pods("p", requests=(request("license", device_class="license", count=3),)), quota(SEATS))
    assert await scene.reasons() == [OVER]
    error = "device quota gold: limit seats allows 2 devices: 0 of 2 in use, 3 more needed"
    assert await scene.bind() == error
    assert scene.licenses.asked(ALLOCATE) == []


@in_virtual_time
async def test_binds_at_the_same_time_take_no_more_than_the_limit() -> None:
    scene = Scene(*pods(*NAMES), quota(SEATS), licenses=Licenses(left=10))
    for name in NAMES:
        assert await scene.reasons(name) == []
    errors = await asyncio.gather(*(scene.bind(name) for name in NAMES))
    assert [not each for each in errors].count(True) == 2
    assert len(scene.licenses.asked(ALLOCATE)) == 2


@in_virtual_time
async def test_devices_of_ours_and_licenses_of_one_claim_count_each_in_their_limit() -> None:
    gpus: Object = {"name": "gpu", "deviceClassName": "gpu", "devices": 1}
    both = (LICENSE, request("gpu"))
    scene = Scene(*pods("p", "q", requests=both), quota(SEATS, gpus), licenses=Licenses(left=10))
    assert await bound(scene, "p")
    assert await scene.reasons("q") == ["device quota gold: limit gpu allows 1 device"]
    assert await scene.bind("q", "m") != ""
    assert len(scene.licenses.asked(ALLOCATE)) == 1


@in_virtual_time
async def test_pods_that_wait_for_the_quota_cause_no_allocations_and_releases() -> None:
    """The limit selects by attributes: only what the controller returns tells whether it counts."""
    expression = f'device.driver == "{DRIVER}"'
    selects: Object = {"name": "seats", "selectors": [{"cel": {"expression": expression}}], "devices": 2}
    world = (GPU, negotiated_class(), node("n"), node("m"), local_slice("n", 20))
    scene = TimedScene(*pods(*NAMES), quota(selects), licenses=Seats(left=10), world=world)
    for _ in range(12):
        for name in NAMES:
            if not scene.cluster.state.snapshot.pods[ObjectKey("ns", name)].node_name:
                await bound(scene, name)
        await scene.turns(5.0)
    assert len(scene.licenses.held) == 2
    assert len(scene.licenses.asked(ALLOCATE)) <= len(NAMES)
    assert len(scene.licenses.asked(DEALLOCATE)) <= 3


@in_virtual_time
async def test_what_was_allocated_before_the_quota_counts() -> None:
    scene = Scene(*pods("p", "q", "r"), licenses=Licenses(left=10))
    assert await bound(scene, "p")
    assert await bound(scene, "q")
    await scene.cluster.api.create(DEVICE_QUOTAS, quota(SEATS))
    assert await scene.reasons("r") == [OVER]
    assert len(scene.licenses.asked(UNSUITABLE_NODES)) <= 3
