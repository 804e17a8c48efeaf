"""Pods with claims from templates: they get a node as soon as their claims are made, and no rejection before."""

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLASSES, EVENTS, NODES, PODS, SLICES, TEMPLATES
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.in_tree import IN_TREE, in_tree
from tests.kit.controlplane.pair import SHIPPED_NAME
from tests.kit.controlplane.scenario import by_template, findings
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, device_class, is_bound, pod, resource_slice, template

PODS_AT_ONCE = 70
NODES_THERE = 10
DEVICES: list[RawObject] = [{"name": f"gpu-{number}"} for number in range(8)]
WITHIN = 60.0
Running = Callable[[Client, ControlPlane], AbstractAsyncContextManager[object]]


@pytest.fixture
async def fleet(client: Client) -> AsyncIterator[list[str]]:
    """Nodes with eight devices each."""
    names = [f"fleet-{number}" for number in range(NODES_THERE)]
    await client.create(CLASSES, device_class())
    for name in names:
        await add_node(client, name)
        await client.create(SLICES, resource_slice(name, name, DEVICES))
    yield names
    for name in names:
        await client.delete(SLICES, ObjectKey("", name))
        await client.delete(NODES, ObjectKey("", name))
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


@asynccontextmanager
async def shipped(client: Client, plane: ControlPlane, *, holds_pods: bool = True) -> AsyncIterator[None]:
    """A scheduler and an extender with the files that we ship.

    Args:
        client: an administrator's.
        plane: the control plane.
        holds_pods: the profile has the plugin at preEnqueue, as we ship it.
    """
    await grant_rights(client)
    text = SHIPPED.read_text()
    async with running_extender(plane) as running:
        config = localize(text, running.url, plane.kubeconfig(SCHEDULER))
        if not holds_pods:
            del config["profiles"][0]["plugins"]["preEnqueue"]
        async with scheduler(plane, config, shipped_flags(text)):
            yield


def without_gate(client: Client, plane: ControlPlane) -> AbstractAsyncContextManager[object]:
    return shipped(client, plane, holds_pods=False)


async def waits(client: Client, namespace: str, scheduler_name: str) -> list[float]:
    """Seconds from the creation of each pod until it has a node; the pods are created at once."""
    await client.create(TEMPLATES, template(namespace, "gpu"))
    loop, made, seconds = asyncio.get_running_loop(), {}, {}
    since = (await client.list(PODS, namespace)).revision

    async def create(number: int) -> None:
        name = f"p-{number}"
        await client.create(PODS, pod(namespace, name, claims=[by_template("gpu")], scheduler=scheduler_name))
        made[name] = loop.time()

    async def follow() -> None:
        async for event in client.watch(PODS, ObjectKey(namespace, ""), since=since):
            name = event.object["metadata"].get("name", "")
            if event.type != "BOOKMARK" and is_bound(event.object) and name not in seconds:
                seconds[name] = loop.time()
                if len(seconds) == PODS_AT_ONCE:
                    return

    async with asyncio.timeout(WITHIN):
        await asyncio.gather(follow(), *map(create, range(PODS_AT_ONCE)))
    return [seconds[name] - made[name] for name in made]


async def rejections(client: Client, namespace: str) -> list[str]:
    """What Events of pods say of claims that are missing."""
    notes = [str(each.get("note") or "") for each in (await client.list(EVENTS, namespace)).items]
    return [note for note in notes if "to be created" in note or "does not exist" in note]


@pytest.mark.parametrize(
    ("running", "name"),
    [(shipped, SHIPPED_NAME), (without_gate, SHIPPED_NAME), (lambda _, plane: in_tree(plane), IN_TREE)],
    ids=["as we ship it", "a scheduler that does not hold pods", "in-tree"],
)
async def test_pods_from_templates_begin_with_no_rejection(
    client: Client,
    plane: ControlPlane,
    namespace: str,
    fleet: list[str],
    running: Running,
    name: str,
) -> None:
    assert len(fleet) * len(DEVICES) > PODS_AT_ONCE
    async with running(client, plane):
        seconds = await waits(client, namespace, name)
        rejected = await rejections(client, namespace)
    print(  # noqa: T201 - `-s` shows the figures
        f"\n{name}: {PODS_AT_ONCE} pods at once, creation to node: median {statistics.median(seconds):.3f} s,"
        f" longest {max(seconds):.3f} s, {len(rejected)} rejections"
    )
    assert rejected == []
    assert await findings(client, namespace) == []
