"""What claims hold, in parts of devices, by namespace, class, model and driver."""

from collections import Counter

import pytest

from extender.answers.usage.holdings import UNIT, Holding, Holdings
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, SLICES
from tests.kit.clusters import DRIVER, GPU, Cluster, Object, claim, local_slice, network_slice, node, request

H100 = {"model": {"string": "h100"}}


class Scene:
    """A cluster, and what is held and published of it."""

    def __init__(self, *objects: Object) -> None:
        self.cluster = Cluster.of(GPU, node("a"), *objects)
        self.held: Counter[tuple[str, str, str]] = Counter()
        self.published: Counter[str] = Counter()
        self._holdings = Holdings(self.cluster.state, self._holds, self._publishes)
        self.look()

    def look(self) -> None:
        self._holdings.at(self.cluster.state.snapshot)

    def load(self, *objects: Object) -> None:
        for each in objects:
            self.cluster.load(each)
        self.look()

    def _holds(self, holding: Holding, change: int) -> None:
        assert holding.driver == DRIVER
        self.held[holding.namespace, holding.device_class, holding.model] += change
        self.held = +self.held

    def _publishes(self, model: str, driver: str, change: int) -> None:
        assert driver == DRIVER
        self.published[model] += change
        self.published = +self.published


def partitions(*parts: tuple[str, str]) -> Object:
    """A pool with a counter set of 80 Gi, and devices that draw on it."""
    found = local_slice("a")
    devices = [{"name": name, "attributes": H100, "consumesCounters": _drawing(memory)} for name, memory in parts]
    found["spec"] |= {"devices": devices}
    return found


def _drawing(memory: str) -> list[Object]:
    return [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]


def with_counters(found: Object) -> Object:
    """The slice with the counter set of its devices, in a pool of two slices."""
    sets = [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]
    counters = local_slice("a")
    counters["metadata"] = {**counters["metadata"], "name": "slice-counters"}
    counters["spec"] = {**counters["spec"], "sharedCounters": sets, "devices": None}
    counters["spec"].pop("devices")
    for each in (found, counters):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    return counters


def test_a_claim_holds_its_devices_until_it_is_gone() -> None:
    scene = Scene(local_slice("a", devices=4, attributes=H100))
    assert (scene.held, scene.published) == ({}, {"h100": 4 * UNIT})
    scene.load(claim("two", request(count=2), allocated=["a/gpu-0", "a/gpu-1"], at="a"))
    assert scene.held == {("ns", "gpu", "h100"): 2 * UNIT}


async def test_a_claim_that_is_deleted_holds_nothing() -> None:
    scene = Scene(local_slice("a", attributes=H100), claim("one", allocated=["a/gpu-0"], at="a"))
    await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "one"))
    scene.look()
    assert scene.held == {}


def test_what_is_held_of_a_device_that_is_not_published_has_no_model() -> None:
    assert Scene(claim("one", allocated=["a/gpu-0"], at="a")).held == {("ns", "gpu", ""): UNIT}


async def test_the_model_is_known_once_the_device_is_published_and_no_longer() -> None:
    scene = Scene(claim("one", allocated=["a/gpu-0"], at="a"))
    scene.load(local_slice("a", attributes=H100))
    assert (scene.held, scene.published) == ({("ns", "gpu", "h100"): UNIT}, {"h100": UNIT})
    await scene.cluster.api.delete(SLICES, ObjectKey("", "slice-a"))
    scene.look()
    assert (scene.held, scene.published) == ({("ns", "gpu", ""): UNIT}, {})


@pytest.mark.parametrize(
    ("attributes", "model"),
    [
        ({"model": {"string": "h100"}, "productName": {"string": "H100 PCIe"}}, "h100"),
        ({"productName": {"string": "H100 PCIe"}}, "H100 PCIe"),
        ({"model": {"int": 100}}, ""),
        ({}, ""),
    ],
)
def test_the_model_is_what_the_driver_calls_so(attributes: Object, model: str) -> None:
    assert Scene(local_slice("a", attributes=attributes)).published == {model: UNIT}


def test_a_partition_counts_as_much_as_it_draws_of_its_hardware() -> None:
    devices = partitions(("whole", "80Gi"), ("half", "40Gi"), ("quarter", "20Gi"))
    scene = Scene(with_counters(devices), devices)
    assert scene.published == {"h100": UNIT}
    scene.load(claim("half", allocated=["a/half"], at="a"), claim("quarter", allocated=["a/quarter"], at="a"))
    assert scene.held == {("ns", "gpu", "h100"): 3 * UNIT // 4}


def test_hardware_of_which_only_partitions_are_published_counts_as_one_device() -> None:
    devices = partitions(("half-0", "40Gi"), ("half-1", "40Gi"))
    assert Scene(with_counters(devices), devices).published == {"h100": UNIT}


def test_a_share_counts_as_much_as_it_takes_of_a_capacity() -> None:
    shared = network_slice(
        "net", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}, "cores": {"value": "10"}}
    )
    taking = claim("share", allocated=["net/gpu-0"])
    taking["status"]["allocation"]["devices"]["results"][0] |= {
        "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
        "consumedCapacity": {"memory": "20Gi", "cores": "1"},
    }
    assert Scene(shared, taking).held == {("ns", "gpu", ""): UNIT // 4}


def test_administrative_access_takes_nothing() -> None:
    watching = claim("watch", allocated=["a/gpu-0"], at="a")
    watching["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert Scene(local_slice("a"), watching).held == {}


def test_each_alternative_of_a_request_counts_for_its_own_class() -> None:
    ways = [
        {"name": name, "deviceClassName": name, "allocationMode": "ExactCount", "count": 1} for name in ("big", "gpu")
    ]
    first = claim("one", {"name": "any", "firstAvailable": ways}, allocated=["a/gpu-0"], at="a")
    first["status"]["allocation"]["devices"]["results"][0]["request"] = "any/gpu"
    assert Scene(local_slice("a"), first).held == {("ns", "gpu", ""): UNIT}
