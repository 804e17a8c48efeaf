"""The kubelet of the node."""

import json
from pathlib import Path
from typing import Final

from extender.kube.api import RawObject
from tests.kit.controlplane.access import KUBELET
from tests.kit.node.containerd import SOCKET
from tests.kit.node.inside import NODE_IP
from tests.kit.node.sandbox import LOGS_INSIDE, STATE
from tests.kit.process import Process, answers

NODE: Final = KUBELET.removeprefix("system:node:")
ROOT: Final = Path("/var/lib/kubelet")
"""Its own default: other paths of the kubelet cannot be chosen, and are below it."""

_EVICTION_SIGNALS: Final = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")
_HEALTH: Final = "http://127.0.0.1:10248/healthz"


def kubelet(kubeconfig: Path, programs: Path, name: str = NODE, address: str = NODE_IP) -> Process:
    """The kubelet, not started yet; its configuration is written.

    Args:
        kubeconfig: its way to the API server.
        name: of the node.
        address: of the node.
    """
    config = STATE / "kubelet.json"
    config.write_text(json.dumps(_config(address)))
    command = (
        str(programs / "kubelet"),
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={name}",
        f"--node-ip={address}",
        "--v=2",
    )
    return Process("kubelet", command, answers(_HEALTH), LOGS_INSIDE / "kubelet.log")


def _config(address: str) -> RawObject:
    """Defaults, but for what the sandbox lacks and what makes a lost node known in seconds."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Nobody else is in the sandbox's network.
        "address": address,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        # There is no iptables, and no name server.
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "volumePluginDir": str(STATE / "volume-plugins"),
        # What the machine lacks is not the tests' subject.
        "evictionHard": dict.fromkeys(_EVICTION_SIGNALS, "0%"),
        "imageGCHighThresholdPercent": 100,
        # The kubelet tries again so often to prepare claims; by default, each minute.
        "syncFrequency": "1s",
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 4,
    }
