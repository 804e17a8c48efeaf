"""The extender is killed at each step of a bind: what it has left behind is mended by the next try."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import orjson
import pytest

from extender.cluster.api import CLAIMS, ObjectKey, RawObject
from tests.cluster.harness.aftermath import consumers, losses
from tests.cluster.harness.client import WAIT_SECONDS, Client
from tests.cluster.harness.controlplane import ControlPlane
from tests.cluster.harness.objects import claim, consumer
from tests.cluster.harness.pair import Pair, pair
from tests.cluster.harness.proxy import BINDING, CLAIM, CLAIM_STATUS, CLAIMS_WATCH, POD_STATUS, Exchange
from tests.cluster.harness.scenario import GPUS, NODE_NAMES, add_pod, bound, findings, held, rejection

pytestmark = pytest.mark.usefixtures("nodes")

ALL_DEVICES = [(node, gpu["name"]) for node in NODE_NAMES for gpu in GPUS]


@pytest.fixture
async def ours(client: Client, plane: ControlPlane, nodes: list[str]) -> AsyncIterator[Pair]:
    assert nodes, "a scheduler without nodes asks nobody"
    async with pair(client, plane) as running:
        yield running


async def check_all_devices_serve(
    client: Client, namespace: str, victim: RawObject, others: Sequence[str] = ("second", "third", "fourth")
) -> None:
    """The victim has a device, the devices that are left are there for others, and nobody has lost anything."""
    name = victim["metadata"]["name"]
    node = await bound(client, ObjectKey(namespace, name))
    got = await client.get(CLAIMS, ObjectKey(namespace, name))
    assert [pool for pool, _ in held(got)] == [node]
    assert consumers(got) == [victim["metadata"]["uid"]]
    for other in others:
        await add_pod(client, namespace, other)
        await bound(client, ObjectKey(namespace, other))
    taken = [pair for each in (await client.list(CLAIMS, namespace)).items for pair in held(each)]
    assert sorted(taken) == ALL_DEVICES
    assert await findings(client, namespace) == []
    assert await losses(client, namespace) == []


@pytest.mark.parametrize(
    ("method", "target", "lands"),
    [
        pytest.param("PUT", CLAIM, False, id="before the finalizer"),
        pytest.param("PUT", CLAIM, True, id="after the finalizer"),
        pytest.param("PUT", CLAIM_STATUS, False, id="before the allocation"),
        pytest.param("PUT", CLAIM_STATUS, True, id="after the allocation"),
        pytest.param("POST", BINDING, False, id="before the Binding"),
        pytest.param("POST", BINDING, True, id="after the Binding"),
    ],
)
async def test_killed_at_a_write(
    client: Client, namespace: str, ours: Pair, method: str, target: str, lands: bool
) -> None:
    async def kill(exchange: Exchange) -> None:
        if lands:
            await exchange.forward()
        ours.kill()

    rule = ours.proxy.on(method, target, kill)
    victim = await add_pod(client, namespace, "victim")
    await rule.followed()
    await ours.restart()
    await check_all_devices_serve(client, namespace, victim)


@pytest.mark.parametrize(
    ("method", "target", "lands"),
    [
        pytest.param("PATCH", POD_STATUS, False, id="before the fence"),
        pytest.param("PATCH", POD_STATUS, True, id="after the fence"),
        pytest.param("PUT", CLAIM_STATUS, False, id="before the release"),
        pytest.param("PUT", CLAIM_STATUS, True, id="after the release"),
    ],
)
async def test_killed_while_it_undoes(
    client: Client, namespace: str, ours: Pair, method: str, target: str, lands: bool
) -> None:
    """Another writer was there first; the pod gets another device."""
    other = await client.create(CLAIMS, claim(namespace, "other"))

    async def come_second(exchange: Exchange) -> None:
        status = orjson.loads(exchange.body)["status"] | {"reservedFor": [consumer("other")]}
        await client.update_status(CLAIMS, {**other, "status": status})
        exchange.reply(await exchange.forward())
        ours.proxy.on(method, target, kill)

    async def kill(exchange: Exchange) -> None:
        if lands:
            await exchange.forward()
        ours.kill()
        killed.set()

    killed = asyncio.Event()
    ours.proxy.on("PUT", CLAIM_STATUS, come_second)
    victim = await add_pod(client, namespace, "victim")
    async with asyncio.timeout(WAIT_SECONDS):
        await killed.wait()
    await ours.restart()
    await check_all_devices_serve(client, namespace, victim, ("second", "third"))


async def test_killed_while_it_checks(client: Client, namespace: str, ours: Pair) -> None:
    """What others have written does not come, so nothing is bound; nothing is undone, and the next bind goes on."""
    async with AsyncExitStack() as while_silent:

        async def fall_silent(exchange: Exchange) -> None:
            await while_silent.enter_async_context(ours.proxy.silence(CLAIMS_WATCH))
            exchange.reply(await exchange.forward())

        ours.proxy.on("PUT", CLAIM_STATUS, fall_silent)
        victim = await add_pod(client, namespace, "victim")
        assert await rejection(client, ObjectKey(namespace, "victim"), about="what others have written to claims")
        ours.kill()
    await ours.restart()
    await check_all_devices_serve(client, namespace, victim)
