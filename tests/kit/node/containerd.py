"""containerd with runc, CNI plugins and the images of the tests."""

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.kit.node.image import program_image, write_images
from tests.kit.node.sandbox import LOGS_INSIDE, STATE
from tests.kit.process import Process

SOCKET: Final = Path("/run/containerd/containerd.sock")
CDI: Final = STATE / "cdi"
"""Where drivers leave CDI files, and containerd looks for them."""

_USUAL_CDI: Final = Path("/var/run/cdi")
"""Where drivers that run as pods leave them."""

NRI_SOCKET: Final = Path("/run/nri/nri.sock")
"""Where plugins of containerd connect."""

PROBE: Final = "example.test/probe:1"
_PAUSE: Final = "example.test/pause:1"
_POD_SUBNET: Final = "10.98.0.0/24"

# restrict_oom_score_adj: without CAP_SYS_RESOURCE nobody can lower a score, and each pod sandbox wants that.
# snapshots: their folder cannot be on an overlay; that of the state is none.
_CONFIG: Final = """
version = 3
root = "{state}/containerd"
state = "/run/containerd"
imports = []

[grpc]
  address = "{socket}"

[plugins.'io.containerd.internal.v1.opt']
  path = "{state}/opt"

[plugins.'io.containerd.nri.v1.nri']
  socket_path = "{nri}"
  plugin_path = "{state}/nri/plugins"
  plugin_config_path = "{state}/nri/conf.d"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{cdi}", "{usual_cdi}"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{programs}"]
    conf_dir = "{state}/cni"
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{programs}/unfiltered"
        SystemdCgroup = false
"""


def containerd(programs: Path, subnet: str = _POD_SUBNET) -> Process:
    """containerd, not started yet; its configuration is written.

    Args:
        subnet: of its pods.
    """
    config = STATE / "containerd.toml"
    config.write_text(
        _CONFIG.format(
            state=STATE,
            socket=SOCKET,
            pause=_PAUSE,
            nri=NRI_SOCKET,
            cdi=CDI,
            usual_cdi=_USUAL_CDI,
            programs=programs,
        )
    )
    _write_network(STATE / "cni", subnet)
    CDI.mkdir(exist_ok=True)
    # It looks for its shim on PATH.
    command = ("env", f"PATH={programs}:{os.environ['PATH']}", str(programs / "containerd"), "--config", str(config))
    return Process("containerd", command, listens(SOCKET), LOGS_INSIDE / "containerd.log")


def import_images(programs: Path) -> None:
    """Give containerd the images of the tests: it can pull none.

    Raises:
        subprocess.CalledProcessError: containerd refuses one.
    """
    for name, argument in ((_PAUSE, "pause"), (PROBE, "show")):
        path = STATE / "image.tar"
        write_images(path, program_image(name, programs / "probe", (argument,)))
        import_image(programs, path)
        path.unlink()


def import_image(programs: Path, path: Path) -> None:
    """Give containerd an image.

    Raises:
        subprocess.CalledProcessError: containerd refuses it.
    """
    client = (str(programs / "ctr"), "--address", str(SOCKET), "--namespace", "k8s.io")
    subprocess.run((*client, "images", "import", str(path)), check=True, stdout=subprocess.DEVNULL)


def listens(path: Path) -> Callable[[], bool]:
    """A probe: does somebody accept connections at this socket?"""

    def probe() -> bool:
        with socket.socket(socket.AF_UNIX) as candidate:
            return candidate.connect_ex(str(path)) == 0

    return probe


def _write_network(folder: Path, subnet: str) -> None:
    """Each pod is connected to the node alone, with an address from a file of given ones."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(STATE / "addresses"),
    }
    plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    folder.mkdir(exist_ok=True)
    (folder / "pods.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}))
