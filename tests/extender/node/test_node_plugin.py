"""A driver on a node: what the kubelet asks at its sockets, and what the runtime finds in CDI files."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from extender.lab.api import MemoryApi
from extender.node.cdi import CdiFolder
from extender.node.mock import MockDriver
from extender.node.plugin import SERVICE, Sockets, serving
from extender.node.sockets import SocketError
from tests.kit.kubelet import ask, plugin_info, prepare, tell_registered, unprepare
from tests.kit.servers.memory import memory_api

DRIVER = "gpu.example.com"


def named(name: str, uid: str = "") -> dict[str, str]:
    """A claim as the kubelet names it."""
    return {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}"}


def result(device: str, request: str = "gpu", driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": driver, "pool": "node-1", "device": device, **more}


def claim(name: str, *results: dict[str, Any], config: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """A claim; without results, it is not allocated."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    allocation = {"devices": {"results": list(results), "config": list(config)}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": spec,
        "status": {"allocation": allocation} if results else {},
    }


def opaque(parameters: dict[str, Any], *requests: str, source: str = "FromClaim", driver: str = DRIVER) -> Any:
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


@asynccontextmanager
async def running(folder: Path, api: MemoryApi, accepted: list[str] | None = None) -> AsyncIterator[Sockets]:
    """The sockets of a mock driver that serves."""
    sockets, seen = Sockets.of(DRIVER, folder), [] if accepted is None else accepted
    async with serving(MockDriver(CdiFolder(folder / "cdi", DRIVER)), api, sockets, lambda: seen.append("accepted")):
        yield sockets


def files(folder: Path) -> dict[str, Any]:
    """The CDI files, by name."""
    return {path.name: json.loads(path.read_text()) for path in (folder / "cdi").iterdir()}


def variables(folder: Path) -> list[str]:
    """What all CDI files set."""
    return [env for spec in files(folder).values() for each in spec["devices"] for env in each["containerEdits"]["env"]]


async def test_the_kubelet_learns_where_and_in_which_version_claims_are_prepared(folder: Path) -> None:
    accepted: list[str] = []
    async with running(folder, memory_api(), accepted) as sockets:
        assert sockets.registration == folder / "plugins_registry/gpu.example.com-reg.sock"
        info = await plugin_info(sockets.registration)
        assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(sockets.plugin))
        assert list(info.supported_versions) == ["v1.DRAPlugin"]
        await tell_registered(sockets.registration, error="no")
        assert accepted == []
        await tell_registered(sockets.registration)
        assert accepted == ["accepted"]


async def test_the_devices_of_a_claim_are_prepared_and_unprepared(folder: Path) -> None:
    other = result("port-0", request="nic", driver="nic.example.com")
    api = memory_api(claim("a", result("gpu-0"), result("gpu-1", request="more/large"), other))
    async with running(folder, api) as sockets:
        answer = (await prepare(sockets.plugin, named("a")))["uid-a"]
        assert answer.error == ""
        assert [(list(each.request_names), each.pool_name, each.device_name) for each in answer.devices] == [
            (["gpu"], "node-1", "gpu-0"),
            (["more"], "node-1", "gpu-1"),
        ]
        spec = files(folder)["gpu.example.com-uid-a.json"]
        ids = [name for each in answer.devices for name in each.cdi_device_ids]
        assert ids == [f"gpu.example.com/claim={each['name']}" for each in spec["devices"]]
        assert variables(folder) == [
            "DEVICE_GPU_0=gpu.example.com/node-1/gpu-0",
            "DEVICE_GPU_1=gpu.example.com/node-1/gpu-1",
        ]
        assert (await prepare(sockets.plugin, named("a")))["uid-a"] == answer, "a second call changes nothing"
        assert await unprepare(sockets.plugin, named("a"), named("never-prepared")) == {
            "uid-a": "",
            "uid-never-prepared": "",
        }
        assert files(folder) == {}


async def test_shares_of_a_device_have_names_of_their_own(folder: Path) -> None:
    shares = [result("gpu-0", shareID=each) for each in ("share-1", "share-2")]
    async with running(folder, memory_api(claim("a", *shares), claim("b", result("gpu-0", shareID="share-3")))) as at:
        found = await prepare(at.plugin, named("a"), named("b"))
        devices = [each for answer in found.values() for each in answer.devices]
        assert sorted(each.share_id for each in devices) == ["share-1", "share-2", "share-3"]
        assert len({name for each in devices for name in each.cdi_device_ids}) == 3


async def test_all_parameters_of_class_and_claim_reach_the_container(folder: Path) -> None:
    config = (
        opaque({"mode": "claim"}, "gpu"),
        opaque({"clock": 2}),
        opaque({"mode": "class"}, source="FromClass"),
        opaque({"mode": "other request"}, "other"),
        opaque({"mode": "other driver"}, driver="nic.example.com"),
    )
    async with running(folder, memory_api(claim("a", result("gpu-0"), config=config))) as sockets:
        await prepare(sockets.plugin, named("a"))
        told = 'DEVICE_PARAMETERS_GPU=[{"mode": "class"}, {"mode": "claim"}, {"clock": 2}]'
        assert told in variables(folder)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (named("gone"), "claim ns/gone: "),
        (named("a", "uid-of-before"), "metadata.uid is uid-a, and the pod's claim was uid-of-before: it was replaced"),
        (named("waiting"), "claim ns/waiting: status.allocation is missing: the claim is not allocated"),
        (named("b"), "claim ns/b: device node-1/gpu-0 is prepared for another claim, with uid uid-a"),
    ],
)
async def test_a_claim_that_cannot_be_prepared_has_its_reason_and_keeps_no_other_claim_waiting(
    folder: Path, asked: dict[str, str], problem: str
) -> None:
    api = memory_api(claim("a", result("gpu-0")), claim("b", result("gpu-0")), claim("waiting"))
    async with running(folder, api) as sockets:
        found = await prepare(sockets.plugin, named("a"), asked)
        assert problem in found[asked["uid"]].error
        assert found["uid-a"].error == ""
        assert list(files(folder)) == ["gpu.example.com-uid-a.json"]


async def test_a_device_that_is_shared_by_admin_access_is_prepared_for_both(folder: Path) -> None:
    api = memory_api(claim("a", result("gpu-0")), claim("admin", result("gpu-0", adminAccess=True)))
    async with running(folder, api) as sockets:
        found = await prepare(sockets.plugin, named("a"), named("admin"))
        assert [each.error for each in found.values()] == ["", ""]


async def test_a_cdi_file_that_cannot_be_read_stops_what_could_be_given_twice(folder: Path) -> None:
    (folder / "cdi").mkdir()
    (folder / "cdi/gpu.example.com-uid-x.json").write_text("{")
    async with running(folder, memory_api(claim("a", result("gpu-0")))) as sockets:
        answer = (await prepare(sockets.plugin, named("a")))["uid-a"]
        assert "gpu.example.com-uid-x.json: cannot be read, so it is not known which devices are in use" in answer.error


async def test_what_is_no_message_is_refused(folder: Path) -> None:
    async with running(folder, memory_api()) as sockets:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(sockets.plugin, SERVICE, "NodePrepareResources", b"\xff")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_socket_of_a_killed_driver_is_made_again_and_that_of_a_running_one_is_not(folder: Path) -> None:
    sockets = Sockets.of(DRIVER, folder)
    sockets.registration.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(sockets.registration))
    async with running(folder, memory_api()):
        assert (await plugin_info(sockets.registration)).name == DRIVER
        with pytest.raises(SocketError, match=r"dra\.sock: another process listens there: a driver of this name runs"):
            async with running(folder, memory_api()):
                pass


async def test_a_path_that_is_too_long_for_a_socket_is_refused(folder: Path) -> None:
    with pytest.raises(SocketError, match="the path of a socket has at most 107 bytes"):
        async with running(folder / ("x" * 100), memory_api()):
            pass
