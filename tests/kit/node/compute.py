"""The node part of `dra-extender node`, as a user starts it, and what the kernel says of containers."""

import sys
from pathlib import Path
from typing import Final

from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.components import ControlPlane
from tests.kit.node.containerd import CDI, NRI_SOCKET, listens
from tests.kit.node.kubelet import NODE, ROOT
from tests.kit.node.sandbox import LOGS_INSIDE, STATE
from tests.kit.process import Process

CPU_DRIVER: Final = "dra.cpu"
STATE_FILE: Final = STATE / "node-part/node.state"
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
