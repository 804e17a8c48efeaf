"""`dra-extender node` and `mock-driver`: they give CPUs and memory, or devices that do not exist, to claims."""

import asyncio
import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Annotated, Final

import typer

from allocator.tools import dns_subdomain
from extender.faces.commands.options import KubeconfigOptions, command, parse_path, text_of
from extender.faces.commands.output import fail
from extender.kube.connection.credentials import find_origin
from extender.node import cpu_list
from extender.node.topology import Topology, read_file, read_machine
from extender.planning.templates import load_templates
from extender.tools import logs
from extender.tools.logs import LogSettings
from extender.tools.user_error import installing

_STATE: Final = Path("/var/lib/dra-extender/node.state")
_RUNTIME: Final = Path("/var/run/nri/nri.sock")
_CCI: Final = Path("/var/lib/dra-extender/cci")

NodeNameOption = Annotated[str, typer.Option(metavar="NAME", envvar="NODE_NAME", help="The node that this runs on.")]
KubeletDirOption = Annotated[
    Path, typer.Option(metavar="FOLDER", parser=parse_path, help="The kubelet's root directory.")
]
CdiDirOption = Annotated[
    Path, typer.Option(metavar="FOLDER", parser=parse_path, help="Where the container runtime looks for CDI files.")
]
KUBELET_DIR: Final = Path("/var/lib/kubelet")
_CDI_DIR: Final = Path("/var/run/cdi")


@command(
    "dra-extender node --node-name node-1",
    "dra-extender node --node-name node-1 --reserved-cpus 0-1,32-33 --kubeconfig node.conf",
)
def node(
    *,
    node_name: NodeNameOption,
    reserved_cpus: Annotated[
        str, typer.Option(metavar="LIST", help="CPUs that no claim gets: for the system, and for other containers.")
    ] = "0",
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The machine's CPUs and memory; default: what the kernel tells.")
    ] = None,
    kubeconfig: KubeconfigOptions,
    kubelet_dir: KubeletDirOption = KUBELET_DIR,
    cdi_dir: CdiDirOption = _CDI_DIR,
    state_file: Annotated[Path, typer.Option(metavar="FILE", help="Where it remembers what claims hold.")] = _STATE,
    nri_socket: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the container runtime listens for NRI plugins.")
    ] = _RUNTIME,
    cci_dir: Annotated[Path, typer.Option(metavar="FOLDER", help="Where CCI drivers have their sockets.")] = _CCI,
    cci_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, max=60, help="How long a container waits for its CCI driver; then it fails."
        ),
    ] = 1.5,
    metrics_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Where /metrics is served; 0: nowhere.")
    ] = 0,
) -> None:
    """Publish the CPUs and the memory of a node, and give them to the containers of claims.

    Containers of a claim run on its CPUs alone, and all other containers on the rest. Run it as root on each node.
    """
    _check_node_name(node_name)
    try:
        reserved = cpu_list.parse(reserved_cpus)
    except ValueError as error:
        fail(f"--reserved-cpus: {error}")
    machine = _machine(topology)
    running = _program("extender.node.compute_running")
    running.check_reserved(reserved, machine)
    origin = find_origin(*kubeconfig, os.environ)
    places = running.Places(kubelet_dir, cdi_dir, state_file, nri_socket, cci_dir, cci_timeout)
    asyncio.run(running.run_compute(origin, node_name, machine, reserved, places, metrics_port))


@command(
    "dra-extender mock-driver config/node-templates.yaml --node-name node-1",
    "dra-extender template gpu-large --context production -o settings > templates.yaml",
    "dra-extender mock-driver templates.yaml --node-name node-1 --context test",
)
def mock_driver(
    *,
    templates: Annotated[Path, typer.Argument(metavar="FILE", help="Node templates: what nodes with labels publish.")],
    node_name: NodeNameOption,
    kubeconfig: KubeconfigOptions,
    kubelet_dir: KubeletDirOption = KUBELET_DIR,
    cdi_dir: CdiDirOption = _CDI_DIR,
) -> None:
    """Publish devices that do not exist, and prepare claims for them: a container sees its devices as variables.

    The node gets the slices of each template whose labels it has, with one driver for each driver of the slices. Run it
    as root on a node: the kubelet finds drivers by sockets in its directory.
    """
    _check_node_name(node_name)
    found = load_templates(text_of(templates), file=str(templates))
    mock = _program("extender.node.mock")
    origin = find_origin(*kubeconfig, os.environ)
    asyncio.run(mock.run_mocks(origin, found, node_name, kubelet_dir, cdi_dir))


def _check_node_name(node_name: str) -> None:
    if problem := dns_subdomain(node_name):
        fail(f"--node-name {node_name}: {problem}")


def _program(name: str) -> ModuleType:
    """The module of a driver, which logs from now on; ends the command if the extra for drivers is not installed."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"grpc", "google"}:
            raise
        fail(f"the packages for drivers are not installed: {installing('node')}")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logs.configure(LogSettings())
    return module


def _machine(path: Path | None) -> Topology:
    return read_file(text_of(path), str(path)) if path else read_machine()
