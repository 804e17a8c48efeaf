"""`dra-extender node`: gives CPUs and memory of a node to claims."""

import asyncio
import importlib
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from allocator.tools import dns_subdomain
from extender.cli.messages import fail
from extender.cli.options import (
    CDI_DIR,
    KUBELET_DIR,
    CdiDirOption,
    ContextOption,
    KubeconfigOption,
    KubeletDirOption,
    NodeNameOption,
    command_app,
    examples,
)
from extender.kube.connection.credentials import find_origin
from extender.kube.errors import ConnectError
from extender.node import cpu_list
from extender.node.topology import Topology, TopologyError, read_file, read_machine
from extender.tools import logs
from extender.tools.logs import LogSettings
from extender.tools.text_file import UnreadableError, read_text

_STATE: Final = Path("/var/lib/dra-extender/node.state")
_RUNTIME: Final = Path("/var/run/nri/nri.sock")
_CCI: Final = Path("/var/lib/dra-extender/cci")

app = command_app()


@app.command(
    epilog=examples(
        "dra-extender node --node-name node-1",
        "dra-extender node --node-name node-1 --reserved-cpus 0-1,32-33 --kubeconfig node.conf",
    ),
)
def node(
    node_name: NodeNameOption,
    reserved_cpus: Annotated[
        str, typer.Option(metavar="LIST", help="CPUs that no claim gets: for the system, and for other containers.")
    ] = "0",
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The machine's CPUs and memory; default: what the kernel tells.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    kubelet_dir: KubeletDirOption = KUBELET_DIR,
    cdi_dir: CdiDirOption = CDI_DIR,
    state_file: Annotated[Path, typer.Option(metavar="FILE", help="Where it remembers what claims hold.")] = _STATE,
    nri_socket: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the container runtime listens for NRI plugins.")
    ] = _RUNTIME,
    cci_dir: Annotated[Path, typer.Option(metavar="FOLDER", help="Where CCI drivers have their sockets.")] = _CCI,
    metrics_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Where /metrics is served; 0: nowhere.")
    ] = 0,
) -> None:
    """Publish the CPUs and the memory of a node, and give them to the containers of claims.

    Containers of a claim run on its CPUs alone, and all other containers on the rest. Run it as root on each node.
    """
    if problem := dns_subdomain(node_name):
        fail(f"--node-name {node_name}: {problem}")
    try:
        reserved = cpu_list.parse(reserved_cpus)
    except ValueError as error:
        fail(f"--reserved-cpus: {error}")
    machine = _machine(topology)
    try:
        running = importlib.import_module("extender.node.compute_running")
        sockets = importlib.import_module("extender.node.sockets")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"grpc", "google"}:
            raise
        fail("the packages for drivers are not installed: pip install 'dra-extender[node]'")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logs.configure(LogSettings())
    try:
        running.check_reserved(reserved, machine)
        origin = find_origin(kubeconfig, context, os.environ)
        places = running.Places(kubelet_dir, cdi_dir, state_file, nri_socket, cci_dir)
        asyncio.run(running.run_compute(origin, node_name, machine, reserved, places, metrics_port))
    except ConnectError as error:
        fail(*error.problems)
    except (running.ComputeError, sockets.SocketError) as error:
        fail(str(error))


def _machine(path: Path | None) -> Topology:
    try:
        return read_file(read_text(path), str(path)) if path else read_machine()
    except UnreadableError as error:
        fail(f"{path}: {error}")
    except TopologyError as error:
        fail(str(error))
