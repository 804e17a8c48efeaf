"""Kueue on a control plane, installed from its own chart, but for its program: that runs on this machine.

There is no cluster network here, so the Service of its webhooks points to this machine. There is no kubelet either, so
its certificates are copied from their Secret into a folder.
"""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from tempfile import mkdtemp
from typing import Any, Final

import yaml

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import Resource
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import NAMESPACES, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.definitions import DEFINITIONS, is_established
from tests.kit.controlplane.service import ROLE_KINDS
from tests.kit.objects.manifests import namespace
from tests.kit.objects.parts import api_object
from tests.kit.process import Process, answers, free_port, running

_GROUP: Final = "kueue.x-k8s.io"
_VERSIONS: Final = ("v1beta2",)
ADMISSION_CHECKS: Final = Resource("AdmissionCheck", "admissionchecks", _GROUP, _VERSIONS, namespaced=False)
FLAVORS: Final = Resource("ResourceFlavor", "resourceflavors", _GROUP, _VERSIONS, namespaced=False)
CLUSTER_QUEUES: Final = Resource("ClusterQueue", "clusterqueues", _GROUP, _VERSIONS, namespaced=False)
LOCAL_QUEUES: Final = Resource("LocalQueue", "localqueues", _GROUP, _VERSIONS, namespaced=True)
WORKLOADS: Final = Resource("Workload", "workloads", _GROUP, _VERSIONS, namespaced=True)
QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""The label of a Job or a pod that names its queue."""

GATE: Final = "kueue.x-k8s.io/admission"
"""The scheduling gate of a pod that Kueue has not admitted."""

_ADMISSION: Final = "admissionregistration.k8s.io"
_NAMESPACE: Final = "kueue-system"
_USER: Final = f"system:serviceaccount:{_NAMESPACE}:kueue-controller-manager"
_SERVICES: Final = Resource("Service", "services", "", ("v1",), namespaced=True)
_SECRETS: Final = Resource("Secret", "secrets", "", ("v1",), namespaced=True)
_KINDS: Final = {
    "Secret": _SECRETS,
    "MutatingWebhookConfiguration": Resource(
        "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", _ADMISSION, ("v1",), namespaced=False
    ),
    "ValidatingWebhookConfiguration": Resource(
        "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", _ADMISSION, ("v1",), namespaced=False
    ),
    "CustomResourceDefinition": DEFINITIONS,
    **ROLE_KINDS,
}
_START_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class Kueue:
    """Kueue, which runs.

    Attributes:
        config: the file of its configuration.
    """

    process: Process
    config: Path

    @asynccontextmanager
    async def with_settings(self, **more: Any) -> AsyncIterator[None]:
        """Within, it has other settings as well: it is started again, and once more after it."""
        before = self.config.read_text()
        await self._start(yaml.safe_dump({**yaml.safe_load(before), **more}))
        try:
            yield
        finally:
            await self._start(before)

    async def _start(self, config: str) -> None:
        await asyncio.to_thread(self.process.stop)
        self.config.write_text(config)
        await asyncio.to_thread(self.process.start, within=_START_SECONDS)


@asynccontextmanager
async def kueue(
    plane: ControlPlane, client: Client, program: Path, manifests: str, wanted: RawObject
) -> AsyncIterator[Kueue]:
    """Kueue is installed, and runs within the context, with the rights of its chart's service account.

    Args:
        manifests: that its chart renders.
        wanted: a part of its configuration.
    """
    port, health, metrics = free_port(), free_port(), free_port()
    folder = Path(mkdtemp(prefix="kueue-", dir=plane.folder))
    await _install(client, manifests, port)
    config = folder / "config.yaml"
    settings = {
        **wanted,
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": _NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        # Its second API server needs a cluster network.
        "featureGates": {**wanted["featureGates"], "VisibilityOnDemand": False},
    }
    config.write_text(yaml.safe_dump(settings))
    kubeconfig = plane.access(ADMIN).write_kubeconfig(folder / "kubeconfig", user=_USER)
    command = ("env", f"KUBECONFIG={kubeconfig}", str(program), f"--config={config}")
    process = Process("kueue", command, answers(f"http://127.0.0.1:{health}/readyz"), plane.logs / "kueue.log")
    mounting = asyncio.create_task(_mount(client, folder))
    try:
        async with running(process, within=_START_SECONDS):
            yield Kueue(process, config)
    finally:
        mounting.cancel()


def rendered(helm: Path, chart: Path) -> str:
    """What Kueue's chart renders."""
    command = (helm, "template", "kueue", chart, "--namespace", _NAMESPACE)
    return run(command, check=True, capture_output=True, text=True).stdout


async def _install(client: Client, manifests: str, port: int) -> None:
    """Kinds, webhooks, roles, and the Secret."""
    await client.create(NAMESPACES, namespace(_NAMESPACE))
    # An ExternalName is what an API server resolves without a cluster network.
    spec = {"type": "ExternalName", "externalName": "localhost"}
    await client.create(_SERVICES, api_object("Service", "kueue-webhook-service", namespace=_NAMESPACE, spec=spec))
    for each in filter(None, yaml.safe_load_all(manifests)):
        resource = _KINDS.get(each["kind"])
        if resource is None:
            continue
        for service in _services(each):
            service["port"] = port
        if not resource.namespaced:
            each["metadata"].pop("namespace", None)
        await client.create(resource, each)
        if resource is DEFINITIONS:
            await client.wait_for(DEFINITIONS, key_of(each), is_established)


def _services(obj: RawObject) -> Iterator[RawObject]:
    """The Services that the API server calls for an object."""
    conversion = obj.get("spec", {}).get("conversion", {}).get("webhook")
    for each in (*obj.get("webhooks", ()), *([conversion] if conversion else ())):
        yield each["clientConfig"]["service"]


async def _mount(client: Client, folder: Path) -> None:
    """Write the certificates into a folder, as a kubelet does, once Kueue has made them."""
    key = ObjectKey(_NAMESPACE, "kueue-webhook-server-cert")
    found = await client.wait_for(_SECRETS, key, lambda obj: obj and obj.get("data"), within=_START_SECONDS)
    for name, data in (found or {})["data"].items():
        (folder / name).write_bytes(b64decode(data))
