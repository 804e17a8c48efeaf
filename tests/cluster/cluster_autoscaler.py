"""Cluster Autoscaler makes nodes for pods of dra-scheduler, and asks our expander: ``make test-cluster-autoscaler``.

CLUSTER_AUTOSCALER names the program, with its kwok provider.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLASSES, DEVICE_QUOTAS, NODES, PODS, SLICES, TEMPLATES
from tests.kit.certificates import Authority
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.cluster_autoscaler import (
    GROUP_LABEL,
    ClusterAutoscaler,
    add_node_of,
    cluster_autoscaler,
)
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.controlplane.definitions import DEVICE_QUOTA
from tests.kit.controlplane.extended import box
from tests.kit.controlplane.joining import kubelets
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.scenario import GPUS, by_template, findings
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.scheduling_gates import gates_in_force
from tests.kit.controlplane.service import Extender, extender_with, grant_rights
from tests.kit.objects.manifests import claim_spec, device_class, is_bound, pod, resource_slice, template
from tests.kit.objects.quotas import limited, quota
from tests.kit.process import free_port
from tests.kit.waiting import wait_for_answer

LIMIT: Final = 10
"""Nodes that a group may have."""

FOUR: Final[list[RawObject]] = [{"name": f"gpu-{number}"} for number in range(4)]

WITHIN: Final = 120.0

UNSCHEDULABLE: Final = "Unschedulable"
GATED: Final = "SchedulingGated"
"""Why a pod has no node. Cluster Autoscaler looks at the first ones alone."""


@pytest.fixture(scope="module")
def program() -> Path:
    if not (found := os.environ.get("CLUSTER_AUTOSCALER")):
        pytest.skip("CLUSTER_AUTOSCALER names no Cluster Autoscaler")
    return Path(found)


@pytest.fixture(scope="module")
def plane(program: Path, binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that knows DeviceQuotas."""
    assert program.is_file()
    with own_plane(binaries, logs, "cluster-autoscaler", definition=DEVICE_QUOTA) as running:
        yield running


@dataclass(slots=True)
class Cloud:
    """A group of nodes with two GPUs each. Group, namespace and driver have one name.

    Attributes:
        late: if it is not None, drivers of new nodes publish nothing, and the nodes are here.
    """

    client: Client
    name: str
    plane: ControlPlane
    program: Path
    folder: Path
    late: list[str] | None = None

    @property
    def driver(self) -> str:
        """Name of the driver, and of its class."""
        return f"gpu.{self.name}.example.com"

    @property
    def large(self) -> str:
        """Another group, of nodes with four GPUs each."""
        return f"{self.name}-large"

    async def join(self, node: str) -> None:
        """A node is there, and its driver publishes what it has, unless it is late."""
        if self.late is None:
            await self.publish(node)
        else:
            self.late.append(node)

    async def publish(self, node: str) -> None:
        """The driver publishes what a node has. As those of a kubelet, the slices go with the node."""
        metadata = (await self.client.get(NODES, ObjectKey("", node)))["metadata"]
        devices = FOUR if metadata["labels"][GROUP_LABEL] == self.large else GPUS
        made = resource_slice(node, node, devices, driver=self.driver)
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": metadata["uid"]}
        made["metadata"]["ownerReferences"] = [owner]
        await self.client.create(SLICES, made)

    async def nodes(self, group: str = "") -> list[str]:
        """Those of a group; by default the first one."""
        found = (await self.client.list(NODES)).items
        labels = {key_of(each).name: each["metadata"]["labels"].get(GROUP_LABEL) for each in found}
        return [name for name, label in labels.items() if label == (group or self.name)]

    async def wait_nodes(self, number: int) -> None:
        """Wait until there are so many."""
        await wait_for_answer(self.nodes, lambda found: len(found) == number, f"{number} nodes", within=WITHIN)

    async def add(self, name: str, number: int, *, namespace: str = "", gang: int = 0, **spec: Any) -> list[ObjectKey]:
        """Add pods with a claim for a GPU each, for nodes of the first group if the spec does not say otherwise.

        Args:
            name: its beginning.
            number: of them.
            namespace: another one.
            gang: number of pods that run together or not at all; 0: each for itself.
            spec: further fields of the pods; containers instead of the claims.
        """
        place = namespace or self.name
        keys = []
        for each in range(number):
            asked = {} if "containers" in spec else {"claims": [by_template("gpu")]}
            made = pod(place, f"{name}-{each}", **{"nodeSelector": {GROUP_LABEL: self.name}, **asked, **spec})
            made["metadata"]["annotations"] = {GROUP: name, GROUP_SIZE: str(gang)} if gang else {}
            keys.append(key_of(await self.client.create(PODS, made)))
        return keys

    async def bound(self, keys: Sequence[ObjectKey]) -> list[ObjectKey]:
        """Those of the pods that have a node."""
        return [key for key in keys if is_bound(await self.client.get(PODS, key))]

    async def wait_bound(self, keys: Sequence[ObjectKey]) -> None:
        """Wait until all have one."""
        what = f"{len(keys)} pods with a node"
        await wait_for_answer(partial(self.bound, keys), lambda found: len(found) == len(keys), what, within=WITHIN)

    async def reasons(self, keys: Sequence[ObjectKey]) -> list[str]:
        """Why the pods have no node, as their conditions say."""
        found = [await self.client.get(PODS, key) for key in keys]
        told = (each for raw in found for each in raw["status"].get("conditions", ()))
        return sorted(str(each.get("reason", "")) for each in told if each["type"] == "PodScheduled")

    async def wait_reasons(self, keys: Sequence[ObjectKey], reason: str) -> None:
        """Wait until this is the reason of all."""
        what = f"{len(keys)} pods are {reason}"
        await wait_for_answer(
            partial(self.reasons, keys), lambda found: found == [reason] * len(keys), what, within=WITHIN
        )

    async def limit(self, devices: int, namespace: str = "") -> None:
        """A quota of the namespace."""
        limit = limited(self.driver, devices=devices)
        await self.client.create(DEVICE_QUOTAS, quota(limit, namespace=namespace or self.name))

    @asynccontextmanager
    async def open(
        self, *, gated: bool = False, nodes: int = LIMIT, others: Sequence[str] = ()
    ) -> AsyncIterator[tuple[ClusterAutoscaler, Extender]]:
        """Within, all programs run, and each group has one node.

        Args:
            gated: pods with devices wait at scheduling gates.
            nodes: that a group may have.
            others: groups beside the first one.
        """
        authority, own, grpc = Authority(), free_port(), free_port()
        certificate, key = authority.server("127.0.0.1").write(self.folder)
        (trusted := self.folder / "ca.crt").write_bytes(authority.pem)
        port = {"host": "127.0.0.1", "port": grpc, "certificate": str(certificate), "key": str(key), "anonymous": True}
        settings: RawObject = {"server": {"port": own}, "grpc": port, "autoscaler": {"learnFromLabel": GROUP_LABEL}}
        text = SHIPPED.read_text()
        config = localize(text, f"http://127.0.0.1:{own}", self.plane.kubeconfig(SCHEDULER))
        flags = ("--expander=grpc,least-waste", f"--grpc-expander-url=127.0.0.1:{grpc}")
        await grant_rights(self.client)
        async with AsyncExitStack() as stack:
            if gated:
                settings["schedulingGates"] = {"enabled": True}
                await stack.enter_async_context(gates_in_force(self.client))
            await stack.enter_async_context(kubelets(self.client, GROUP_LABEL, self.join))
            groups = dict.fromkeys([self.name, *others], nodes)
            for group in groups:
                await add_node_of(self.client, group)
            extender = await stack.enter_async_context(extender_with(self.plane, settings))
            await stack.enter_async_context(scheduler(self.plane, config, shipped_flags(text)))
            autoscaler = await stack.enter_async_context(
                cluster_autoscaler(
                    self.plane,
                    self.client,
                    self.program,
                    self.name,
                    groups,
                    *flags,
                    f"--grpc-expander-cert={trusted}",
                )
            )
            yield autoscaler, extender

    async def leave(self) -> None:
        """Remove what Cluster Autoscaler has left of the nodes at its end; their slices go with them."""
        for name in (*await self.nodes(), *await self.nodes(self.large)):
            try:
                await self.client.delete(NODES, ObjectKey("", name))
            except ApiError as error:
                if not error.is_missing:
                    raise


@pytest.fixture
async def cloud(
    client: Client, plane: ControlPlane, program: Path, namespace: str, neighbor: str, tmp_path: Path
) -> AsyncIterator[Cloud]:
    """A cloud whose programs do not run yet, and claims for one GPU in two namespaces."""
    found = Cloud(client, namespace, plane, program, tmp_path)
    await client.create(CLASSES, device_class(found.driver, found.driver))
    for place in (namespace, neighbor):
        await client.create(TEMPLATES, template(place, "gpu", claim_spec(1, found.driver)))
    yield found
    await found.leave()
    await client.delete(CLASSES, ObjectKey("", found.driver))


async def test_nodes_come_for_pods_with_claims_and_go_after_them(client: Client, cloud: Cloud) -> None:
    async with cloud.open():
        pods = await cloud.add("pod", 5)
        await cloud.wait_bound(pods)
        assert len(await cloud.nodes()) == 3
        assert await findings(client, cloud.name) == []
        for key in pods:
            await client.delete(PODS, key)
        await cloud.wait_nodes(1)


async def test_of_two_groups_nodes_come_in_the_one_that_the_expander_names(cloud: Cloud) -> None:
    """In the other one, two nodes would have to come for the gang."""
    async with cloud.open(others=[cloud.large]) as (_, extender):
        await cloud.wait_bound(await cloud.add("first", 2))
        await cloud.wait_bound(await cloud.add("large", 4, nodeSelector={GROUP_LABEL: cloud.large}))
        await cloud.wait_bound(await cloud.add("pod", 4, gang=4, nodeSelector={}))
        assert len(await cloud.nodes()) == 1
        assert len(await cloud.nodes(cloud.large)) == 2
        told = [each for each in extender.process.log.read_text().splitlines() if "node group chosen" in each]
        assert any(cloud.large in each for each in told)


async def test_no_further_node_comes_while_a_new_one_has_no_slices_yet(cloud: Cloud) -> None:
    async with cloud.open() as (autoscaler, _):
        await cloud.wait_bound(await cloud.add("first", 2))
        cloud.late = []
        pods = await cloud.add("pod", 2)
        await cloud.wait_nodes(2)
        await autoscaler.look()
        assert len(await cloud.nodes()) == 2
        assert await cloud.bound(pods) == []
        [late] = cloud.late
        await cloud.publish(late)
        await cloud.wait_bound(pods)
        assert len(await cloud.nodes()) == 2


async def test_a_pod_that_evicts_others_brings_no_node(cloud: Cloud, important: str) -> None:
    async with cloud.open() as (autoscaler, _):
        await cloud.wait_bound(await cloud.add("first", 2, terminationGracePeriodSeconds=0))
        await cloud.wait_bound(await cloud.add("important", 2, priorityClassName=important))
        await autoscaler.look()
        assert len(await cloud.nodes()) == 1


async def test_an_autoscaler_that_starts_again_knows_a_group_by_its_node(cloud: Cloud) -> None:
    async with cloud.open() as (autoscaler, _):
        await cloud.wait_bound(await cloud.add("first", 2))
        autoscaler.process.kill()
        pods = await cloud.add("pod", 2)
        await cloud.wait_reasons(pods, UNSCHEDULABLE)
        await asyncio.to_thread(autoscaler.process.start, within=START_SECONDS)
        await cloud.wait_bound(pods)
        assert len(await cloud.nodes()) == 2


async def test_a_good_pod_among_refused_ones_gets_a_node_and_they_get_none(cloud: Cloud, neighbor: str) -> None:
    async with cloud.open(gated=True) as (autoscaler, _):
        await cloud.wait_bound(await cloud.add("first", 2))
        await cloud.limit(0, neighbor)
        refused = await cloud.add("refused", 5, namespace=neighbor)
        await cloud.wait_reasons(refused, GATED)
        await cloud.wait_bound(await cloud.add("good", 1))
        await autoscaler.look()
        assert len(await cloud.nodes()) == 2
        assert await cloud.reasons(refused) == [GATED] * 5


async def test_without_gates_a_good_pod_brings_nodes_for_refused_ones_as_well(cloud: Cloud, neighbor: str) -> None:
    async with cloud.open() as (autoscaler, _):
        await cloud.wait_bound(await cloud.add("first", 2))
        await cloud.limit(0, neighbor)
        refused = await cloud.add("refused", 5, namespace=neighbor)
        await cloud.wait_reasons(refused, UNSCHEDULABLE)
        await autoscaler.look()
        assert len(await cloud.nodes()) == 1
        await cloud.wait_bound(await cloud.add("good", 1))
        assert len(await cloud.nodes()) == 4
        assert await cloud.bound(refused) == []


@pytest.mark.parametrize(("there", "size"), [(3, 4), (8, 8)], ids=["a member is not there", "never fits"])
async def test_a_gang_that_can_not_run_whole_brings_no_node(cloud: Cloud, there: int, size: int) -> None:
    async with cloud.open(nodes=3) as (autoscaler, _):
        pods = await cloud.add("train", there, gang=size)
        await cloud.wait_reasons(pods, UNSCHEDULABLE)
        await autoscaler.look()
        assert len(await cloud.nodes()) == 1
        assert await cloud.bound(pods) == []


async def test_a_gang_that_fits_brings_its_nodes_once_all_of_its_pods_are_there(cloud: Cloud) -> None:
    async with cloud.open(nodes=3):
        pods = await cloud.add("train", 6, gang=6)
        await cloud.wait_bound(pods)
        assert len(await cloud.nodes()) == 3


async def test_a_quota_with_room_for_one_of_five_pods_brings_one_node(cloud: Cloud) -> None:
    async with cloud.open(gated=True) as (autoscaler, _):
        await cloud.wait_bound(await cloud.add("first", 2))
        await cloud.limit(3)
        pods = await cloud.add("pod", 5)
        what = "one of the pods with a node"
        await wait_for_answer(partial(cloud.bound, pods), lambda found: len(found) == 1, what, within=WITHIN)
        await autoscaler.look()
        assert len(await cloud.nodes()) == 2
        assert sorted(await cloud.reasons(pods))[-4:] == [GATED] * 4


async def test_a_quota_that_is_used_up_brings_no_node(cloud: Cloud) -> None:
    async with cloud.open() as (autoscaler, _):
        await cloud.wait_bound(await cloud.add("first", 2))
        await cloud.limit(2)
        pods = await cloud.add("pod", 5)
        await cloud.wait_reasons(pods, UNSCHEDULABLE)
        await autoscaler.look()
        assert len(await cloud.nodes()) == 1
        assert await cloud.bound(pods) == []


async def test_nodes_come_for_extended_resources(client: Client, cloud: Cloud) -> None:
    resource = "example.com/gpu"
    await client.patch(CLASSES, ObjectKey("", cloud.driver), {"spec": {"extendedResourceName": resource}})
    async with cloud.open():
        pods = await cloud.add("pod", 6, containers=[box("main", **{resource: "1"})])
        await cloud.wait_bound(pods)
        assert len(await cloud.nodes()) >= 3


async def test_no_node_comes_while_the_extender_is_away_and_pods_run_when_it_is_back(cloud: Cloud) -> None:
    async with cloud.open() as (autoscaler, extender):
        await cloud.wait_bound(await cloud.add("first", 2))
        extender.process.kill()
        pods = await cloud.add("pod", 2)
        await cloud.wait_reasons(pods, "SchedulerError")
        await autoscaler.look()
        assert len(await cloud.nodes()) == 1
        await asyncio.to_thread(extender.process.start, within=START_SECONDS)
        await cloud.wait_bound(pods)
        assert len(await cloud.nodes()) == 2
