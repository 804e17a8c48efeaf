"""dra-example-driver of Kubernetes on the node: installed from its own chart, but for its program, which is a process.

The process has what the chart gives the pod: the environment, the paths on the node, and the rights of the service
account, bound to the node as the token of such a pod is.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from subprocess import run
from typing import Any, Final

import yaml

from extender.kube.api import RawObject
from extender.kube.resources import CLASSES, Resource
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import NAMESPACES, Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.service import ROLE_KINDS
from tests.kit.node.containerd import listens
from tests.kit.node.kubelet import NODE, ROOT
from tests.kit.node.sandbox import LOGS_INSIDE
from tests.kit.objects.manifests import namespace
from tests.kit.process import Process

_NAMESPACE: Final = "dra-example-driver"
_POLICIES: Final = "admissionregistration.k8s.io"
_UID: Final = "0c3d0fbb-4c5e-4b56-8d5b-6a6a3f5ad7a1"
"""Of the pod that the process stands for."""

_CDI: Final = Path("/var/run/cdi")
"""Where the chart lets the pod leave CDI files."""

_KINDS: Final = {
    **ROLE_KINDS,
    "DeviceClass": CLASSES,
    "ServiceAccount": Resource("ServiceAccount", "serviceaccounts", "", ("v1",), namespaced=True),
    "Service": Resource("Service", "services", "", ("v1",), namespaced=True),
    "DaemonSet": Resource("DaemonSet", "daemonsets", "apps", ("v1",), namespaced=True),
    "ValidatingAdmissionPolicy": Resource(
        "ValidatingAdmissionPolicy", "validatingadmissionpolicies", _POLICIES, ("v1",), namespaced=False
    ),
    "ValidatingAdmissionPolicyBinding": Resource(
        "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", _POLICIES, ("v1",), namespaced=False
    ),
}


def rendered(helm: Path, chart: Path, **values: str) -> Sequence[RawObject]:
    """What the chart renders for an API server of today, with these values."""
    chosen = [word for name, value in values.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
    command = (helm, "template", "example", chart, "--namespace", _NAMESPACE, "--api-versions", "resource.k8s.io/v1")
    done = run((*command, "--kube-version", "1.36.0", *chosen), check=True, capture_output=True, text=True)
    return list(filter(None, yaml.safe_load_all(done.stdout)))


async def install(client: Client, objects: Sequence[RawObject]) -> None:
    """Create everything that the chart renders."""
    await client.create(NAMESPACES, namespace(_NAMESPACE))
    for each in objects:
        resource = _KINDS[each["kind"]]
        if not resource.namespaced:
            each["metadata"].pop("namespace", None)
        await client.create(resource, each)


def example_driver(plane: ControlPlane, program: Path, objects: Sequence[RawObject]) -> Process:
    """The driver, not started yet.

    Args:
        program: its program for nodes.
        objects: as rendered; its DaemonSet says how it runs.
    """
    [pod] = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "DaemonSet"]
    [container] = pod["containers"]
    environment = {each["name"]: _value(each) for each in container["env"]}
    user = f"system:serviceaccount:{_NAMESPACE}:{pod['serviceAccountName']}"
    path = plane.folder / "example-driver.kubeconfig"
    kubeconfig = plane.access(ADMIN).write_kubeconfig(path, user=user, node=NODE)
    assigned = (f"{name}={value}" for name, value in environment.items())
    command = ("env", *assigned, str(program), f"--kubeconfig={kubeconfig}")
    folder = ROOT / "plugins" / environment["DRIVER_NAME"]

    def ready() -> bool:
        return any(listens(each)() for each in folder.glob("dra*.sock"))

    return Process("dra-example-driver", command, ready, LOGS_INSIDE / "dra-example-driver.log")


def _value(entry: RawObject) -> str:
    """The value of an environment variable, as the kubelet would find it."""
    if "value" in entry:
        return str(entry["value"])
    of_pod = {"spec.nodeName": NODE, "metadata.namespace": _NAMESPACE, "metadata.uid": _UID}
    return of_pod[entry["valueFrom"]["fieldRef"]["fieldPath"]]


def prepared_by_example_driver() -> set[str]:
    """The uids of the claims that it has prepared: each has a CDI file."""
    return {path.stem.rpartition("_")[2] for path in _CDI.glob("k8s.*")} - {"common"}


def gpus_in(environment: dict[str, Any]) -> set[str]:
    """The devices that its variables in a container name."""
    mine = (value for name, value in environment.items() if name.startswith("GPU_DEVICE_"))
    return {value for value in mine if re.fullmatch(r"gpu-\d+", value)}
