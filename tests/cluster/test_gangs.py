"""Pods of gangs on a real control plane: 64 gangs of 8 want 16 times 8 devices; 16 run whole, none half.

Groups are named by annotations, and by PodGroups with the scheduler's plugin GangScheduling.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from httpx import AsyncClient

from allocator.model.optional import OPTIONAL_REQUESTS
from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, EVENTS, NODES, POD_GROUPS, PODS, SLICES, TEMPLATES
from extender.plugins.gangs.in_part import IN_PART, WHOLE
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.controlplane.pair import Pair, pair
from tests.kit.controlplane.scenario import findings
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, device_class, is_bound, pod, resource_slice, template
from tests.kit.objects.manifests import namespace as namespace_of
from tests.kit.objects.parts import api_object
from tests.kit.waiting import wait_for_answer

FLEET = [f"fleet-{number}" for number in range(16)]
GPUS: list[RawObject] = [{"name": f"gpu-{number}"} for number in range(8)]
GANGS, SIZE = 64, 8
SECONDS = 300.0


@pytest.fixture
async def fleet(client: Client, plane: ControlPlane) -> AsyncIterator[Pair]:
    """The fleet on the control plane that the tests share."""
    async with a_fleet(client, plane) as running:
        yield running


@asynccontextmanager
async def a_fleet(
    client: Client, plane: ControlPlane, *, names: Sequence[str] = FLEET, gates: str = ""
) -> AsyncIterator[Pair]:
    """Nodes with 8 devices each, and an extender with a scheduler of its own, with some feature gates on."""
    await client.create(CLASSES, device_class())
    for name in names:
        await add_node(client, name)
        await client.create(SLICES, resource_slice(name, name, GPUS))
    async with pair(client, plane, gates=gates) as running:
        yield running
    for name in names:
        await client.delete(SLICES, ObjectKey("", name))
        await client.delete(NODES, ObjectKey("", name))
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


async def add_gangs(client: Client, namespace: str, *, in_pod_groups: bool = False) -> None:
    """The pods of all gangs, in an order in which the pods of one gang come far apart."""
    await client.create(TEMPLATES, template(namespace, "gpu"))
    used = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    for number in range(SIZE):
        for gang in range(GANGS):
            made = pod(namespace, f"gang-{gang}-{number}", claims=used, terminationGracePeriodSeconds=0)
            if in_pod_groups:
                made["spec"]["schedulingGroup"] = {"podGroupName": f"gang-{gang}"}
            else:
                made["metadata"]["annotations"] = {GROUP: f"gang-{gang}", GROUP_SIZE: str(SIZE)}
            await client.create(PODS, made)


async def bound_of(client: Client, namespace: str) -> Counter[str]:
    """How many pods of each gang have a node."""
    pods = (await client.list(PODS, namespace)).items
    return Counter(gang_of(each) for each in pods if is_bound(each))


def gang_of(pod: RawObject) -> str:
    """``gang-7`` of ``gang-7-0``."""
    name: str = pod["metadata"]["name"]
    return name.rpartition("-")[0]


async def wait_bound(client: Client, namespace: str, number: int) -> Counter[str]:
    """Wait until this number of pods has a node."""
    return await wait_for_answer(
        lambda: bound_of(client, namespace),
        lambda found: found.total() >= number,
        f"{number} pods run",
        within=SECONDS,
        every=0.5,
    )


async def end_some(client: Client, namespace: str, gangs: list[str]) -> None:
    for each in (await client.list(PODS, namespace)).items:
        if gang_of(each) in gangs:
            await client.delete(PODS, key_of(each))


async def test_sixteen_gangs_run_whole_and_none_half(client: Client, namespace: str, fleet: Pair) -> None:
    assert fleet.name
    await add_gangs(client, namespace)
    found = await wait_bound(client, namespace, len(FLEET) * len(GPUS))
    assert set(found.values()) == {SIZE}
    ended = sorted(found)[:4]
    await end_some(client, namespace, ended)
    await wait_bound(client, namespace, len(FLEET) * len(GPUS))
    after = await bound_of(client, namespace)
    assert set(after.values()) == {SIZE}
    assert not set(ended) & set(after)
    assert await findings(client, namespace) == []


@pytest.mark.nightly
async def test_sixteen_gangs_run_whole_although_the_extender_is_killed_amid(
    client: Client, namespace: str, fleet: Pair
) -> None:
    await add_gangs(client, namespace)
    for number in (4, 30, 60, 90):
        await wait_bound(client, namespace, number)
        fleet.kill()
        await fleet.restart()
    found = await wait_bound(client, namespace, len(FLEET) * len(GPUS))
    assert set(found.values()) == {SIZE}
    assert await findings(client, namespace) == []


GPU: RawObject = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": 1}
ONE_OR_TWO = {"spec": {"devices": {"requests": [{"name": name, "exactly": GPU} for name in ("gpu", "second")]}}}
FOUR_OR_ONE = {"spec": {"devices": {"requests": [
    {"name": "gpu", "firstAvailable": [{"name": "four", **GPU, "count": 4}, {"name": "one", **GPU}]}
]}}}  # fmt: skip


async def test_gangs_start_with_less_where_there_is_not_enough_for_the_best(
    client: Client, namespace: str, plane: ControlPlane
) -> None:
    """16 devices: 9 pods that would use two and need one, and then 8 pods that would use four and need one."""
    optional = {"metadata": {"annotations": {OPTIONAL_REQUESTS: "second"}}}
    wishes = {"optional": (9, optional | ONE_OR_TWO, {1: 2, 2: 7}), "ways": (8, FOUR_OR_ONE, {1: 6, 4: 2})}
    async with a_fleet(client, plane, names=FLEET[:2]):
        for gang, (size, wish, expected) in wishes.items():
            await client.create(TEMPLATES, template(namespace, gang) | {"spec": wish})
            for number in range(size):
                used = [{"name": "gpu", "resourceClaimTemplateName": gang}]
                made = pod(namespace, f"{gang}-{number}", claims=used, terminationGracePeriodSeconds=0)
                made["metadata"]["annotations"] = {GROUP: gang, GROUP_SIZE: str(size)}
                await client.create(PODS, made)
            await wait_bound(client, namespace, size)
            claims = (await client.list(CLAIMS, namespace)).items
            held = [each["status"]["allocation"]["devices"]["results"] for each in claims]
            assert Counter(map(len, held)) == expected
            assert await findings(client, namespace) == []
            await end_some(client, namespace, [gang])
            await wait_for_answer(
                lambda: client.list(CLAIMS, namespace),
                lambda found: not found.items,
                "the claims are gone",
                within=SECONDS,
            )


async def reasons(client: Client, namespace: str, reason: str) -> set[str]:
    """The pods that have an Event for this reason, with its note."""
    events = (await client.list(EVENTS, namespace)).items
    return {f"{each['regarding']['name']}: {each['note']}" for each in events if each["reason"] == reason}


async def wait_told(client: Client, namespace: str, reason: str, number: int) -> set[str]:
    """Wait until so many pods have an Event for this reason."""
    return await wait_for_answer(
        lambda: reasons(client, namespace, reason),
        lambda found: len(found) >= number,
        f"{number} pods are told of {reason}",
        within=60.0,
        every=0.5,
    )


async def test_what_is_left_of_a_gang_after_an_eviction_is_told_and_a_successor_joins(
    client: Client, namespace: str, plane: ControlPlane, important: str
) -> None:
    """A pod of high priority evicts one of 8 pods that have all devices; the other 7 run on."""
    used = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]

    async def add(name: str, **spec: str) -> ObjectKey:
        made = pod(namespace, name, claims=used, terminationGracePeriodSeconds=0, **spec)
        if not spec:
            made["metadata"]["annotations"] = {GROUP: "train", GROUP_SIZE: str(SIZE)}
        await client.create(PODS, made)
        return ObjectKey(namespace, name)

    async with a_fleet(client, plane, names=FLEET[:1]) as running, AsyncClient(base_url=running.extender.url) as asking:
        await client.create(TEMPLATES, template(namespace, "gpu"))
        for number in range(SIZE):
            await add(f"train-{number}")
        await wait_bound(client, namespace, SIZE)
        boss = await add("boss", priorityClassName=important)
        await client.wait_for(PODS, boss, is_bound, within=60.0)
        left = {each["metadata"]["name"] for each in (await client.list(PODS, namespace)).items} - {"boss"}
        assert len(left) == SIZE - 1
        part = "group train runs in part: 7 of 8 pods have a node, and keep it with their devices"
        found = await wait_told(client, namespace, IN_PART, SIZE - 1)
        assert found == {f"{name}: {part}; no pod of the group waits for the rest" for name in left}
        successor = await add("train-next")
        waits = "waiting for devices for 1 of the 8 pods of group train: 7 have a node"
        assert waits in next(iter(await wait_told(client, namespace, "DevicesUnavailable", 1)))
        assert waits in (await asking.get(f"/explain/{namespace}/train-next")).text
        assert f"{part}; 1 more pod waits" in (await asking.get(f"/explain/{namespace}/{min(left)}")).text
        await client.delete(PODS, boss)
        await client.wait_for(PODS, successor, is_bound, within=60.0)
        assert len(await wait_told(client, namespace, WHOLE, SIZE - 1)) == SIZE - 1
        assert await findings(client, namespace) == []


VERSIONS = {"1.36": "v1alpha2", "1.37": "v1beta1"}
GATES = {"1.36": {"GenericWorkload": True, "GangScheduling": True}, "1.37": {"GenericWorkload": True}}


def pod_group(name: str, version: str) -> RawObject:
    spec = {"schedulingPolicy": {"gang": {"minCount": SIZE}}}
    return api_object("PodGroup", name, apiVersion=f"scheduling.k8s.io/{version}", namespace="gangs", spec=spec)


@pytest.mark.nightly
@pytest.mark.every_version
async def test_sixteen_pod_groups_run_whole_with_the_plugin_of_the_scheduler(
    binaries: Binaries, logs: Path, tmp_path: Path, kubernetes: str
) -> None:
    folder = logs / "gangs"
    folder.mkdir()
    version, gates = VERSIONS[kubernetes], GATES[kubernetes]
    options = Options(feature_gates=gates, runtime_config={f"scheduling.k8s.io/{version}": True})
    switches = ",".join(f"{gate}=true" for gate in gates)
    with control_plane(binaries, tmp_path, folder, options) as plane:
        async with connect(plane.access()) as client, a_fleet(client, plane, gates=switches) as running:
            await client.create(NAMESPACES, namespace_of("gangs"))
            groups = replace(POD_GROUPS, versions=(version,))
            for gang in range(GANGS):
                await client.create(groups, pod_group(f"gang-{gang}", version))
            await add_gangs(client, "gangs", in_pod_groups=True)
            await wait_bound(client, "gangs", 20)
            running.kill()
            await running.restart()
            found = await wait_bound(client, "gangs", len(FLEET) * len(GPUS))
            assert set(found.values()) == {SIZE}
            assert await findings(client, "gangs") == []
