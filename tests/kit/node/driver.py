"""A DRA driver on the node: devices that do not exist, and a variable in the container for each that it has been given.

Its program is in Go, because drivers are built on Kubernetes' own library for them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from extender.kube.api import RawObject
from tests.kit.node.containerd import CDI, listens
from tests.kit.node.kubelet import NODE, ROOT
from tests.kit.node.sandbox import LOGS_INSIDE, STATE
from tests.kit.process import Process

GPU_DRIVER: Final = "gpu.example.com"
GPUS: Final[tuple[RawObject, ...]] = tuple(
    {"name": f"gpu-{number}", "attributes": {"model": {"string": model}}}
    for number, model in enumerate(("h100", "h100", "a100", "a100"))
)


def node_driver(kubeconfig: Path, programs: Path, name: str, devices: Sequence[RawObject], node: str = NODE) -> Process:
    """A driver, not started yet.

    Args:
        kubeconfig: its way to the API server.
        name: of the driver.
        devices: of the node's pool, as in a ResourceSlice.
    """
    path = STATE / f"{name}.json"
    path.write_text(json.dumps(devices))
    command = (
        str(programs / "driver"),
        f"--kubeconfig={kubeconfig}",
        f"--name={name}",
        f"--node={node}",
        f"--devices={path}",
        f"--kubelet={ROOT}",
        f"--cdi={CDI}",
    )
    return Process(name, command, listens(ROOT / "plugins" / name / "dra.sock"), LOGS_INSIDE / f"{name}.log")


def prepared_claims(driver: str) -> set[str]:
    """The uids of the claims that a driver has prepared: each has a CDI file."""
    return {path.stem.removeprefix(f"{driver}-") for path in CDI.glob(f"{driver}-*.json")}


def variable(device: str, driver: str = GPU_DRIVER) -> tuple[str, str]:
    """What a container that has been given a device has in its environment: name and value."""
    return f"DEVICE_{device.upper().replace('-', '_')}", f"{driver}/{NODE}/{device}"
