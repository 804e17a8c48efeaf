"""The quick starts of dra-example-driver on a real node, with its own chart: ``make test-example-driver``.

EXAMPLE_DRIVER names its program for nodes, dra-example-kubeletplugin, and EXAMPLE_DRIVER_SOURCE the folder of its
repository, with its chart and its quick starts. Their pods name an image that cannot be had here, and no scheduler. So
they get the image of the tests, and dra-scheduler.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import orjson
import pytest
import pytest_asyncio
import yaml

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, SLICES, TEMPLATES
from tests.kit.controlplane.binaries import find_helm
from tests.kit.controlplane.client import NAMESPACES, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.scenario import findings
from tests.kit.node.binaries import NodeBinaries
from tests.kit.node.containerd import PROBE
from tests.kit.node.example_driver import (
    example_driver,
    gpus_in,
    install,
    prepared_by_example_driver,
    rendered,
)
from tests.kit.node.node import Node, running_node
from tests.kit.node.pods import RUN_SECONDS, end_all_pods, wait_running
from tests.kit.process import Process
from tests.kit.waiting import wait_for_answer, wait_until

RESOURCE: Final = "example.com/gpu"
QUICK_STARTS: Final = (
    "basic-resourceclaimtemplate",
    "basic-multiple-requests",
    "basic-resourceclaim-opaque-config",
    "basic-shared-claim-across-containers",
    "basic-shared-claim-across-pods",
    "cel-selector",
    "extended-resource-request",
    "prioritized-alternatives",
)
_KINDS: Final = {"Namespace": NAMESPACES, "ResourceClaimTemplate": TEMPLATES, "ResourceClaim": CLAIMS, "Pod": PODS}


def _named(variable: str) -> Path:
    if not (found := os.environ.get(variable)):
        pytest.skip(f"{variable} names nothing")
    return Path(found)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node(binaries: NodeBinaries) -> AsyncIterator[Node]:
    """The node, with this driver instead of that of the tests."""
    program, source = _named("EXAMPLE_DRIVER"), _named("EXAMPLE_DRIVER_SOURCE")
    chart = source / "deployments/helm/dra-example-driver"
    objects = rendered(find_helm(os.environ), chart, deviceClass__extendedResourceName=RESOURCE)

    async def installed(plane: ControlPlane, client: Client) -> Process:
        await install(client, objects)
        return example_driver(plane, program, objects)

    with TemporaryDirectory(prefix="dra-extender-") as folder:
        async with running_node(binaries, Path(folder), installed) as ready:
            yield ready


async def test_the_driver_publishes_its_slice(node: Node, client: Client) -> None:
    async def devices() -> list[str]:
        found = (await client.list(SLICES)).items
        return sorted(device["name"] for each in found for device in each["spec"]["devices"])

    assert node.driver.is_running
    eight = [f"gpu-{number}" for number in range(8)]
    await wait_for_answer(devices, eight.__eq__, "the slice of eight devices", within=RUN_SECONDS)


@pytest.mark.parametrize("name", QUICK_STARTS)
async def test_the_pods_of_a_quick_start_have_their_devices(node: Node, client: Client, name: str) -> None:
    assert node.driver.is_running
    folder = _named("EXAMPLE_DRIVER_SOURCE") / "demo/examples" / name
    objects = [each for file in sorted(folder.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text()) if each]
    for each in objects:
        await client.create(_KINDS[each["kind"]], _runnable(each))
    keys = [key_of(each) for each in objects if each["kind"] == "Pod"]
    for key in keys:
        await _check_devices(client, await wait_running(client, key))
    assert await findings(client, name) == []
    uids = {each["metadata"]["uid"] for each in (await client.list(CLAIMS, name)).items}
    assert set() < uids <= prepared_by_example_driver()
    await end_all_pods(client, name)
    wait_until(lambda: not uids & prepared_by_example_driver(), "the claims are unprepared", within=RUN_SECONDS)
    await client.delete(NAMESPACES, ObjectKey("", name))


def _runnable(obj: RawObject) -> RawObject:
    """The object, as it can run here."""
    if obj["kind"] != "Pod":
        return obj
    changes = {"image": PROBE, "imagePullPolicy": "Never", "command": None, "args": ["show"]}
    containers = [{**each, **changes} for each in obj["spec"]["containers"]]
    return {**obj, "spec": {**obj["spec"], "schedulerName": "dra-scheduler", "containers": containers}}


async def _check_devices(client: Client, pod: RawObject) -> None:
    """Each container sees the devices of the requests that it names, and of its extended resources."""
    of_pod = pod["status"].get("extendedResourceClaimStatus") or {}
    claims = {each["name"]: each.get("resourceClaimName", "") for each in pod["spec"].get("resourceClaims", ())}
    claims |= {each["name"]: each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses", ())}
    for container in pod["spec"]["containers"]:
        named = [(claims[each["name"]], each.get("request", "")) for each in container["resources"].get("claims", ())]
        mapped = [each for each in of_pod.get("requestMappings", ()) if each["containerName"] == container["name"]]
        named += [(of_pod["resourceClaimName"], each["requestName"]) for each in mapped]
        wanted: set[str] = set()
        for name, request in named:
            wanted |= _devices(await client.get(CLAIMS, ObjectKey(pod["metadata"]["namespace"], name)), request)
        seen = await _environment(client, pod, container["name"])
        assert gpus_in(seen) == wanted != set()
        assert seen["DRA_RESOURCE_DRIVER_NAME"] == "gpu.example.com"


def _devices(claim: RawObject, request: str) -> set[str]:
    """The devices of a request of a claim, or of all of them."""
    results = claim["status"]["allocation"]["devices"]["results"]
    return {each["device"] for each in results if request in ("", each["request"].partition("/")[0])}


async def _environment(client: Client, pod: RawObject, container: str) -> RawObject:
    key = key_of(pod)
    path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log?container={container}"

    async def ask() -> RawObject:
        try:
            return await client.read(path)
        except orjson.JSONDecodeError:
            return {}

    return await wait_for_answer(ask, bool, f"the environment of {container} of {key}", within=RUN_SECONDS)
