"""Containers with claims run on the CPUs of their claims, and all others on the rest."""

import asyncio
import socket
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from extender.kube.connection.credentials import Origin
from extender.node.compute import CPU_DRIVER
from extender.node.compute_running import (
    ComputeError,
    Places,
    check_managers,
    check_reserved,
    recover,
    run_compute,
    topology_policy,
)
from extender.node.driver import AllocatedClaim, AllocatedDevice, DriverParameters, PrepareError
from extender.node.store import ResourceStore, StoreError
from extender.node.topology import Topology
from tests.extender.node.cci_scenes import EIGHT
from tests.extender.node.compute_scenes import MACHINE, Node, claim, connected, given
from tests.extender.node.test_node_plugin import claim as claim_object
from tests.kit.nri_runtime import FakeRuntime, container
from tests.kit.servers.memory import memory_api

UID = "0123456789abcdef0123456789abcdef-123"


async def test_others_leave_the_cpus_before_a_claim_is_prepared_and_get_them_back(folder: Path) -> None:
    node, runtime = Node.started(folder), FakeRuntime({"plain": container("plain")})
    async with connected(node, runtime, folder):
        assert runtime.cpus() == {"plain": ""}, "without claims, nothing is changed"
        cdi = await given(node, "a", "cpu-1", "cpu-3")
        assert runtime.cpus() == {"plain": "0,2"}
        await runtime.create("own", *cdi)
        await runtime.create("half", cdi[1])
        await runtime.create("later")
        assert runtime.cpus() == {"plain": "0,2", "own": "1,3", "half": "3", "later": "0,2"}

        await runtime.stop("own")
        await runtime.stop("half")
        await node.cpus.unprepare("uid-a")
        assert runtime.cpus() == {"plain": "0-3", "later": "0-3"}
        await runtime.create("last")
        assert runtime.cpus()["last"] == ""


async def test_nothing_runs_beside_a_core_that_a_claim_wants_without_its_sibling(folder: Path) -> None:
    node, runtime = Node.started(folder, EIGHT), FakeRuntime({"plain": container("plain")})
    alone = {"cores": ["2"], "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-DENIED"]]}
    devices = tuple(
        AllocatedDevice(f"cores-0-{core}/whole", "n", f"cpu-{core + 1 + thread}")
        for core in (0, 1)
        for thread in (0, 4)
    )
    async with connected(node, runtime, folder):
        prepared = await node.cpus.prepare(AllocatedClaim("ns", "a", "uid-a", devices, (DriverParameters((), alone),)))
        await runtime.create("own", *(cdi for each in prepared for cdi in each.cdi_ids))
        assert runtime.cpus() == {"plain": "0,3-4,7", "own": "1-2"}


async def test_a_claim_for_memory_binds_its_containers_to_the_numa_node(folder: Path) -> None:
    node, runtime = Node.started(folder), FakeRuntime()
    async with connected(node, runtime, folder):
        prepared = await node.memory.prepare(claim("m", "memory-1"))
        await runtime.create("own", *(cdi for each in prepared for cdi in each.cdi_ids))
        await runtime.create("plain")
        assert runtime.memory_nodes() == {"own": "1", "plain": ""}


async def test_a_node_part_that_was_killed_knows_the_claims_and_moves_what_came_meanwhile(folder: Path) -> None:
    runtime = FakeRuntime()
    async with connected(node := Node.started(folder), runtime, folder):
        await runtime.create("own", *await given(node, "a", "cpu-1"))
    runtime.containers["meanwhile"] = container("meanwhile")
    async with connected(Node.started(folder), runtime, folder):
        assert runtime.cpus() == {"own": "1", "meanwhile": "0,2-3"}


async def test_cpus_of_containers_that_run_are_kept_if_the_store_has_lost_their_claim(folder: Path) -> None:
    cdi = f"dra.cpu/claim={UID}-cpus-cpu-2"
    node, runtime = Node.started(folder), FakeRuntime({"own": container("own", cdi, cpus="2"), "p": container("p")})
    async with connected(node, runtime, folder):
        assert runtime.cpus() == {"own": "2", "p": "0-1,3"}
        with pytest.raises(PrepareError, match=f"claim ns/b: CPU 2 is of claim with uid {UID}"):
            await given(node, "b", "cpu-2")
        await node.cpus.unprepare(UID)
        assert runtime.cpus()["p"] == "0-3"


async def test_a_claim_waits_for_the_runtime_and_for_containers_that_cannot_be_moved(folder: Path) -> None:
    node, runtime = Node.started(folder), FakeRuntime({"plain": container("plain")}, broken={"plain"})
    with pytest.raises(PrepareError, match="cannot be kept off the CPUs of the claim: the container runtime is not"):
        await given(node, "a", "cpu-1")
    async with connected(node, runtime, folder):
        with pytest.raises(PrepareError, match="the container runtime could not move containers off: ns/p/main"):
            await given(node, "b", "cpu-2")
        runtime.broken.clear()
        await given(node, "b", "cpu-2")
        assert runtime.cpus() == {"plain": "0,3"}
    with pytest.raises(PrepareError, match="is not connected"):
        await given(node, "c", "cpu-3")


async def test_a_container_that_is_made_while_a_claim_gets_cpus_leaves_them_too(folder: Path) -> None:
    node, runtime = Node.started(folder), FakeRuntime()
    async with connected(node, runtime, folder):
        await runtime.create("plain", whole=False)
        await given(node, "a", "cpu-1")
        assert runtime.cpus() == {"plain": ""}, "the runtime cannot update it yet"
        await runtime.finish("plain")
        async with asyncio.timeout(10):
            await runtime.updated.wait()
        assert runtime.cpus() == {"plain": "0,2-3"}


async def test_many_containers_are_moved_at_once(folder: Path) -> None:
    runtime = FakeRuntime({f"c{number:064}": container(f"c{number:064}") for number in range(300)})
    node = Node.started(folder)
    async with connected(node, runtime, folder):
        await given(node, "a", "cpu-1")
        assert set(runtime.cpus().values()) == {"0,2-3"}


async def test_what_could_not_be_written_is_written_with_the_next_call(folder: Path) -> None:
    node = Node.started(folder)
    async with connected(node, FakeRuntime(), folder):
        await given(node, "a", "cpu-1")
        (folder / "state.new").mkdir()
        with pytest.raises(PrepareError, match="state: Is a directory"):
            await given(node, "b", "cpu-2")
        with pytest.raises(PrepareError, match="state: Is a directory"):
            await node.cpus.unprepare("uid-a")
        (folder / "state.new").rmdir()
        await given(node, "b", "cpu-2")
        await node.cpus.unprepare("uid-a")
        assert [each.claim for each in Node.started(folder).store.sets.values()] == ["ns/b"]


async def test_variables_of_a_container_give_it_no_cpus(folder: Path) -> None:
    node, runtime = Node.started(folder), FakeRuntime()
    async with connected(node, runtime, folder):
        (cdi,) = await given(node, "a", "cpu-1")
        await runtime.create("own", cdi, env=("DRA_DEVICE_CPU_1=n", "DRA_DEVICE_CPU_2=n"))
        await runtime.create("other", "gpu.example.com/claim=x", env=(f"DRA_DEVICE_CPU_1={cdi}",))
        assert runtime.cpus() == {"own": "1", "other": "0,2-3"}


async def test_a_runtime_that_does_not_tell_cdi_devices_starts_no_container_with_a_claim(folder: Path) -> None:
    node, runtime = Node.started(folder), FakeRuntime()
    async with connected(node, runtime, folder):
        await runtime.create("plain", env=("PATH=/bin",))
        with pytest.raises(AssertionError, match="does not tell plugins the CDI devices of containers"):
            await runtime.create("own", env=("DRA_DEVICE_CPU_1=n",))


async def test_a_claim_keeps_a_cpu_that_has_gone_offline_since_when_the_kubelet_prepares_it_again(folder: Path) -> None:
    alone = {"cores": ["2"], "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-DENIED"]]}
    devices = tuple(AllocatedDevice("cores-0-0/whole", "n", f"cpu-{number}") for number in (1, 5, 2, 6))
    asked = AllocatedClaim("ns", "a", "uid-a", devices, (DriverParameters((), alone),))
    before, runtime = Node.started(folder, EIGHT), FakeRuntime()
    async with connected(before, runtime, folder):
        prepared = await before.cpus.prepare(asked)
        await runtime.create("own", *(cdi for each in prepared for cdi in each.cdi_ids))
    smaller = Topology.of([each for each in EIGHT.cpus if each.number != 2], EIGHT.memory)
    node = Node.started(folder, smaller)
    async with connected(node, runtime, folder):
        assert await node.cpus.prepare(asked) == prepared
        assert node.store.sets["dra.cpu/uid-a"].cpus == before.store.sets["dra.cpu/uid-a"].cpus
        with pytest.raises(PrepareError, match="claim ns/b: device cpu-2 is not of this node, or reserved"):
            await given(node, "b", "cpu-2")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (claim("b", "cpu-1"), "claim ns/b: CPU 1 is of claim ns/a"),
        (claim("b", "cpu-0"), "claim ns/b: device cpu-0 is not of this node, or reserved"),
        (claim("b", "cpu-9"), "claim ns/b: device cpu-9 is not of this node, or reserved"),
        (claim("b", "cpu-2", admin=True), "claim ns/b: request cpus: adminAccess has no meaning for cpu-2"),
    ],
)
async def test_what_cannot_be_had_is_refused(folder: Path, asked: AllocatedClaim, problem: str) -> None:
    node = Node.started(folder)
    async with connected(node, FakeRuntime(), folder):
        await given(node, "a", "cpu-1")
        with pytest.raises(PrepareError, match=problem):
            await node.cpus.prepare(asked)


async def test_a_damaged_store_is_set_aside_and_filled_from_the_claims_that_are_prepared(folder: Path) -> None:
    before = Node.started(folder)
    async with connected(before, FakeRuntime(), folder):
        await before.cpus.prepare(claim("a", "cpu-1"))
        await before.cpus.prepare(claim("gone", "cpu-2"))
    state = folder / "state"
    state.write_bytes(b"x")
    device = {"request": "cpus", "driver": CPU_DRIVER, "pool": "n", "device": "cpu-1"}
    api = memory_api(claim_object("a", device), claim_object("not-prepared", {**device, "device": "cpu-3"}))
    store = ResourceStore(MACHINE.numbers - {0})
    with pytest.raises(StoreError, match="state: is damaged"):
        store.load(state)
    await recover(api, (before.cpus, before.memory), store, state, "is damaged")
    assert store.sets == {key: each for key, each in before.store.sets.items() if each.claim == "ns/a"}
    assert (folder / "state.damaged-1").read_bytes() == b"x"
    assert Node.started(folder).store.sets == store.sets


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (
            "cpu_manager_state",
            '{"policyName": "static"}',
            "kubelet's CPU manager has the policy static, and would move",
        ),
        ("cpu_manager_state", "{", "cannot be read, so the policy of the kubelet's CPU manager is not known"),
        ("memory_manager_state", '{"policyName": "Static"}', "set memoryManagerPolicy to None in the kubelet's"),
        ("memory_manager_state", "[]", "cannot be read, so the policy of the kubelet's memory manager is not known"),
    ],
)
def test_a_kubelet_that_gives_cpus_or_memory_away_itself_is_refused(
    tmp_path: Path, file: str, text: str, problem: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ComputeError, match=problem):
        check_managers(tmp_path)


@pytest.mark.parametrize("has_files", [False, True])
def test_a_kubelet_without_policies_is_accepted(tmp_path: Path, *, has_files: bool) -> None:
    if has_files:
        (tmp_path / "cpu_manager_state").write_text('{"policyName": "none"}')
        (tmp_path / "memory_manager_state").write_text('{"policyName": "None"}')
    check_managers(tmp_path)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("kind: KubeletConfiguration\ntopologyManagerPolicy: single-numa-node\n", "single-numa-node"),
        ("topologyManagerPolicy: none\n", ""),
        ("kind: KubeletConfiguration\n", ""),
        ("", ""),
        ("- no configuration\n", ""),
        (None, ""),
    ],
    ids=["a policy", "none", "default", "empty", "unreadable", "no file"],
)
def test_a_policy_of_the_topology_manager_is_known_where_the_kubelets_configuration_is(
    tmp_path: Path, text: str | None, policy: str
) -> None:
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    assert topology_policy(tmp_path) == policy


async def test_a_policy_of_the_topology_manager_is_told_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("topologyManagerPolicy: restricted\n")
    with socket.create_server(("0.0.0.0", 0)) as taken, capture_logs() as logs:
        places = Places(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path)
        with pytest.raises(ComputeError, match="--metrics-port"):
            await run_compute(Origin(), "node-1", MACHINE, {0}, places, taken.getsockname()[1])
    assert [(each["event"], each["policy"]) for each in logs] == [("topologyManagerPolicy", "restricted")]


async def test_a_port_for_metrics_that_is_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        kubelet, cdi, state, nri, cci = (tmp_path / each for each in ("kubelet", "cdi", "state", "nri", "cci"))
        places = Places(kubelet, cdi, state, nri, cci)
        with pytest.raises(ComputeError, match=f"--metrics-port {port}: Address already in use"):
            await run_compute(Origin(), "node-1", MACHINE, {0}, places, port)


@pytest.mark.parametrize(
    ("reserved", "problem"),
    [((), "names no CPU: containers without claims need one"), ((0, 7), "CPU 7 is not online: 0-3 are")],
)
def test_other_containers_always_have_a_cpu(reserved: tuple[int, ...], problem: str) -> None:
    with pytest.raises(ComputeError, match=problem):
        check_reserved(reserved, MACHINE)
