"""The API server refuses, fails, loses answers, cuts watches and restarts: pods are bound all the same, once."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from extender.kube.api import RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.aftermath import consumers, losses, wait_settled
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.pair import Pair, pair
from tests.kit.controlplane.proxy import CLAIM_STATUS, WATCH, Action, Hold, cut_after, cut_before, end_watch, refuse
from tests.kit.controlplane.scenario import add_pod, bound, findings, held, rejection

WRITES = {
    "finalizer": ("PUT", r".*/resourceclaims/{}"),
    "allocation": ("PUT", r".*/resourceclaims/{}/status"),
    "binding": ("POST", r".*/pods/{}/binding"),
}
"""Method and target of each write of a bind, for the name of a pod and its claim."""

FAULTS: dict[str, tuple[Action, int]] = {
    "conflicts": (refuse(HTTPStatus.CONFLICT), 3),
    "more-conflicts-than-tries": (refuse(HTTPStatus.CONFLICT), 8),
    "busy": (refuse(HTTPStatus.TOO_MANY_REQUESTS, retry_after=1), 2),
    "failure": (refuse(HTTPStatus.INTERNAL_SERVER_ERROR), 2),
    "request-lost": (cut_before, 2),
    "answer-lost": (cut_after, 1),
}
"""What happens to how many of these writes."""

WATCH_FAULTS: dict[str, Action] = {
    "expired": refuse(HTTPStatus.GONE),
    "expired-after-its-begin": end_watch(HTTPStatus.GONE),
    "error": end_watch(HTTPStatus.INTERNAL_SERVER_ERROR),
    "busy": refuse(HTTPStatus.TOO_MANY_REQUESTS, retry_after=1),
    "failure": refuse(HTTPStatus.INTERNAL_SERVER_ERROR),
    "lost": cut_before,
}

NODES = 2
DEVICES = 12


@pytest.fixture
async def ours(client: Client, plane: ControlPlane) -> AsyncIterator[Pair]:
    async with fleet(client, nodes=NODES, devices=DEVICES), pair(client, plane) as running:
        yield running


async def check_bound_once(client: Client, made: RawObject) -> None:
    """A pod has a node, and its claim one device there."""
    key = key_of(made)
    node = await bound(client, key)
    got = await client.get(CLAIMS, key)
    assert [pool for pool, _ in held(got)] == [node], key
    assert consumers(got) == [made["metadata"]["uid"]], key


async def test_writes_that_fail(client: Client, namespace: str, ours: Pair) -> None:
    """Each write of a bind fails in each way, for a pod of its own; all at once."""
    rules, pods = [], []
    for write, (method, target) in WRITES.items():
        for fault, (action, times) in FAULTS.items():
            name = f"{write}-{fault}"
            rules.append(ours.proxy.on(method, target.format(name), action, times=times))
            pods.append(await add_pod(client, namespace, name))
    for made in pods:
        await check_bound_once(client, made)
    for rule in rules:
        await rule.followed()
    assert await findings(client, namespace) == []
    assert await losses(client, namespace) == []


async def test_an_outcome_that_stays_unknown(client: Client, namespace: str, ours: Pair) -> None:
    """The allocation is written, its answer lost, and the claim can't be read: nothing is undone or taken twice."""
    unreadable = refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
    rules = [
        ours.proxy.on("PUT", ".*/resourceclaims/lost/status", cut_after),
        ours.proxy.on("GET", ".*/resourceclaims/lost", unreadable, times=4),
    ]
    lost = await add_pod(client, namespace, "lost")
    others = [await add_pod(client, namespace, f"other-{number}") for number in range(4)]
    for made in (lost, *others):
        await check_bound_once(client, made)
    for rule in rules:
        await rule.followed()
    assert await findings(client, namespace) == []
    assert await losses(client, namespace) == []


async def test_watches_that_are_cut(client: Client, namespace: str, ours: Pair) -> None:
    """All at once, and their next try fails in each way: what happens meanwhile is not missed."""
    for fault, action in WATCH_FAULTS.items():
        rules = [ours.proxy.on("GET", rf".*/{kind}\?.*watch=true.*", action) for kind in ("pods", "resourceclaims")]
        assert ours.proxy.cut_streams(WATCH) >= len(rules)
        for made in [await add_pod(client, namespace, f"{fault}-{number}") for number in range(2)]:
            await check_bound_once(client, made)
        for rule in rules:
            await rule.followed()
    assert await findings(client, namespace) == []
    assert await losses(client, namespace) == []


async def test_the_api_server_restarts(client: Client, plane: ControlPlane, namespace: str, ours: Pair) -> None:
    """While a bind is about to write, and while pods wait for devices."""
    holders = [await add_pod(client, namespace, f"holder-{number}") for number in range(NODES * DEVICES - 1)]
    for made in holders:
        await bound(client, key_of(made))
    hold = Hold()
    ours.proxy.on("PUT", CLAIM_STATUS, hold)
    binding = await add_pod(client, namespace, "binding")
    await hold.held()
    waiting = [await add_pod(client, namespace, f"waiting-{number}") for number in range(2)]
    for made in waiting:
        await rejection(client, key_of(made), about="no free device")

    await asyncio.to_thread(plane.apiserver.kill)
    await asyncio.to_thread(plane.apiserver.start, within=START_SECONDS)
    await hold.release()
    await check_bound_once(client, binding)
    for holder, made in zip(holders, waiting, strict=False):
        await client.delete(PODS, key_of(holder))
        await client.wait_gone(PODS, key_of(holder))
        await check_bound_once(client, made)
    assert await findings(client, namespace) == []
    await wait_settled(client, namespace, within=WAIT_SECONDS)
