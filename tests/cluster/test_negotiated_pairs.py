"""Negotiated claims with gangs and with DeviceQuotas: a real kube-scheduler, and a controller of licenses."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.controllers import Licensing, entry, licensing, serving_with
from tests.kit.controlplane.definitions import DEVICE_QUOTA
from tests.kit.controlplane.device_quotas import says
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.scenario import bound, rejection
from tests.kit.licensing import CLOSED, taken
from tests.kit.objects.manifests import is_bound, pod
from tests.kit.objects.quotas import quota
from tests.kit.waiting import wait_for_answer

pytestmark = pytest.mark.usefixtures("nodes")

SCHEDULER: Final = "negotiated-pairs"
LICENSES: Final = 10
QUIET_SECONDS: Final = 30.0
"""Long enough that the pauses between questions have grown."""


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that has DeviceQuotas before the extender starts."""
    with own_plane(binaries, logs, "negotiated-pairs", definition=DEVICE_QUOTA) as running:
        yield running


@pytest.fixture(name="licenses")
async def _licenses(client: Client, plane: ControlPlane) -> AsyncIterator[Licensing]:
    async with (
        licensing(plane, client, ["Http"], LICENSES) as controllers,
        pair(client, plane, SCHEDULER, serve=serving_with(plane, controllers)),
    ):
        yield controllers[0]


async def add_pods(client: Client, licenses: Licensing, namespace: str, *names: str, gang: str = "") -> list[ObjectKey]:
    """Pods with a license each; of a gang, if it has a name."""
    for name in names:
        await client.create(CLAIMS, licenses.claim(namespace, name))
        made = pod(namespace, name, claims=[entry(name)], scheduler=SCHEDULER)
        if gang:
            made["metadata"]["annotations"] = {GROUP: gang, GROUP_SIZE: str(len(names))}
        await client.create(PODS, made)
    return [ObjectKey(namespace, name) for name in names]


async def test_gang_and_pod_notice_within_seconds_that_their_controller_accepts_again(
    client: Client, namespace: str, licenses: Licensing
) -> None:
    closed = licenses.folder.parent / CLOSED
    closed.touch()
    gang = await add_pods(client, licenses, namespace, "g0", "g1", "g2", gang="g")
    (alone,) = await add_pods(client, licenses, namespace, "alone")
    await rejection(client, gang[-1], about="group g")
    await rejection(client, alone, about="no license is left")
    with pytest.raises(TimeoutError):  # nothing happens meanwhile, so the pauses grow
        async with asyncio.timeout(QUIET_SECONDS):
            await bound(client, alone, within=2 * QUIET_SECONDS)
    closed.unlink()
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(bound(client, key) for key in (*gang, alone)))
    waited = asyncio.get_running_loop().time() - began
    assert waited < 8.0, waited  # up to 3 s until it is asked, then a plan; 314 s before


async def test_quota_on_licenses_limits_and_pods_that_wait_allocate_nothing(
    client: Client, namespace: str, licenses: Licensing
) -> None:
    limit = {"name": "seats", "deviceClassName": licenses.name, "devices": 2}
    await client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace))
    await client.wait_for(DEVICE_QUOTAS, ObjectKey(namespace, "gold"), says("seats 0/2"))
    keys = await add_pods(client, licenses, namespace, *(f"p{number}" for number in range(5)))
    await client.wait_for(DEVICE_QUOTAS, ObjectKey(namespace, "gold"), says("seats 2/2"))
    for key in keys:
        if not is_bound(await client.get(PODS, key)):
            assert "limit seats allows 2 devices" in await rejection(client, key, about="device quota")
    running = [key for key in keys if is_bound(await client.get(PODS, key))]
    waiting = [key for key in keys if key not in running]
    assert len(running) == len(taken(licenses.folder)) == 2
    marks = [await _mark(client, key) for key in waiting]
    assert marks == [""] * 3
    await client.delete(PODS, running[0])
    await client.delete(CLAIMS, running[0])

    async def number() -> int:
        return sum([is_bound(await client.get(PODS, key)) for key in waiting])

    await wait_for_answer(number, lambda found: found == 1, "one more pod runs", within=60)


async def _mark(client: Client, key: ObjectKey) -> str:
    """The mark of the negotiated claim of a pod; empty if nothing was ever asked for it."""
    annotations = (await client.get(CLAIMS, key))["metadata"].get("annotations") or {}
    mark: str = annotations.get("dra-extender.dev/negotiation", "")
    return mark
