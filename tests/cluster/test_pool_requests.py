"""ResourcePoolStatusRequests: our answers are those of Kubernetes' controller, and are given where it does not run."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from extender.faces.commands.audit import listed
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, POOL_REQUESTS, SLICES, TAINT_RULES
from extender.plugins.pool_requests import answer_to, parse_pool_request
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, connect, key_of
from tests.kit.controlplane.components import Options, control_plane
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.objects.manifests import DRIVER, allocation, claim, resource_slice
from tests.kit.objects.parts import api_object

MULTIPLE = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
PROFILE = f"{DRIVER}/profile"
CONTROLLER = "resourcepoolstatusrequest-controller"


def partition(name: str, profile: str, amount: str) -> RawObject:
    needed = {"counterSet": "all", "counters": {"slices": {"value": amount}}}
    return {"name": name, "attributes": {"profile": {"string": profile}}, "consumesCounters": [needed]}


def divided(node: str, *partitions: RawObject, **spec: object) -> list[RawObject]:
    """A pool of two slices: counters, and partitions."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    counters = resource_slice(f"{node}-counters", node, [])
    sets = [{"name": "all", "counters": {"slices": {"value": "7"}}}]
    parts = resource_slice(node, node, partitions)
    counters["spec"] = {name: v for name, v in counters["spec"].items() if name != "devices"}
    counters["spec"] |= {"pool": pool, "sharedCounters": sets}
    parts["spec"] |= {"pool": pool, **spec}
    return [counters, parts]


def shares(*amounts: str) -> RawObject:
    held = allocation(*["gpu-0"] * len(amounts), node="shared")
    for index, (result, amount) in enumerate(zip(held["devices"]["results"], amounts, strict=True)):
        result |= {"consumedCapacity": {"memory": amount}, "shareID": f"c2a5e2a8-33c5-4a5f-a7d1-1d2c3b4a5f6{index}"}
    return held


PARTS = [partition("whole", "7g", "7"), partition("half-0", "3g", "3"), partition("half-1", "3g", "3")]
UNEVEN = [partition("x", "3g", "3"), partition("y", "3g", "4")]
TAINTED = {"name": "gpu-9", "taints": [{"key": "broken", "effect": "NoExecute"}]}
WORLD: list[RawObject] = [
    resource_slice("plain", "plain", [{"name": "gpu-0"}, {"name": "gpu-1"}, {"name": "gpu-2"}, TAINTED]),
    resource_slice("shared", "shared", [{"name": "gpu-0", **MULTIPLE}, {"name": "gpu-1", **MULTIPLE}]),
    *divided("grouped", *PARTS, partitionTypeAttribute=PROFILE),
    *divided("ungrouped", *PARTS),
    *divided("uneven", *UNEVEN, partitionTypeAttribute=PROFILE),
]
HELD = {
    "one": allocation("gpu-0", node="plain"),
    "half": allocation("half-0", node="grouped"),
    "shares": shares("1Gi", "2.5Gi"),
}
RULE = api_object(
    "DeviceTaintRule",
    "rule",
    spec={"deviceSelector": {"pool": "plain", "device": "gpu-1"}, "taint": {"key": "old", "effect": "NoSchedule"}},
)
REQUESTS: dict[str, RawObject] = {
    "all": {},
    "one-pool": {"poolName": "shared"},
    "limited": {"limit": 2},
    "by-request": {"defaultPartitionTypeAttribute": PROFILE, "poolName": "ungrouped"},
    "none": {"poolName": "nowhere"},
}


@asynccontextmanager
async def asked(client: Client) -> AsyncIterator[Callable[[RawObject], RawObject]]:
    """A world and requests about it; yields what we answer to a request."""
    for each in WORLD:
        await client.create(SLICES, each)
    await client.create(TAINT_RULES, RULE)
    for name, held in HELD.items():
        made = await client.create(CLAIMS, claim("default", name))
        await client.update_status(CLAIMS, {**made, "status": {"allocation": held}})
    snapshot = await listed(client, (SLICES, CLAIMS, TAINT_RULES))
    for name, spec in REQUESTS.items():
        made = api_object("ResourcePoolStatusRequest", name, spec={"driver": DRIVER, **spec})
        alpha = {"apiVersion": "resource.k8s.io/v1alpha3"}
        await client.speaking("v1alpha3").create(POOL_REQUESTS, made | alpha)
    yield lambda request: answer_to(parse_pool_request(request), snapshot).status


async def answered(client: Client, name: str) -> RawObject:
    """A request, once it has its answer."""
    speaking = client.speaking("v1alpha3")
    found = await speaking.wait_for(POOL_REQUESTS, ObjectKey("", name), lambda obj: bool(obj and obj.get("status")))
    assert found
    return found


@pytest.mark.every_version
@pytest.mark.parametrize("controller", [(CONTROLLER,), ()], ids=["theirs", "ours"])
async def test_answers_equal_those_of_the_controller_and_come_without_it(
    binaries: Binaries, logs: Path, tmp_path: Path, kubernetes: str, controller: tuple[str, ...]
) -> None:
    if kubernetes == "1.36":
        pytest.skip("the first alpha of 1.36 has other fields")
    folder = logs / f"pool-status-{len(controller)}"
    folder.mkdir()
    options = Options(
        feature_gates={"DRAResourcePoolStatus": True, "DRAPartitionableDevicesType": True},
        runtime_config={"resource.k8s.io/v1alpha3": True},
        more_controllers=controller,
    )
    with control_plane(binaries, tmp_path, folder, options) as plane:
        async with connect(plane.access()) as client, asked(client) as ours:
            await grant_rights(client)
            async with running_extender(plane):
                for name in REQUESTS:
                    found = await answered(client, name)
                    conditions = found["status"].pop("conditions")
                    assert found["status"] == ours(found), key_of(found)
                    assert [each["type"] for each in conditions] == ["Complete"]
