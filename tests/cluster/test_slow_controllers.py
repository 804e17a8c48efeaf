"""A controller that is slow and in time, with a real kube-scheduler: its pods wait, and those of others do not."""

import asyncio
from typing import Final

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.controllers import entry, licensing, serving_with
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.scenario import add_pod, bound, rejection
from tests.kit.objects.manifests import pod

pytestmark = pytest.mark.usefixtures("nodes")

SCHEDULER: Final = "slow-controllers"
ANSWER_SECONDS: Final = 1.9
"""Less than the timeout of a question, which is 2 s."""

PODS_OF_THE_CONTROLLER: Final = 40

MOST_SECONDS: Final = 5.0
"""For a pod of another tenant: the second that the budget has saved, and the rest for a busy machine. It was 74.8 s
when filter waited for each answer."""


async def test_pods_of_a_slow_controller_do_not_delay_another_tenant(
    client: Client, plane: ControlPlane, namespace: str, neighbor: str
) -> None:
    async with (
        licensing(plane, client, ["Http"], PODS_OF_THE_CONTROLLER, ANSWER_SECONDS) as (licenses,),
        pair(client, plane, SCHEDULER, serve=serving_with(plane, [licenses])),
    ):
        await bound(client, key_of(await add_pod(client, neighbor, "first", scheduler=SCHEDULER)))
        names = [f"slow-{number}" for number in range(PODS_OF_THE_CONTROLLER)]
        for name in names:
            await client.create(CLAIMS, licenses.claim(namespace, name))
            await client.create(PODS, pod(namespace, name, claims=[entry(name)], scheduler=SCHEDULER))
        waits = []
        for name in ("second", "third"):
            began = asyncio.get_running_loop().time()
            await bound(client, key_of(await add_pod(client, neighbor, name, scheduler=SCHEDULER)))
            waits.append(asyncio.get_running_loop().time() - began)
        assert max(waits) < MOST_SECONDS, waits
        # The pods of the controller get their licenses, as quickly as it answers; perhaps these are asked about last.
        last = ObjectKey(namespace, names[-1])
        assert f"waiting for controller {licenses.name}" in await rejection(client, last, about="controller")
        within = 1.5 * PODS_OF_THE_CONTROLLER * ANSWER_SECONDS
        await asyncio.gather(*(bound(client, ObjectKey(namespace, name), within=within) for name in names[:5]))
