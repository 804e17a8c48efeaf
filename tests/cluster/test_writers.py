"""Several that allocate devices in one cluster: ours and ours, ours and the in-tree scheduler.

The API server lets two claims have one device, and only we look whether that has happened.
"""

import asyncio
import re

import httpx
import pytest

from extender.answers.audit import audit_snapshot
from extender.faces.commands.audit import listed
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, EVENTS, NODES, PODS
from tests.kit.controlplane.aftermath import is_allocated, losses, wait_settled
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.in_tree import IN_TREE, in_tree
from tests.kit.controlplane.pair import SHIPPED_NAME, Pair, pair
from tests.kit.controlplane.proxy import CLAIM_STATUS, Hold, Proxy
from tests.kit.controlplane.scenario import add_pod, bound, findings, held, rejection
from tests.kit.objects.manifests import claim, is_bound
from tests.kit.waiting import wait_for_answer

RIVAL = "dra-rival"
SECONDS = 60.0
"""For many pods that compete."""


async def lands_late(client: Client, namespace: str, *, first: str, second: str, delayed: Proxy) -> tuple[str, str]:
    """Two pods for one device: the second has decided for it before the first, and writes after it.

    Args:
        first, second: schedulers.
        delayed: between the second and the API server.

    Returns:
        The pods' names, first and second.
    """
    hold = Hold()
    delayed.on("PUT", CLAIM_STATUS, hold)
    await add_pod(client, namespace, "second", scheduler=second)
    await hold.held()
    # Ours keeps devices for pods that are nominated for a node, and kube-scheduler nominates before it writes: but for
    # pods of higher priority nothing is kept.
    await add_pod(client, namespace, "first", scheduler=first, priorityClassName="system-cluster-critical")
    await bound(client, ObjectKey(namespace, "first"))
    await hold.release()
    return "first", "second"


async def bound_of(client: Client, namespace: str, count: int) -> list[ObjectKey]:
    """The pods of a namespace that are bound, once there are this number of them."""

    async def found() -> list[ObjectKey]:
        return [key_of(each) for each in (await client.list(PODS, namespace)).items if is_bound(each)]

    return await wait_for_answer(found, lambda pods: len(pods) >= count, f"{count} pods are bound", within=SECONDS)


async def taken(client: Client, namespace: str) -> list[tuple[str, str]]:
    """Pool and device of all that claims of a namespace hold, in order."""
    claims = (await client.list(CLAIMS, namespace)).items
    return sorted(device for each in claims if is_allocated(each) for device in held(each))


async def double_allocations(ours: Pair) -> int:
    """How many an extender has counted."""
    async with httpx.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"{ours.extender.url}/metrics")).raise_for_status().text
    found = re.search(r"^dra_extender_clashes_total (\d+)", text, re.MULTILINE)
    assert found, text
    return int(found[1])


async def counted_clashes(ours: Pair, least: int) -> None:
    """Wait until an extender has counted this number of clashes; it looks for those of others now and then."""
    await wait_for_answer(
        lambda: double_allocations(ours), lambda count: count >= least, f"{least} clashes", within=SECONDS
    )


async def told_of_clash(client: Client, namespace: str, name: str) -> None:
    """Wait until a pod has an Event that says that its devices are another's."""

    async def told() -> list[str]:
        events = (await client.list(EVENTS, namespace)).items
        return [each["reason"] for each in events if each["regarding"]["name"] == name]

    await wait_for_answer(told, lambda reasons: "DevicesTaken" in reasons, f"Events of pod {name}", within=SECONDS)


async def allocating_revisions(client: Client, namespace: str, *, since: int, until: str) -> dict[str, int]:
    """By claim, the revision that brought the allocation which it has; watched until a claim of that name is made."""
    found: dict[str, int] = {}
    async for event in client.watch(CLAIMS, ObjectKey(namespace, ""), since=since):
        name = key_of(event.object).name
        if name == until:
            break
        if not is_allocated(event.object):
            found.pop(name, None)
        elif name not in found:
            found[name] = int(event.object["metadata"]["resourceVersion"])
    return found


async def allocated_after(client: Client, key: ObjectKey, *, since: int) -> RawObject:
    """The claim in the first state after a revision that has an allocation, which may be gone again."""
    async for event in client.watch(CLAIMS, ObjectKey(key.namespace, ""), since=since):
        if key_of(event.object) == key and is_allocated(event.object):
            return event.object
    raise AssertionError("the watch has ended")


def devices_of(claim_object: RawObject) -> list[str]:
    return [each["device"] for each in claim_object["status"]["allocation"]["devices"]["results"]]


async def test_a_write_that_lands_after_a_restart(client: Client, plane: ControlPlane, namespace: str) -> None:
    """The extender is killed with an allocation on its way, and gives the device away before that arrives."""
    async with fleet(client, nodes=1, devices=1) as (node,), pair(client, plane) as ours:
        hold = Hold()
        ours.proxy.on("PUT", CLAIM_STATUS, hold)
        late = await add_pod(client, namespace, "late")
        await hold.held()
        await client.patch(NODES, ObjectKey("", node), {"spec": {"unschedulable": True}})
        ours.kill()
        await ours.restart()
        anywhere = [{"operator": "Exists"}]
        other = await add_pod(client, namespace, "other", tolerations=anywhere)
        await bound(client, key_of(other))
        before = int((await client.get(CLAIMS, key_of(late)))["metadata"]["resourceVersion"])
        await hold.release()
        landed = await allocated_after(client, key_of(late), since=before)
        assert devices_of(landed) == devices_of(await client.get(CLAIMS, key_of(other)))

        await client.patch(NODES, ObjectKey("", node), {"spec": {"unschedulable": None}})
        await client.wait_for(CLAIMS, key_of(late), lambda obj: not is_allocated(obj))
        assert await findings(client, namespace) == []
        await wait_settled(client, namespace, within=SECONDS)
        await client.delete(PODS, key_of(other))
        await bound(client, key_of(late))
        assert await losses(client, namespace) == []


async def test_of_two_extenders_the_later_gives_way(client: Client, plane: ControlPlane, namespace: str) -> None:
    async with (
        fleet(client, nodes=1, devices=1),
        pair(client, plane) as ours,
        pair(client, plane, RIVAL) as rival,
    ):
        first, second = await lands_late(client, namespace, first=ours.name, second=RIVAL, delayed=rival.proxy)
        assert await rejection(client, ObjectKey(namespace, second), about="no free device")
        assert not is_allocated(await client.get(CLAIMS, ObjectKey(namespace, second)))
        assert await double_allocations(rival) == 1
        await told_of_clash(client, namespace, second)
        assert await findings(client, namespace) == []
        assert await losses(client, namespace) == []
        await client.delete(PODS, ObjectKey(namespace, first))
        assert await bound(client, ObjectKey(namespace, second))


@pytest.mark.every_version
async def test_two_extenders_compete(client: Client, plane: ControlPlane, namespace: str) -> None:
    """Twice as many pods as devices, from both at once; then the rest, when there is room."""
    async with (
        fleet(client, nodes=2, devices=6) as nodes,
        pair(client, plane),
        pair(client, plane, RIVAL),
    ):
        pods = [
            await add_pod(client, namespace, f"{name}-{number}", scheduler=name)
            for number in range(12)
            for name in (SHIPPED_NAME, RIVAL)
        ]
        served = await bound_of(client, namespace, 12)
        await wait_settled(client, namespace, within=SECONDS)
        assert await findings(client, namespace) == []
        assert await taken(client, namespace) == [(node, f"gpu-{number}") for node in nodes for number in range(6)]

        for each in served:
            await client.delete(PODS, each)
        await bound_of(client, namespace, len(pods) - len(served))
        assert await findings(client, namespace) == []
        assert await losses(client, namespace) == []


class TestInTree:
    async def test_it_comes_second_and_does_not_look(self, client: Client, plane: ControlPlane, namespace: str) -> None:
        """Nobody can help that; ours is the earlier write, and stays."""
        async with fleet(client, nodes=1, devices=1), in_tree(plane) as theirs, pair(client, plane) as ours:
            first, second = await lands_late(client, namespace, first=ours.name, second=IN_TREE, delayed=theirs)
            await bound(client, ObjectKey(namespace, second))
            assert len(await findings(client, namespace)) == 1, "the audit does"
            assert is_allocated(await client.get(CLAIMS, ObjectKey(namespace, first)))
            await told_of_clash(client, namespace, second)
            assert await double_allocations(ours) == 1

    async def test_ours_comes_second_and_gives_way(self, client: Client, plane: ControlPlane, namespace: str) -> None:
        async with fleet(client, nodes=1, devices=1), in_tree(plane), pair(client, plane) as ours:
            _, second = await lands_late(client, namespace, first=IN_TREE, second=ours.name, delayed=ours.proxy)
            assert await rejection(client, ObjectKey(namespace, second), about="no free device")
            assert await double_allocations(ours) == 1
            await told_of_clash(client, namespace, second)
            assert await findings(client, namespace) == []
            assert await losses(client, namespace) == []

    async def test_in_every_clash_of_ours_it_is_the_earlier_write(
        self, client: Client, plane: ControlPlane, namespace: str
    ) -> None:
        """Clashes of theirs with theirs happen, too.

        Where a claim of ours gives way, the in-tree plugin takes the device for free although one of its own has it: it
        keeps a set of devices, and does not count who holds them (1.36.3, dynamicresources/allocateddevices.go).
        """
        async with (
            fleet(client, nodes=2, devices=8),
            in_tree(plane),
            pair(client, plane) as ours,
            asyncio.TaskGroup() as tasks,
        ):
            since = (await client.list(CLAIMS, namespace)).revision
            watching = tasks.create_task(allocating_revisions(client, namespace, since=since, until="end"))
            for number in range(12):
                await add_pod(client, namespace, f"ours-{number}")
                await add_pod(client, namespace, f"theirs-{number}", scheduler=IN_TREE)
            await bound_of(client, namespace, 16)
            await wait_settled(client, namespace, within=SECONDS)
            snapshot = await listed(client)
            await client.create(CLAIMS, claim(namespace, "end"))
            revisions = await watching
            found = audit_snapshot(snapshot)
            await counted_clashes(ours, len(found))
            for finding in found:
                names = [name.removeprefix(f"{namespace}/") for name in finding.claims]
                if any(name.startswith("ours-") for name in names):
                    assert min(names, key=revisions.__getitem__).startswith("ours-"), finding
