"""Nobody is evicted for a pod that could not be bound then, and evictions have an end, on a real control plane.

For want of CPU, kube-scheduler chooses victims and asks preempt; for want of devices, dra-extender evicts by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, DEVICE_QUOTAS, NODES, PODS, SLICES, TEMPLATES
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.controllers import entry, licensing, serving_with
from tests.kit.controlplane.definitions import DEVICE_QUOTA
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.scenario import SITE, bound, by_name, by_template, rejection
from tests.kit.licensing import CLOSED
from tests.kit.objects.manifests import (
    DEVICE_CLASS,
    add_node,
    claim,
    claim_spec,
    device_class,
    is_bound,
    pod,
    request,
    requests,
    resource_slice,
    template,
)
from tests.kit.objects.quotas import quota
from tests.kit.waiting import answers_during, wait_for_answer

MOST: Final = "20"
"""CPUs; a node has 32, which is not enough for two such pods."""

SECONDS: Final = 3.0
"""Within which pods were evicted without end."""

GPUS: Final[Sequence[RawObject]] = [{"name": "gpu-0"}, {"name": "gpu-1"}]


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that has DeviceQuotas before the extender starts."""
    with own_plane(binaries, logs, "evictions", definition=DEVICE_QUOTA) as running:
        yield running


async def start(
    client: Client, namespace: str, name: str, *claims: RawObject, cpu: str = "0", gang: int = 0, **spec: Any
) -> ObjectKey:
    """A pod that wants CPUs and uses claims, and that terminates at once.

    Args:
        gang: the size of its group; 0: it is in none.
    """
    made = pod(namespace, name, claims=claims, terminationGracePeriodSeconds=0, **spec)
    made["spec"]["containers"][0].setdefault("resources", {})["requests"] = {"cpu": cpu}
    if gang:
        made["metadata"]["annotations"] = {GROUP: "train", GROUP_SIZE: str(gang)}
    return key_of(await client.create(PODS, made))


async def _ended(client: Client, namespace: str) -> ObjectKey:
    """A pod that takes some CPU, with a node."""
    key = await start(client, namespace, "small", cpu="1")
    await bound(client, key)
    return key


async def names(client: Client, namespace: str) -> list[str]:
    """The pods of a namespace that do not terminate."""
    pods = (await client.list(PODS, namespace)).items
    return sorted(key_of(each).name for each in pods if not each["metadata"].get("deletionTimestamp"))


@pytest.fixture
async def busy(client: Client, neighbor: str, gpu: Driver) -> list[str]:
    """On each node of the site, a pod takes most of the CPU; devices are free. Returns the names of the pods."""
    pods = []
    for node in SITE:
        await gpu.publish(node, GPUS)
        on: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}}
        pods.append(await start(client, neighbor, f"cpu-{node}", cpu=MOST, **on))
    for each in pods:
        await bound(client, each)
    return sorted(each.name for each in pods)


@pytest.mark.usefixtures("site")
class TestForWantOfCpu:
    async def test_nobody_is_evicted_for_a_pod_of_a_gang_that_is_not_complete(
        self, client: Client, namespace: str, neighbor: str, gpu: Driver, important: str, busy: list[str]
    ) -> None:
        await client.create(TEMPLATES, template(namespace, "gpu", claim_spec(1, gpu.name)))
        of: dict[str, Any] = {"cpu": MOST, "gang": 8, "priorityClassName": important}
        key = await start(client, namespace, "one", by_template("gpu"), **of)
        assert await rejection(client, key, about="Insufficient cpu")
        assert await answers_during(lambda: names(client, neighbor), seconds=SECONDS) == [busy]

    async def test_pods_are_evicted_for_a_whole_gang_or_for_none_of_it(
        self, client: Client, namespace: str, neighbor: str, gpu: Driver, important: str, busy: list[str]
    ) -> None:
        await client.create(TEMPLATES, template(namespace, "gpu", claim_spec(2, gpu.name)))
        of: dict[str, Any] = {"cpu": MOST, "priorityClassName": important}
        keys = [await start(client, namespace, f"of-4-{n}", by_template("gpu"), gang=4, **of) for n in range(4)]
        assert await rejection(client, keys[-1], about="Insufficient cpu")
        assert await answers_during(lambda: names(client, neighbor), seconds=SECONDS) == [busy]
        for each in keys:
            await client.delete(PODS, each)
            await client.wait_gone(PODS, each)
        keys = [await start(client, namespace, f"of-2-{n}", by_template("gpu"), gang=2, **of) for n in range(2)]
        nodes = [await bound(client, each) for each in keys]
        assert len(set(nodes)) == 2
        assert await names(client, neighbor) == [each for each in busy if each.removeprefix("cpu-") not in nodes]

    async def test_nobody_is_evicted_for_a_pod_over_its_quota(
        self, client: Client, namespace: str, neighbor: str, gpu: Driver, important: str, busy: list[str]
    ) -> None:
        limit = {"name": "gpu", "deviceClassName": gpu.name, "devices": 0}
        await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
        await client.create(CLAIMS, claim(namespace, "own", claim_spec(1, gpu.name)))
        key = await start(client, namespace, "own", by_name("own"), cpu=MOST, priorityClassName=important)
        assert await rejection(client, key, about="Insufficient cpu")
        assert await answers_during(lambda: names(client, neighbor), seconds=SECONDS) == [busy]
        await client.patch(DEVICE_QUOTAS, ObjectKey(namespace, "gold"), {"spec": {"limits": [{**limit, "devices": 1}]}})
        # The scheduler tries a pod that lacks CPU again when a pod ends.
        await client.delete(PODS, await _ended(client, neighbor))
        await bound(client, key)
        assert len(await names(client, neighbor)) == len(busy) - 1


@pytest.mark.usefixtures("site")
class TestForWantOfDevices:
    async def _held(self, client: Client, neighbor: str, gpu: Driver, devices: Sequence[RawObject]) -> list[str]:
        """All devices of the site are used by pods of the neighbor; returns their names."""
        await client.create(TEMPLATES, template(neighbor, "gpu", claim_spec(1, gpu.name)))
        for node in SITE:
            await gpu.publish(node, devices)
        number = len(SITE) * len(devices)
        pods = [await start(client, neighbor, f"low-{n}", by_template("gpu")) for n in range(number)]
        for each in pods:
            await bound(client, each)
        return sorted(each.name for each in pods)

    async def test_nobody_is_evicted_for_devices_that_a_limit_forbids(
        self, client: Client, namespace: str, neighbor: str, gpu: Driver, important: str
    ) -> None:
        devices = [{"name": f"gpu-{n}", "attributes": {"large": {"bool": True}}} for n in range(2)]
        there = await self._held(client, neighbor, gpu, devices)
        large = [{"cel": {"expression": f'device.attributes["{gpu.name}"].large'}}]
        await client.create(
            DEVICE_QUOTAS, quota({"name": "large", "selectors": large, "devices": 0}, namespace=namespace)
        )
        await client.create(TEMPLATES, template(namespace, "gpu", claim_spec(1, gpu.name)))
        keys = [
            await start(client, namespace, f"p-{n}", by_template("gpu"), priorityClassName=important) for n in range(3)
        ]
        assert await rejection(client, keys[-1], about="no free device")
        assert await answers_during(lambda: names(client, neighbor), seconds=SECONDS) == [there]

    async def test_a_preemption_begins_while_other_pods_come_and_go(
        self, client: Client, namespace: str, neighbor: str, gpu: Driver, important: str
    ) -> None:
        there = await self._held(client, neighbor, gpu, GPUS)
        await client.create(CLAIMS, claim(namespace, "own", claim_spec(1, gpu.name)))
        async with coming_and_going(client, neighbor):
            key = await start(client, namespace, "own", by_name("own"), priorityClassName=important)
            assert await client.wait_for(PODS, key, is_bound, within=5.0)
        left = [each for each in await names(client, neighbor) if each in there]
        assert len(left) == len(there) - 1


@asynccontextmanager
async def coming_and_going(client: Client, namespace: str) -> AsyncIterator[None]:
    """Plain pods are made, and deleted once they have a node, one after the other."""

    async def come_and_go() -> None:
        number = 0
        while True:
            key = await start(client, namespace, f"plain-{number}")
            await client.wait_for(PODS, key, is_bound)
            await client.delete(PODS, key)
            number += 1

    task = asyncio.create_task(come_and_go())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


FLEET: Final = [f"fleet-{number}" for number in range(20)]


@pytest.fixture
async def fleet(client: Client) -> AsyncIterator[Sequence[str]]:
    """20 nodes with 2 devices each."""
    await client.create(CLASSES, device_class())
    for name in FLEET:
        await add_node(client, name)
        await client.create(SLICES, resource_slice(name, name, GPUS))
    yield FLEET
    for name in FLEET:
        await client.delete(SLICES, ObjectKey("", name))
        await client.delete(NODES, ObjectKey("", name))
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


async def running(client: Client, namespace: str, number: int, scheduler: str) -> None:
    """Pods with a device each, bound."""
    await client.create(TEMPLATES, template(namespace, "gpu"))
    for n in range(number):
        await start(client, namespace, f"low-{n}", by_template("gpu"), scheduler=scheduler)
    await wait_for_answer(lambda: bound_in(client, namespace), lambda n: n == number, "all run", within=60)


async def bound_in(client: Client, namespace: str) -> int:
    return sum(map(is_bound, (await client.list(PODS, namespace)).items))


async def test_a_namespace_evicts_no_more_pods_than_its_quota_lets_it_use(
    client: Client, plane: ControlPlane, namespace: str, neighbor: str, fleet: Sequence[str], important: str
) -> None:
    limit = {"name": "gpu", "deviceClassName": DEVICE_CLASS, "devices": 1}
    await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
    async with pair(client, plane, "greedy") as ours:
        devices = len(fleet) * len(GPUS)
        await running(client, neighbor, devices, ours.name)
        await client.create(TEMPLATES, template(namespace, "gpu"))
        high: dict[str, Any] = {"scheduler": ours.name, "priorityClassName": important}
        for number in range(devices):
            await start(client, namespace, f"high-{number}", by_template("gpu"), **high)
        await wait_for_answer(lambda: bound_in(client, namespace), bool, "one of its pods runs", within=20)
        left = await answers_during(lambda: bound_in(client, neighbor), seconds=2 * SECONDS)
        assert left == [devices - 1]
        assert await bound_in(client, namespace) == 1


async def test_pods_that_a_controller_refuses_do_not_evict_without_end(
    client: Client, plane: ControlPlane, namespace: str, neighbor: str, fleet: Sequence[str], important: str
) -> None:
    async with licensing(plane, client, ["Http"], 100, flags=["--refuses"]) as (controller,):
        serve = serving_with(plane, [controller])
        async with pair(client, plane, "refused", serve=serve) as ours:
            devices = len(fleet) * len(GPUS)
            await running(client, neighbor, devices, ours.name)
            spec = requests(request("gpu", DEVICE_CLASS))
            for number in range(3):
                await client.create(CLAIMS, claim(namespace, f"gpu-{number}", spec))
                await client.create(CLAIMS, controller.claim(namespace, f"license-{number}"))
                used = [by_name(f"gpu-{number}"), entry(f"license-{number}")]
                high: dict[str, Any] = {"scheduler": ours.name, "priorityClassName": important}
                await start(client, namespace, f"high-{number}", *used, **high)
            await wait_for_answer(
                lambda: bound_in(client, neighbor), lambda n: n < devices, "a pod was evicted", within=20
            )
            left = await answers_during(lambda: bound_in(client, neighbor), seconds=12.0)
            assert left[-1] >= devices - 3, "each of three pods has evicted one"
            assert await bound_in(client, namespace) == 0


@pytest.mark.usefixtures("fleet")
async def test_nobody_is_evicted_for_cpu_for_a_pod_that_gets_no_license(
    client: Client, plane: ControlPlane, namespace: str, neighbor: str, important: str
) -> None:
    async with licensing(plane, client, ["Http"], 1) as (controller,):
        closed = controller.folder.parent / CLOSED
        closed.touch()
        async with pair(client, plane, "licensed", serve=serving_with(plane, [controller])) as ours:
            nodes = len((await client.list(NODES)).items)  # those of the site, too, if it is there
            for number in range(nodes):
                await start(client, neighbor, f"cpu-{number}", cpu=MOST, scheduler=ours.name)
            small = [await start(client, neighbor, f"small-{n}", cpu="1", scheduler=ours.name) for n in range(3)]
            there = nodes + len(small)
            await wait_for_answer(lambda: bound_in(client, neighbor), lambda n: n == there, "all run", within=60)
            await client.create(CLAIMS, controller.claim(namespace, "license"))
            of: dict[str, Any] = {"cpu": MOST, "scheduler": ours.name, "priorityClassName": important}
            key = await start(client, namespace, "high", entry("license"), **of)
            assert await rejection(client, key, about="Insufficient cpu")
            assert await answers_during(lambda: bound_in(client, neighbor), seconds=SECONDS) == [there]
            closed.unlink()
            # A pod that lacks CPU is tried again when another one ends. The controller's new answer may come later.
            while small and not await bound_in(client, namespace):
                await client.delete(PODS, small.pop())
                await answers_during(lambda: bound_in(client, namespace), seconds=2 * SECONDS)
            assert await client.wait_for(PODS, key, is_bound, within=30.0)
            assert await bound_in(client, neighbor) == nodes + len(small) - 1, "one goes for the pod with its license"
