"""Two replicas without a scheduler between them, as while the leader changes: the old one's Binding is on its way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.access import EXTENDER
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.client import WAIT_SECONDS, Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.proxy import BINDING, CLAIM_STATUS, Exchange, Hold, Proxy, proxy
from tests.kit.controlplane.scenario import add_pod, findings, held
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.controlplane.verbs import Verbs, connect_verbs
from tests.kit.objects.manifests import is_bound
from tests.kit.process import Process
from tests.kit.waiting import pause

NOBODY = "nobody"
"""The schedulerName of pods that only the test schedules."""


@asynccontextmanager
async def replica(plane: ControlPlane, name: str) -> AsyncIterator[tuple[Verbs, Proxy, Process]]:
    """An extender, called by hand, the proxy before its API server, and its process."""
    access = plane.access(EXTENDER)
    async with proxy(access) as between:
        kubeconfig = replace(access, url=between.url).write_kubeconfig(plane.folder / f"{name}.kubeconfig")
        async with (
            running_extender(plane, kubeconfig=kubeconfig) as extender,
            connect_verbs(extender.url) as verbs,
        ):
            yield verbs, between, extender.process
            # How it ends when it is asked to is not what this is about.
            extender.process.kill()


async def test_a_binding_that_was_overtaken_binds_no_pod_without_its_device(
    client: Client, plane: ControlPlane, namespace: str
) -> None:
    await grant_rights(client)
    async with (
        fleet(client, nodes=2, devices=1) as (here, there),
        replica(plane, "old-leader") as (old, between, _),
        replica(plane, "new-leader") as (new, _, _),
    ):
        first = await add_pod(client, namespace, "first", scheduler=NOBODY)
        second = await add_pod(client, namespace, "second", scheduler=NOBODY)
        hold = Hold()
        between.on("POST", BINDING, hold)
        for verbs in (old, new):
            await verbs.wait_in_step(client)
        binding = asyncio.create_task(old.bind(first, here))
        await hold.held()

        await new.wait_in_step(client)
        await new.filter(first, there)
        key = ObjectKey(namespace, "first")
        await client.wait_for(CLAIMS, key, lambda obj: not is_allocated(obj))
        await new.wait_in_step(client)
        assert await new.bind(second, here) == ""

        await hold.release()
        assert "another writer releases its claims" in await binding
        assert not is_bound(await client.get(PODS, key))
        assert held(await client.get(CLAIMS, ObjectKey(namespace, "second"))) == [(here, "gpu-0")]
        assert await findings(client, namespace) == []
        await old.wait_in_step(client)
        assert await old.bind(first, there) == ""


@pytest.mark.parametrize("seconds", [2.0, pytest.param(30.0, marks=pytest.mark.nightly)])
async def test_a_leader_that_stood_still_takes_nothing_back_once_it_wakes(
    client: Client, plane: ControlPlane, namespace: str, seconds: float
) -> None:
    """It stands still when its allocation is written; meanwhile another one leads, and gives the device away."""
    await grant_rights(client)
    async with (
        fleet(client, nodes=2, devices=1) as (here, there),
        replica(plane, "old-leader") as (old, between, process),
        replica(plane, "new-leader") as (new, _, _),
    ):
        first = await add_pod(client, namespace, "first", scheduler=NOBODY)
        second = await add_pod(client, namespace, "second", scheduler=NOBODY)
        for verbs in (old, new):
            await verbs.wait_in_step(client)
        old.http.timeout = seconds + WAIT_SECONDS
        async with AsyncExitStack() as standing:

            async def stand_still(exchange: Exchange) -> None:
                exchange.reply(await exchange.forward())
                standing.enter_context(process.paused())

            rule = between.on("PUT", CLAIM_STATUS, stand_still)
            binding = asyncio.create_task(old.bind(first, here))
            await rule.followed()

            await new.wait_in_step(client)
            await new.filter(first, there)
            key = ObjectKey(namespace, "first")
            await client.wait_for(CLAIMS, key, lambda obj: not is_allocated(obj))
            await new.wait_in_step(client)
            assert await new.bind(second, here) == ""
            await pause(seconds)

        assert await binding
        assert not is_bound(await client.get(PODS, key))
        assert held(await client.get(CLAIMS, ObjectKey(namespace, "second"))) == [(here, "gpu-0")]
        assert await findings(client, namespace) == []
        await old.wait_in_step(client)
        assert await old.bind(first, there) == ""
