"""The ResourceSlices of a driver on its node: created, created again, replaced as a whole."""

import asyncio
import copy
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.kube.api import ApiError, ObjectKey, key_of
from extender.kube.resources import NODES, SLICES
from extender.lab.api import MemoryApi
from extender.node.running import INTERVAL_SECONDS, RETRY_SECONDS, Publisher
from tests.kit import virtualtime
from tests.kit.clusters import node
from tests.kit.servers.memory import Fault, Transport, memory_api
from tests.kit.virtualtime import in_virtual_time

DRIVER, NODE = "gpu.example.com", "node-1"


def spec(*devices: str, pool: str = NODE, count: int = 1, **fields: Any) -> dict[str, Any]:
    listed = [{"name": each, "capacity": {"memory": {"value": "1024Mi"}}} for each in devices]
    return {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": pool, "resourceSliceCount": count},
        "devices": listed,
        **fields,
    }


HALVES = (spec("gpu-0", count=2), spec("gpu-1", count=2))


async def published(api: MemoryApi) -> list[tuple[str, int, tuple[str, ...]]]:
    """Of each slice: pool, generation, devices."""
    return [
        (
            each["spec"]["pool"]["name"],
            each["spec"]["pool"]["generation"],
            tuple(device["name"] for device in each["spec"]["devices"]),
        )
        for each in sorted((await api.list(SLICES)).items, key=lambda each: str(each["metadata"]["name"]))
    ]


def cluster() -> MemoryApi:
    return memory_api(node(NODE))


async def test_slices_are_the_nodes_and_in_the_order_of_their_names() -> None:
    api = cluster()
    await Publisher(api, DRIVER, NODE, HALVES).publish()
    assert await published(api) == [(NODE, 1, ("gpu-0",)), (NODE, 1, ("gpu-1",))]
    first = min((await api.list(SLICES)).items, key=key_of)
    owner = await api.get(NODES, ObjectKey("", NODE))
    assert first["metadata"]["name"].startswith("0000-gpu.example.com-node-1-")
    assert first["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": owner["metadata"]["uid"], "controller": True}
    ]


@pytest.mark.parametrize("again", ["the same process", "another process"])
async def test_nothing_is_written_if_all_is_there(again: str) -> None:
    api = Transport(cluster())
    publisher = Publisher(api, DRIVER, NODE, HALVES)
    await publisher.publish()
    before = await api.api.list(SLICES)
    await (publisher if again == "the same process" else Publisher(api, DRIVER, NODE, HALVES)).publish()
    assert await api.api.list(SLICES) == before


async def test_a_slice_that_was_deleted_joins_the_generation_that_is_there() -> None:
    api = cluster()
    publisher = Publisher(api, DRIVER, NODE, HALVES)
    await publisher.publish()
    await api.delete(SLICES, key_of((await api.list(SLICES)).items[0]))
    await publisher.publish()
    assert await published(api) == [(NODE, 1, ("gpu-0",)), (NODE, 1, ("gpu-1",))]


async def test_new_devices_replace_the_pool_by_the_next_generation_and_other_pools_go() -> None:
    api = cluster()
    await Publisher(api, DRIVER, NODE, [*HALVES, spec("nic-0", pool="old")]).publish()
    await Publisher(api, DRIVER, NODE, [spec("gpu-2")]).publish()
    assert await published(api) == [(NODE, 2, ("gpu-2",))]


async def test_a_slice_that_somebody_changed_is_replaced() -> None:
    api = cluster()
    publisher = Publisher(api, DRIVER, NODE, [spec("gpu-0")])
    await publisher.publish()
    changed = copy.deepcopy((await api.list(SLICES)).items[0])
    changed["spec"]["devices"] = [{"name": "gpu-9"}]
    await api.update(SLICES, changed)
    await publisher.publish()
    assert await published(api) == [(NODE, 2, ("gpu-0",))]


async def test_slices_of_other_drivers_and_nodes_stay() -> None:
    api = cluster()
    others = [
        {**spec("gpu-0"), "driver": "nic.example.com"},
        {**spec("gpu-0"), "nodeName": "node-2"},
    ]
    for number, each in enumerate(others):
        each["pool"] = {**each["pool"], "generation": 1}
        obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"x{number}"}}
        await api.create(SLICES, {**obj, "spec": each})
    await Publisher(api, DRIVER, NODE, ()).publish()
    assert len((await api.list(SLICES)).items) == 2


async def test_fields_that_the_server_does_not_know_are_told_and_not_written_for_ever() -> None:
    def without_taints(stored: Any) -> Any:
        del stored["spec"]["devices"][0]["taints"]
        return stored

    tainted = spec("gpu-0")
    tainted["devices"][0]["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]
    inner = cluster()
    api = Transport(inner, {"create resourceslices": [Fault(reply=without_taints)]})
    publisher = Publisher(api, DRIVER, NODE, [tainted])
    with capture_logs() as logs:
        await publisher.publish()
    assert [each["fields"] for each in logs if each["event"] == "fields of slice not stored"] == [
        ["spec.devices[0].taints"]
    ]
    before = await inner.list(SLICES)
    await publisher.publish()
    assert await inner.list(SLICES) == before


@in_virtual_time
async def test_slices_come_back_when_a_kubelet_that_deleted_them_accepts_the_driver_and_after_failures() -> None:
    inner = cluster()
    api = Transport(inner, {"select resourceslices": [Fault(refused=ApiError(403, "Forbidden", "not now"))]})
    publisher = Publisher(api, DRIVER, NODE, [spec("gpu-0")])
    running = asyncio.create_task(publisher.run())
    await virtualtime.elapse(RETRY_SECONDS / 2)
    assert await published(inner) == []
    await virtualtime.elapse(RETRY_SECONDS)
    assert len(await published(inner)) == 1

    await inner.delete(SLICES, key_of((await inner.list(SLICES)).items[0]))
    publisher.wake()
    await virtualtime.elapse(2)
    assert len(await published(inner)) == 1

    await inner.delete(SLICES, key_of((await inner.list(SLICES)).items[0]))
    await virtualtime.elapse(INTERVAL_SECONDS)
    assert len(await published(inner)) == 1
    running.cancel()
