"""Machines within a sandbox: each is a node of its own, with containerd, a kubelet and a DRA driver.

A machine has its own mounts, network, host name and cgroups, so it can be like any other one. It is connected to the
sandbox, where the control plane is, and by it to the other machines. The sandbox has the address of the API server;
nothing translates addresses of Services.

``python -m tests.kit.node.machine FILE`` is a machine. FILE has a `Machine` with what it runs, as JSON.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from extender.kube.api import RawObject
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.node import cgroups
from tests.kit.node.containerd import containerd, import_image, import_images
from tests.kit.node.driver import GPU_DRIVER, node_driver
from tests.kit.node.inside import set_up_mounts
from tests.kit.node.kubelet import kubelet
from tests.kit.node.sandbox import LOGS_INSIDE, STATE
from tests.kit.process import Process

API_ADDRESS: Final = "10.0.0.1"
"""Of the API server: the address that its Service gets anyway, on the sandbox's own loopback device."""

_UNSHARED: Final = ("unshare", "--mount", "--net", "--uts", "--cgroup", "--")
_LINK: Final = "eth0"
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_READY: Final = "ready"
_POD_LOGS: Final = Path("/var/log/pods")
_PODS: Final = "pods"
_KEPT: Final = "kept"
_KEEP_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the sandbox.

    Attributes:
        number: from 1.
    """

    number: int

    @property
    def name(self) -> str:
        """Of the node."""
        return f"node-{self.number}"

    @property
    def user(self) -> str:
        """Of its kubelet."""
        return f"system:node:{self.name}"

    @property
    def address(self) -> str:
        """Of the node."""
        return f"10.99.{self.number}.1"

    @property
    def gateway(self) -> str:
        """The sandbox, as the node sees it."""
        return f"10.99.{self.number}.254"

    @property
    def pods(self) -> str:
        """The addresses of its pods."""
        return f"10.98.{self.number}.0/24"

    @property
    def logs(self) -> Path:
        """The folder of its log files, in the sandbox."""
        return LOGS_INSIDE / self.name

    def logs_of(self, pattern: str) -> list[Path]:
        """Log files of containers, also of pods that are gone: ``NAMESPACE_POD_CONTAINER_NUMBER.log``."""
        return sorted((self.logs / _KEPT).glob(pattern))


def set_up_sandbox() -> None:
    """Give the sandbox the address of the API server, and let machines reach each other."""
    _ip(f"addr add {API_ADDRESS}/32 dev lo")
    _FORWARDING.write_text("1")


def machine(
    number: int, plane: ControlPlane, programs: Path, images: Sequence[Path], devices: Sequence[RawObject]
) -> Process:
    """A machine, not started yet.

    Args:
        plane: which its kubelet and its driver belong to.
        programs: of a node.
        images: files of images that it has, beside those of the tests.
        devices: of its driver, as in a ResourceSlice.
    """
    found = Machine(number)
    found.logs.mkdir()
    described = {
        "number": number,
        "programs": str(programs),
        "images": [str(path) for path in images],
        "devices": list(devices),
        "kubeconfigs": {"kubelet": str(plane.kubeconfig(found.user)), "driver": str(plane.kubeconfig(ADMIN))},
    }
    path = plane.folder / f"{found.name}.json"
    path.write_text(json.dumps(described))
    command = (sys.executable, "-m", "tests.kit.node.machine", str(path))
    return Process(found.name, command, (found.logs / _READY).exists, LOGS_INSIDE / f"{found.name}.log")


def _become_machine(path: str, name: str) -> None:
    """Go on as a process with cgroups, mounts and a network of its own."""
    folders = [each.folder / name for each in cgroups.own_hierarchies()]
    cgroups.make(folders)
    cgroups.join(folders)
    os.execvp(_UNSHARED[0], (*_UNSHARED, sys.executable, "-m", "tests.kit.node.machine", path, "inside"))  # noqa: S606


def _set_up(found: Machine, described: dict[str, Any]) -> dict[str, Path]:
    """Mounts and network; the kubeconfigs, where the machine can read them."""
    texts = {name: _whole(Path(path)) for name, path in described["kubeconfigs"].items()}
    _connect(found)
    set_up_mounts(found.logs)
    # A file has two names on one file system only.
    for name in (_PODS, _KEPT):
        (LOGS_INSIDE / name).mkdir()
    _POD_LOGS.mkdir(exist_ok=True)
    subprocess.run(("mount", "--bind", str(LOGS_INSIDE / _PODS), str(_POD_LOGS)), check=True)  # noqa: S607
    socket.sethostname(found.name)
    # Programs make files of a short life where those of the sandbox are.
    Path(os.environ["TMPDIR"]).mkdir(parents=True, exist_ok=True)
    written = {name: STATE / f"{name}.kubeconfig" for name in texts}
    for name, text in texts.items():
        written[name].write_text(text)
    return written


def _whole(kubeconfig: Path) -> str:
    """A kubeconfig with the certificate of its API server in it."""
    config = json.loads(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    certificate = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = b64encode(certificate).decode()
    return json.dumps(config)


def _connect(found: Machine) -> None:
    """A device here whose other end is in the sandbox, and the way from there to the pods."""
    outside = ("nsenter", "--net=/proc/1/ns/net", "--")
    there = f"to-{found.name}"
    _ip(f"link add {there} type veth peer name {_LINK} netns {os.getpid()}", outside)
    _ip(f"addr add {found.gateway}/24 dev {there}", outside)
    _ip(f"link set {there} up", outside)
    _ip("link set lo up")
    _ip(f"addr add {found.address}/24 dev {_LINK}")
    _ip(f"link set {_LINK} up")
    _ip(f"route add default via {found.gateway} dev {_LINK}")
    _ip(f"route add {found.pods} via {found.address}", outside)


def _ip(command: str, before: Sequence[str] = ()) -> None:
    subprocess.run((*before, "ip", *command.split()), check=True)


def _serve(found: Machine, described: dict[str, Any], kubeconfigs: dict[str, Path]) -> None:
    """Run a node until SIGTERM."""
    programs = Path(described["programs"])
    runtime = containerd(programs, found.pods)
    agent = kubelet(kubeconfigs["kubelet"], programs, found.name, found.address)
    driver = node_driver(kubeconfigs["driver"], programs, GPU_DRIVER, described["devices"], found.name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    started: list[Process] = []
    try:
        for process in (runtime, agent, driver):
            process.start(within=START_SECONDS)
            started.append(process)
            if process is runtime:
                import_images(programs)
                for image in described["images"]:
                    import_image(programs, Path(image))
        (LOGS_INSIDE / _READY).touch()
        while True:
            _keep_logs()
            time.sleep(_KEEP_SECONDS)
    finally:
        for process in reversed(started):
            process.stop()


def _keep_logs() -> None:
    """Give each log file of a container a second name: the kubelet deletes it when the pod is gone."""
    kept = LOGS_INSIDE / _KEPT
    # By the folder of the log files: a link leads from one mount to another one only if it is the same.
    pods = LOGS_INSIDE / _PODS
    for folder, _, files in os.walk(pods):  # it passes over folders that are gone meanwhile
        for path in (Path(folder, file) for file in files):
            pod, container = path.relative_to(pods).parts[:2]
            name = kept / f"{pod.rpartition('_')[0]}_{container}_{path.name}"
            if not name.exists():
                with suppress(FileNotFoundError):  # it is gone by now
                    name.hardlink_to(path)


def main() -> None:
    """Be the machine of the arguments."""
    path, *inside = sys.argv[1:]
    described = json.loads(Path(path).read_text())
    found = Machine(described["number"])
    if not inside:
        _become_machine(path, found.name)
    _serve(found, described, _set_up(found, described))


if __name__ == "__main__":
    main()
