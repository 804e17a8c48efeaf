"""`dra-extender mock-driver`: a driver for devices that do not exist, on a real node."""

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
from extender.planning.templates.node_templates import TemplateError, load_templates
from extender.tools import logs
from extender.tools.logs import LogSettings
from extender.tools.text_file import UnreadableError, read_text

_EXTRA: Final = "the packages for drivers are not installed: pip install 'dra-extender[node]'"

app = command_app()


@app.command(
    name="mock-driver",
    epilog=examples(
        "dra-extender mock-driver config/node-templates.yaml --node-name node-1",
        "dra-extender template gpu-large --context production -o settings > templates.yaml",
        "dra-extender mock-driver templates.yaml --node-name node-1 --context test",
    ),
)
def mock_driver(
    templates: Annotated[Path, typer.Argument(metavar="FILE", help="Node templates: what nodes with labels publish.")],
    node_name: NodeNameOption,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    kubelet_dir: KubeletDirOption = KUBELET_DIR,
    cdi_dir: CdiDirOption = CDI_DIR,
) -> None:
    """Publish devices that do not exist, and prepare claims for them: a container sees its devices as variables.

    The node gets the slices of each template whose labels it has, with one driver for each driver of the slices. Run it
    as root on a node: the kubelet finds drivers by sockets in its directory.
    """
    if problem := dns_subdomain(node_name):
        fail(f"--node-name {node_name}: {problem}")
    try:
        found = load_templates(read_text(templates), file=str(templates))
        mock = importlib.import_module("extender.node.mock")
        sockets = importlib.import_module("extender.node.sockets")
    except UnreadableError as error:
        fail(f"{templates}: {error}")
    except TemplateError as error:
        fail(*error.problems)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"grpc", "google"}:
            raise
        fail(_EXTRA)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logs.configure(LogSettings())
    try:
        origin = find_origin(kubeconfig, context, os.environ)
        asyncio.run(mock.run_mocks(origin, found, node_name, kubelet_dir, cdi_dir))
    except ConnectError as error:
        fail(*error.problems)
    except sockets.SocketError as error:
        fail(str(error))
