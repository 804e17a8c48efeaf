"""Runs the drivers of CPUs and memory on a node: reads the machine and the store, and follows the container runtime."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from extender.kube.api import Api, ApiError, ConnectError, OutcomeUnknownError
from extender.kube.connection.credentials import Origin
from extender.kube.permissions import Permission
from extender.kube.resources import CLAIMS
from extender.node import cpu_list
from extender.node.cci.admissions import SECONDS, CciMetrics
from extender.node.cdi import CdiFolder
from extender.node.compute import (
    CPU_DRIVER,
    MEMORY_DRIVER,
    ComputeDriver,
    ComputeManager,
    compute_drivers,
    cpu_slices,
    memory_slices,
)
from extender.node.driver import AllocatedClaim, PrepareError
from extender.node.nri import follow
from extender.node.plugin import allocated_claim
from extender.node.running import PublishedDriver, open_api, run
from extender.node.store import ResourceStore, StoreError
from extender.node.topology import Topology
from extender.tools.user_error import UserError
from extender.tools.yamltext import single_mapping

logger = structlog.get_logger()

LISTS_CLAIMS: Final = Permission("list", CLAIMS)
"""For a store that is damaged."""


@dataclass(frozen=True, slots=True)
class ResourceManager:
    """A part of the kubelet that gives CPUs or memory to containers itself, if it has a policy.

    Attributes:
        file: has its policy, in the folder of the kubelet.
        setting: its policy in the kubelet's configuration.
        none: the policy that gives nothing.
        what: where other policies would move containers.
    """

    name: str
    file: str
    setting: str
    none: str
    what: str


MANAGERS: Final = (
    ResourceManager("CPU manager", "cpu_manager_state", "cpuManagerPolicy", "none", "CPUs of claims"),
    ResourceManager("memory manager", "memory_manager_state", "memoryManagerPolicy", "None", "NUMA nodes of its own"),
)


CONFIGURATION: Final = "config.yaml"
"""The kubelet's configuration in its folder, where kubeadm writes it. Others have it elsewhere."""


class ComputeError(UserError):
    """CPUs cannot be given to claims on this node, and why."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places where a node has what the node part needs.

    Attributes:
        kubelet: root directory of the kubelet.
        cdi: folder for CDI files.
        state: the file of the store.
        runtime: the socket of the container runtime for plugins (NRI).
        cci: the folder of the sockets of CCI drivers.
        cci_seconds: how long a container waits for its CCI driver.
    """

    kubelet: Path
    cdi: Path
    state: Path
    runtime: Path
    cci: Path
    cci_seconds: float = SECONDS


def check_managers(kubelet: Path) -> None:
    """See that the kubelet gives no CPUs and no memory away itself. Raises ComputeError: it does."""
    for each in MANAGERS:
        path = kubelet / each.file
        try:
            policy = json.loads(path.read_text()).get("policyName")
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError) as error:
            text = f"cannot be read, so the policy of the kubelet's {each.name} is not known: {error}"
            raise ComputeError(f"{path}: {text}") from error
        if policy != each.none:
            raise ComputeError(
                f"{path}: the kubelet's {each.name} has the policy {policy}, and would move containers to {each.what}: "
                f"set {each.setting} to {each.none} in the kubelet's configuration, delete this file, and restart the "
                "kubelet"
            )


def topology_policy(kubelet: Path) -> str:
    """The policy of the kubelet's topology manager, as its configuration says; empty if there is none, or none to see.

    The topology manager aligns what device plugins give to a pod with each other, and not with CPUs of claims. So its
    policy is in nobody's way, and who set it may expect more. The kubelet leaves no file that has it. Its
    configuration is in its own folder with kubeadm; arguments of the kubelet may override it.
    """
    path = kubelet / CONFIGURATION
    try:
        found = (single_mapping(path.read_text()) or {}).get("topologyManagerPolicy", "")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        logger.info("topology manager's policy not known", problem=f"{path}: {error}")
        return ""
    return str(found) if found and found != "none" else ""


def check_reserved(reserved: Collection[int], topology: Topology) -> None:
    """See that containers without claims always have a CPU. Raises ComputeError: they would not."""
    if unknown := set(reserved) - topology.numbers:
        raise ComputeError(
            f"--reserved-cpus: CPU {min(unknown)} is not online: {cpu_list.render(topology.numbers)} are"
        )
    if not reserved:
        raise ComputeError("--reserved-cpus: names no CPU: containers without claims need one")


async def run_compute(
    origin: Origin, node: str, topology: Topology, reserved: Collection[int], places: Places, metrics_port: int
) -> None:
    """Publish CPUs and memory of a node, and give them to the containers of claims, until a signal comes.

    Args:
        origin: the API server.
        node: name of the node.
        topology: the machine.
        reserved: the CPUs that no claim gets (`check_reserved`).
        places: files and folders of the node.
        metrics_port: where metrics are served; 0: nowhere.

    Raises:
        ComputeError: the kubelet's CPU or memory manager is in the way, or the port is in use.
        ConnectError: there is no API server to work with.
        SocketError: the kubelet cannot be served.
    """
    check_managers(places.kubelet)
    if policy := topology_policy(places.kubelet):
        advice = "it aligns devices of device plugins only, not CPUs and memory of claims: give claims constraints"
        logger.warning("topologyManagerPolicy", policy=policy, file=str(places.kubelet / CONFIGURATION), advice=advice)
    metrics = CciMetrics(CollectorRegistry())
    with _serving_metrics(metrics, metrics_port):
        await _run(origin, node, topology, reserved, places, metrics)


async def _run(
    origin: Origin, node: str, topology: Topology, reserved: Collection[int], places: Places, metrics: CciMetrics
) -> None:
    async with open_api(origin, LISTS_CLAIMS) as api:
        store = ResourceStore(topology.numbers.difference(reserved))
        manager = ComputeManager(topology, store, places.state, places.cci, metrics, places.cci_seconds)
        folders = CdiFolder(places.cdi, CPU_DRIVER), CdiFolder(places.cdi, MEMORY_DRIVER)
        drivers = compute_drivers(topology, reserved, manager, folders)
        try:
            store.load(places.state)
        except StoreError as error:
            await recover(api, drivers, store, places.state, str(error))
        specs = cpu_slices(topology, node, reserved), memory_slices(topology, node)
        published = [PublishedDriver(driver, each) for driver, each in zip(drivers, specs, strict=True)]
        await manager.registry.look()
        await run(api, node, published, places.kubelet, follow(places.runtime, manager), manager.registry.follow())


@contextmanager
def _serving_metrics(metrics: CciMetrics, port: int) -> Iterator[None]:
    """Within, Prometheus can read the metrics. Raises ComputeError: nobody can listen at the port."""
    if not port:
        yield
        return
    try:
        server, thread = start_http_server(port, registry=metrics.registry)
    except OSError as error:
        raise ComputeError(f"--metrics-port {port}: {error.strerror or error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def recover(api: Api, drivers: tuple[ComputeDriver, ...], store: ResourceStore, path: Path, problem: str) -> None:
    """Set the file of a store aside, and fill the store from the claims that are prepared: those with a CDI file.

    Containers that run keep their CPUs besides, as soon as the container runtime is connected.

    Raises:
        ConnectError: the API server does not give the claims, or the file cannot be written.
    """
    try:
        aside = _set_aside(path)
        claims = (await api.list(CLAIMS)).items
        for driver in drivers:
            prepared = driver.cdi.claims()
            for each in claims:
                if each["metadata"]["uid"] in prepared and (each.get("status") or {}).get("allocation"):
                    _restore(driver, store, allocated_claim(each, driver.name))
        store.save(path)
    except (OSError, ApiError, OutcomeUnknownError) as error:
        raise ConnectError(f"{path}: its content is damaged and cannot be made again: {error}") from error
    logger.warning("store made again", problem=problem, aside=str(aside), claims=_names(store))


def _restore(driver: ComputeDriver, store: ResourceStore, claim: AllocatedClaim) -> None:
    try:
        store.add_resource(driver.key(claim.uid), driver.resources(claim))
    except (PrepareError, StoreError) as error:
        logger.warning("claim not in new store", claim=str(claim), problem=str(error))


def _names(store: ResourceStore) -> list[str]:
    return sorted({each.claim for each in store.sets.values()})


def _set_aside(path: Path) -> Path:
    """Rename a damaged file to a name that is free."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return path.rename(aside)
