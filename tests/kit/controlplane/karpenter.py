"""Karpenter with its kwok provider on a control plane: nodes that it makes are Node objects without a kubelet."""

import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import yaml

from extender.kube.api import RawObject
from extender.kube.resources import Resource
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.binaries import CACHE, BinariesError, built
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.definitions import DEFINITIONS, is_established
from tests.kit.process import Process, answers, free_port, running

POOLS: Final = Resource("NodePool", "nodepools", "karpenter.sh", ("v1",), namespaced=False)
NODE_CLAIMS: Final = Resource("NodeClaim", "nodeclaims", "karpenter.sh", ("v1",), namespaced=False)
NODE_CLASSES: Final = Resource("KWOKNodeClass", "kwoknodeclasses", "karpenter.kwok.sh", ("v1alpha1",), namespaced=False)
POOL_LABEL: Final = "karpenter.sh/nodepool"

_MODULE: Final = "sigs.k8s.io/karpenter"
_SOURCE: Final = Path(__file__).parents[1] / "karpenter"
_FLAGS: Final = ("-mod=readonly", "-trimpath", "-buildvcs=false")
_START_SECONDS: Final = 60.0


def find_karpenter(environ: Mapping[str, str], cache: Path = CACHE) -> Path:
    """The program, built now if it has not been yet.

    Raises:
        BinariesError: there is no Go, or the build failed.
    """
    return built("karpenter", _SOURCE, _FLAGS, environ, cache, package=f"{_MODULE}/kwok")


def definitions(environ: Mapping[str, str]) -> list[RawObject]:
    """The CustomResourceDefinitions of the Go module.

    Raises:
        BinariesError: the module is not there.
    """
    command = ("go", "list", "-m", "-f", "{{.Dir}}", _MODULE)
    try:
        found = subprocess.run(command, cwd=_SOURCE, env=dict(environ), check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BinariesError(f"the module {_MODULE}: {error}") from error
    folder = Path(found.stdout.strip())
    paths = [*folder.glob("pkg/apis/crds/*.yaml"), *folder.glob("kwok/apis/crds/*.yaml")]
    return [yaml.safe_load(path.read_text()) for path in sorted(paths)]


async def define(client: Client) -> None:
    """Install Karpenter's kinds, if they are not there yet."""
    there = {each["metadata"]["name"] for each in (await client.list(DEFINITIONS)).items}
    for each in definitions(os.environ):
        if each["metadata"]["name"] not in there:
            await client.create(DEFINITIONS, each)
            await client.wait_for(DEFINITIONS, key_of(each), is_established)


@asynccontextmanager
async def karpenter(plane: ControlPlane, program: Path, *flags: str) -> AsyncIterator[Path]:
    """Karpenter runs within the context; its log file."""
    metrics, health = free_port(), free_port()
    environment = (
        f"KUBECONFIG={plane.kubeconfig(ADMIN)}",
        "SYSTEM_NAMESPACE=kube-system",
        "DISABLE_LEADER_ELECTION=true",
    )
    ports = (f"--metrics-port={metrics}", f"--health-probe-port={health}")
    command = ("env", *environment, str(program), *ports, *flags)
    log = plane.logs / "karpenter.log"
    process = Process("karpenter", command, answers(f"http://127.0.0.1:{health}/healthz"), log)
    async with running(process, within=_START_SECONDS):
        yield log


async def add_pool(client: Client, name: str, cpu: str) -> None:
    """A pool whose machines have this number of CPUs, and its class. Karpenter itself removes none of its nodes."""
    await client.create(NODE_CLASSES, _object("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", name, {}))
    wanted = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "karpenter.kwok.sh/instance-cpu": cpu}
    template = {
        "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()],
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name},
        "expireAfter": "Never",
    }
    disruption = {"consolidateAfter": "Never"}
    spec = {"template": {"spec": template}, "disruption": disruption}
    await client.create(POOLS, _object("karpenter.sh/v1", "NodePool", name, spec))


def _object(version: str, kind: str, name: str, spec: RawObject) -> RawObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
