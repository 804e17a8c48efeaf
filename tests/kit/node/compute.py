"""The node part of `dra-extender node`, as a user starts it, and what the kernel says of containers."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from extender.kube.api import ObjectKey
from extender.kube.resources import CLASSES, SLICES
from extender.node import cpu_list
from extender.node.topology import read_machine
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import Client, connect
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.controlplane.scenario import by_template
from tests.kit.node.containerd import CDI, NRI_SOCKET, listens
from tests.kit.node.kubelet import NODE, ROOT
from tests.kit.node.node import Node
from tests.kit.node.pods import RUN_SECONDS, start_pod, wait_running
from tests.kit.node.sandbox import LOGS_INSIDE, STATE
from tests.kit.objects.manifests import device_class
from tests.kit.process import Process, running
from tests.kit.waiting import wait_for_answer, wait_until

CPU_DRIVER: Final = "dra.cpu"
STATE_FILE: Final = STATE / "node-part/node.state"
CCI: Final = STATE / "node-part/cci"
"""Where CCI drivers have their sockets."""

ALL: Final = read_machine().numbers
OWN: Final = max(ALL)
"""The last CPU: the only one that claims can have."""

SHARED: Final = cpu_list.render(ALL - {OWN})
_ALLOWED: Final = "Cpus_allowed_list:"


def node_part(plane: ControlPlane, *options: str) -> Process:
    """The node part, not started yet."""
    command = (
        str(Path(sys.executable).parent / "dra-extender"),
        "node",
        f"--node-name={NODE}",
        f"--kubeconfig={plane.kubeconfig(ADMIN)}",
        f"--kubelet-dir={ROOT}",
        f"--cdi-dir={CDI}",
        f"--state-file={STATE_FILE}",
        f"--nri-socket={NRI_SOCKET}",
        f"--cci-dir={CCI}",
        *options,
    )
    return Process(
        "node-part", command, listens(ROOT / "plugins" / CPU_DRIVER / "dra.sock"), LOGS_INSIDE / "node-part.log"
    )


def allowed_cpus(pod_uid: str) -> set[str]:
    """The CPUs that the kernel allows the containers of a pod, as lists; the pause container does not count."""
    found = set()
    for process in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            if pod_uid in (process / "cgroup").read_text() and b"show" in (process / "cmdline").read_bytes():
                lines = (process / "status").read_text().splitlines()
                found |= {line.removeprefix(_ALLOWED).strip() for line in lines if line.startswith(_ALLOWED)}
        except OSError:
            continue  # it has ended
    return found


@asynccontextmanager
async def running_compute(node: Node, *options: str) -> AsyncIterator[Process]:
    """Within, the node part runs, and has published the CPU that claims can have."""
    process = node_part(node.plane, f"--reserved-cpus={SHARED}", *options)
    async with connect(node.plane.access()) as client, running(process, within=START_SECONDS):
        await client.create(CLASSES, device_class(CPU_DRIVER, CPU_DRIVER))
        await wait_published(client)
        yield process
        await client.delete(CLASSES, ObjectKey("", CPU_DRIVER))


async def wait_published(client: Client) -> None:
    """Wait until the CPU of claims is published."""

    async def devices() -> list[str]:
        own = [each["spec"] for each in (await client.list(SLICES)).items if each["spec"]["driver"] == CPU_DRIVER]
        return [device["name"] for each in own for device in each["devices"]]

    await wait_for_answer(devices, lambda found: found == [f"cpu-{OWN}"], "the CPU is published", within=RUN_SECONDS)


async def start_with_cpus(client: Client, namespace: str, name: str, template: str = "") -> str:
    """The uid of a pod that runs. ``template``: of its claim; empty: it has none."""
    key = await start_pod(client, namespace, name, claims=[by_template(template)] if template else [])
    return await wait_program(client, key)


async def wait_program(client: Client, key: ObjectKey) -> str:
    """The uid of a pod, once the program of its container runs.

    The kubelet says that a container runs before runc has become the container's program.
    """
    uid = str((await wait_running(client, key))["metadata"]["uid"])
    wait_until(lambda: bool(allowed_cpus(uid)), f"the program of pod {key} runs", within=RUN_SECONDS)
    return uid


def wait_allowed(uid: str, cpus: str) -> None:
    """Wait until the containers of a pod may run on some CPUs."""
    wait_until(lambda: allowed_cpus(uid) == {cpus}, f"pod {uid} may run on {cpus}", within=RUN_SECONDS)
