"""Cluster Autoscaler with its kwok provider on a control plane: its nodes are Node objects without a kubelet."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from extender.kube.api import RawObject
from extender.kube.resources import NODES, Resource
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.objects.parts import api_object
from tests.kit.process import Process, answers, free_port, running
from tests.kit.waiting import wait_for_answer

GROUP_LABEL: Final = "example.com/group"
"""The label of a node that names its group."""

_CONFIG_MAPS: Final = Resource("ConfigMap", "configmaps", "", ("v1",), namespaced=True)
_ANNOTATION: Final = "cluster-autoscaler.kwok.nodegroup"
_AT_LEAST: Final = (f"{_ANNOTATION}/min-count", f"{_ANNOTATION}/desired-count")
_ROOM: Final = {"cpu": "32", "memory": "64Gi", "pods": "110"}
_START_SECONDS: Final = 120.0
_ROUNDS: Final = "cluster_autoscaler_function_duration_seconds_count"
_FLAGS: Final = (
    "--cloud-provider=kwok",
    "--leader-elect=false",
    "--scan-interval=1s",
    # By default, it takes many minutes to remove a node.
    "--scale-down-delay-after-add=3s",
    "--scale-down-unneeded-time=3s",
    "--unremovable-node-recheck-timeout=1s",
    "--node-delete-delay-after-taint=0s",
    "--kube-client-qps=50",
    "--kube-client-burst=100",
    "--v=4",
)


@dataclass(frozen=True, slots=True)
class ClusterAutoscaler:
    """Cluster Autoscaler, which runs.

    Attributes:
        url: of its metrics.
    """

    process: Process
    url: str

    async def rounds(self) -> float:
        """How often it has looked at pods and nodes."""
        async with httpx.AsyncClient(trust_env=False) as client:
            text = (await client.get(f"{self.url}/metrics")).text
        samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
        return sum(each.value for each in samples if each.name == _ROUNDS and each.labels["function"] == "main")

    async def look(self, times: int = 8) -> None:
        """Wait until it has looked as often once more: what it does not do then, it does not do."""
        before = await self.rounds()
        what = f"{times} rounds of Cluster Autoscaler"
        await wait_for_answer(self.rounds, lambda now: now >= before + times, what, within=_START_SECONDS, every=0.3)


@asynccontextmanager
async def cluster_autoscaler(
    plane: ControlPlane, client: Client, program: Path, namespace: str, groups: Mapping[str, int], *flags: str
) -> AsyncIterator[ClusterAutoscaler]:
    """Cluster Autoscaler runs within the context, and has looked at the cluster.

    Args:
        namespace: of its ConfigMaps.
        groups: of nodes, and how many nodes each may have at most; the last one of a group is not removed.
        flags: beside those that say where things are.
    """
    await _describe(client, namespace, groups)
    port = free_port()
    kubeconfig = plane.kubeconfig(ADMIN)
    environment = (f"KUBECONFIG={kubeconfig}", f"POD_NAMESPACE={namespace}", "KWOK_PROVIDER_MODE=local")
    places = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", f"--address=127.0.0.1:{port}")
    command = ("env", *environment, str(program), *_FLAGS, *places, *flags)
    url, log = f"http://127.0.0.1:{port}", plane.logs / f"cluster-autoscaler-{namespace}.log"
    process = Process("cluster-autoscaler", command, answers(f"{url}/health-check"), log)
    async with running(process, within=_START_SECONDS):
        found = ClusterAutoscaler(process, url)
        await found.look(times=2)
        yield found


async def add_node_of(client: Client, group: str) -> RawObject:
    """A node of a group, as Cluster Autoscaler makes it."""
    name = f"{group}-first"
    made = _node(group, 1)
    metadata = made["metadata"]
    metadata["name"] = name
    metadata["annotations"] |= {"kwok.x-k8s.io/node": "fake", f"{_ANNOTATION}/name": group}
    made["spec"] = {"providerID": f"kwok:{name}"}
    return await client.create(NODES, made)


async def _describe(client: Client, namespace: str, groups: Mapping[str, int]) -> None:
    """The two ConfigMaps of the kwok provider."""
    nodes = [_node(name, limit) for name, limit in groups.items()]
    templates = {"apiVersion": "v1", "kind": "List", "items": nodes}
    config = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": GROUP_LABEL},
        "nodes": {"skipTaint": True},
        "configmap": {"name": "kwok-provider-templates"},
    }
    for name, key, data in (
        ("kwok-provider-config", "config", config),
        ("kwok-provider-templates", "templates", templates),
    ):
        made = api_object("ConfigMap", name, namespace=namespace, data={key: yaml.safe_dump(data)})
        await client.create(_CONFIG_MAPS, made)


def _node(group: str, limit: int) -> RawObject:
    made = api_object("Node", group, status={"capacity": _ROOM, "allocatable": _ROOM})
    made["metadata"]["labels"] = {GROUP_LABEL: group, "kubernetes.io/hostname": group}
    made["metadata"]["annotations"] = {**dict.fromkeys(_AT_LEAST, "1"), f"{_ANNOTATION}/max-count": str(limit)}
    return made
