"""The mock driver of `dra-extender mock-driver` on the node, as a user starts it."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.components import ControlPlane
from tests.kit.node.containerd import CDI, listens
from tests.kit.node.kubelet import NODE, ROOT
from tests.kit.node.sandbox import LOGS_INSIDE, STATE
from tests.kit.process import Process

MOCK_DRIVER: Final = "mock.example.com"


def mock_driver(plane: ControlPlane, *slices: dict[str, Any]) -> Process:
    """The mock driver, not started yet.

    Args:
        plane: whose administrator it is.
        slices: as in a node template, without the driver.
    """
    path = STATE / "mock-templates.yaml"
    specs = [{"driver": MOCK_DRIVER, **each} for each in slices]
    template = {"name": "mock", "labels": {"kubernetes.io/os": "linux"}, "slices": specs}
    path.write_text(json.dumps({"nodeTemplates": [template]}))
    command = (
        str(Path(sys.executable).parent / "dra-extender"),
        "mock-driver",
        str(path),
        f"--node-name={NODE}",
        f"--kubeconfig={plane.kubeconfig(ADMIN)}",
        f"--kubelet-dir={ROOT}",
        f"--cdi-dir={CDI}",
    )
    ready = listens(ROOT / "plugins" / MOCK_DRIVER / "dra.sock")
    return Process(MOCK_DRIVER, command, ready, LOGS_INSIDE / f"{MOCK_DRIVER}.log")
