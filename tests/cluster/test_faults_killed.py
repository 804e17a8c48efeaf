"""The extender is killed at each step of a bind: what it has left behind is mended by the next try."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import orjson
import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.aftermath import consumers, is_allocated, losses
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.pair import Pair
from tests.kit.controlplane.proxy import BINDING, CLAIM, CLAIM_STATUS, CLAIMS_WATCH, POD_STATUS, Action, Exchange, Rule
from tests.kit.controlplane.scenario import GPUS, NODE_NAMES, add_pod, bound, findings, held, rejection
from tests.kit.objects.manifests import allocation, claim, consumer, pod

pytestmark = pytest.mark.usefixtures("nodes")

ALL_DEVICES = [(node, gpu["name"]) for node in NODE_NAMES for gpu in GPUS]


def killing(ours: Pair, *, lands: bool) -> Action:
    """The extender is killed with a request on its way.

    Args:
        lands: the API server does what was asked.
    """

    async def kill(exchange: Exchange) -> None:
        if lands:
            await exchange.forward()
        ours.kill()

    return kill


async def take(client: Client, namespace: str, name: str, devices: RawObject) -> None:
    """What another writer does: a claim with an allocation, for somebody who is no pod."""
    made = await client.create(CLAIMS, claim(namespace, name))
    status = {"allocation": devices, "reservedFor": [consumer(name)]}
    await client.update_status(CLAIMS, {**made, "status": status})


async def devices_that_serve(
    client: Client, namespace: str, victim: RawObject, others: Sequence[str] = ("second", "third", "fourth")
) -> list[tuple[str, str]]:
    """The devices that are allocated, as node and name, once the victim and the others have one each.

    Nobody has lost anything meanwhile.
    """
    name = victim["metadata"]["name"]
    node = await bound(client, ObjectKey(namespace, name))
    got = await client.get(CLAIMS, ObjectKey(namespace, name))
    assert [pool for pool, _ in held(got)] == [node]
    assert consumers(got) == [victim["metadata"]["uid"]]
    for other in others:
        await add_pod(client, namespace, other)
        await bound(client, ObjectKey(namespace, other))
    assert await findings(client, namespace) == []
    assert await losses(client, namespace) == []
    claims = (await client.list(CLAIMS, namespace)).items
    return sorted(pair for each in claims if is_allocated(each) for pair in held(each))


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
    rule = ours.proxy.on(method, target, killing(ours, lands=lands))
    victim = await add_pod(client, namespace, "victim")
    await rule.followed()
    await ours.restart()
    assert await devices_that_serve(client, namespace, victim) == ALL_DEVICES


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
    begun: list[Rule] = []

    async def come_second(exchange: Exchange) -> None:
        await take(client, namespace, "other", orjson.loads(exchange.body)["status"]["allocation"])
        begun.append(ours.proxy.on(method, target, killing(ours, lands=lands)))
        exchange.reply(await exchange.forward())

    rule = ours.proxy.on("PUT", CLAIM_STATUS, come_second)
    victim = await add_pod(client, namespace, "victim")
    await rule.followed()
    await begun[0].followed()
    await ours.restart()
    assert await devices_that_serve(client, namespace, victim, ("second", "third")) == ALL_DEVICES


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
    assert await devices_that_serve(client, namespace, victim) == ALL_DEVICES


async def test_killed_between_two_claims(client: Client, namespace: str, ours: Pair) -> None:
    """Meanwhile the node of the first has no device left for the second: the first is given back."""
    rule = ours.proxy.on("PUT", CLAIM_STATUS, killing(ours, lands=False), nth=2)
    names = ["one", "two"]
    for name in names:
        await client.create(CLAIMS, claim(namespace, name))
    claims = [{"name": name, "resourceClaimName": name} for name in names]
    victim = await client.create(PODS, pod(namespace, "victim", claims=claims))
    await rule.followed()
    found = {name: await client.get(CLAIMS, ObjectKey(namespace, name)) for name in names}
    ((first_node, first_device),) = [device for each in found.values() if is_allocated(each) for device in held(each)]
    left = next(gpu["name"] for gpu in GPUS if gpu["name"] != first_device)
    await take(client, namespace, "other", allocation(left, node=first_node))
    await ours.restart()

    assert await bound(client, key_of(victim)) == next(node for node in NODE_NAMES if node != first_node)
    assert await findings(client, namespace) == []
    assert await losses(client, namespace) == []


async def test_killed_and_the_pod_deleted(client: Client, namespace: str, ours: Pair) -> None:
    rule = ours.proxy.on("PUT", CLAIM_STATUS, killing(ours, lands=True))
    victim = await add_pod(client, namespace, "victim")
    await rule.followed()
    await client.delete(PODS, key_of(victim))
    await ours.restart()
    await client.wait_for(CLAIMS, key_of(victim), lambda obj: not is_allocated(obj))
    assert await devices_that_serve(client, namespace, await add_pod(client, namespace, "next")) == ALL_DEVICES
