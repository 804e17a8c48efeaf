"""The autoscaler of config/example scales a group up and down, over TLS, with a token and the role that we ship."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from runpy import run_path
from typing import Any, Final

import pytest
import yaml

from extender.client import NodeGroup
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLASSES, NODES, PODS, SLICES, TEMPLATES
from tests.cluster.test_off_the_node import ACCOUNTS, AUDIENCE, allowed, service_account, token_of
from tests.kit.certificates import Authority
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.scenario import GPUS, bound, by_template, rejection
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import API_RIGHTS, extender_with, grant_rights
from tests.kit.objects.manifests import add_node, claim_spec, device_class, is_bound, pod, resource_slice, template
from tests.kit.places import ROOT
from tests.kit.process import free_port
from tests.kit.waiting import wait_for_answer

EXAMPLE: Final[Any] = run_path(str(ROOT / "config/example/autoscaler/node_group.py"))
GROUP: Final = "example.com/group"
LIMIT: Final = 4
WITHIN: Final = 60.0


@dataclass(slots=True)
class Fleet:
    """A cloud whose machines are Nodes without a kubelet. Their names, classes and drivers are those of a namespace.

    Attributes:
        publishing: set once the drivers of machines publish their devices.
        ordered: the names of all machines there were.
    """

    client: Client
    namespace: str
    publishing: asyncio.Event = field(default_factory=asyncio.Event)
    ordered: list[str] = field(default_factory=list)
    _drivers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def driver(self) -> str:
        """Name of the driver, and of its class."""
        return f"gpu.{self.namespace}.example.com"

    @property
    def group(self) -> NodeGroup:
        """What is known of machines before there is one."""
        allocatable = {"cpu": "32", "memory": "64Gi", "pods": "110"}
        node = {"metadata": {"name": "", "labels": {GROUP: self.namespace}}, "status": {"allocatable": allocatable}}
        return NodeGroup(self.namespace, node, LIMIT)

    async def nodes(self) -> Sequence[RawObject]:
        return (await self.client.list(NODES)).items

    async def pods(self) -> Sequence[RawObject]:
        return (await self.client.list(PODS, self.namespace)).items

    async def add(self) -> str:
        name = f"{self.namespace}-{len(self.ordered)}"
        self.ordered.append(name)
        await add_node(self.client, name)
        labels = {GROUP: self.namespace, "kubernetes.io/hostname": name}
        await self.client.patch(NODES, ObjectKey("", name), {"metadata": {"labels": labels}})
        self._drivers.append(asyncio.create_task(self._publish(name)))
        return name

    async def _publish(self, name: str) -> None:
        await self.publishing.wait()
        await self.client.create(SLICES, resource_slice(name, name, GPUS, driver=self.driver))

    async def remove(self, name: str) -> None:
        """Drain a machine, and take it away. The pods are made again, as by their ReplicaSet.

        Nothing asks whether the node of a binding exists: a pod that is made too early may get the old machine again.
        """
        await self.client.patch(NODES, ObjectKey("", name), {"spec": {"unschedulable": True}})
        drained = [key_of(each) for each in await self.pods() if each["spec"].get("nodeName") == name]
        for key in drained:
            await self.client.delete(PODS, key)
            await self.client.wait_gone(PODS, key)
        await self.client.delete(SLICES, ObjectKey("", name))
        await self.client.delete(NODES, ObjectKey("", name))
        for key in drained:
            await self.client.create(PODS, self.pod(key.name))

    def pod(self, name: str, claim_template: str = "one") -> RawObject:
        """A pod for machines of the group."""
        chosen = {GROUP: self.namespace}
        return pod(self.namespace, name, claims=[by_template(claim_template)], nodeSelector=chosen)

    async def places(self) -> dict[str, list[str]]:
        """The pods on each machine that there is."""
        found: dict[str, list[str]] = {
            name: [] for node in await self.nodes() if (name := key_of(node).name) in self.ordered
        }
        for each in filter(is_bound, await self.pods()):
            found[each["spec"]["nodeName"]].append(key_of(each).name)
        return found

    async def leave(self) -> None:
        """Remove what is left."""
        for each in self._drivers:
            each.cancel()
        for name in await self.places():
            await self.remove(name)


@pytest.fixture
async def fleet(client: Client, namespace: str) -> AsyncIterator[Fleet]:
    """A cloud without machines, and claims for one GPU, and for more than a machine has."""
    found = Fleet(client, namespace)
    await client.create(CLASSES, device_class(found.driver, found.driver))
    for name, count in {"one": 1, "three": 3}.items():
        await client.create(TEMPLATES, template(namespace, name, claim_spec(count, found.driver)))
    yield found
    await found.leave()
    await client.delete(CLASSES, ObjectKey("", found.driver))


@asynccontextmanager
async def served(plane: ControlPlane, fleet: Fleet, folder: Path) -> AsyncIterator[str]:
    """The service with a port for callers off the node, and a scheduler beside it; where that port is."""
    authority, own, api = Authority(), free_port(), free_port()
    certificate, key = authority.server("127.0.0.1").write(folder)
    (folder / "ca.crt").write_bytes(authority.pem)
    brings = {"driver": fleet.driver, "devices": GPUS}
    entry = {"name": "machines", "labels": {GROUP: fleet.namespace}, "slices": [brings]}
    (folder / "templates.yaml").write_text(yaml.safe_dump({"nodeTemplates": [entry]}))
    port = {"host": "127.0.0.1", "port": api, "certificate": str(certificate), "key": str(key), "audience": AUDIENCE}
    templates = {"nodeTemplates": str(folder / "templates.yaml")}
    settings = {"server": {"port": own}, "api": port, "autoscaler": templates}
    await grant_rights(fleet.client)
    await grant_rights(fleet.client, API_RIGHTS)
    text = SHIPPED.read_text()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(extender_with(plane, settings))
        config = localize(text, f"http://127.0.0.1:{own}", plane.kubeconfig(SCHEDULER))
        await stack.enter_async_context(scheduler(plane, config, shipped_flags(text)))
        yield f"https://127.0.0.1:{api}"


@asynccontextmanager
async def autoscaling(plane: ControlPlane, fleet: Fleet, folder: Path) -> AsyncIterator[None]:
    """Within, the example runs, as a service account with the role."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "caller", "namespace": fleet.namespace},
    }
    await fleet.client.create(ACCOUNTS, account)
    name = f"{fleet.namespace}/caller"
    async with (
        allowed(fleet.client, "dra-extender-autoscaler", service_account(name)),
        served(plane, fleet, folder) as url,
        EXAMPLE["connect"](url, folder / "ca.crt", await token_of(fleet.client, name)) as client,
    ):
        running = asyncio.create_task(EXAMPLE["Autoscaler"](client, fleet, fleet.group).run(every=0.2))
        try:
            yield
            assert not running.done()
        finally:
            running.cancel()


async def test_a_group_of_nodes_grows_for_pods_with_devices_and_shrinks_again(
    client: Client, plane: ControlPlane, fleet: Fleet, tmp_path: Path
) -> None:
    names = [f"pod-{number}" for number in range(5)]
    never = await client.create(PODS, fleet.pod("never", "three"))
    for name in names:
        await client.create(PODS, fleet.pod(name))
    async with autoscaling(plane, fleet, tmp_path):

        async def wait_for_places(*sizes: int) -> dict[str, list[str]]:
            """How many pods are on each machine."""
            return await wait_for_answer(
                fleet.places,
                lambda found: sorted(map(len, found.values())) == list(sizes),
                f"machines with {sizes} pods",
                within=WITHIN,
            )

        # Three machines come, and no more while their drivers are silent.
        await wait_for_places(0, 0, 0)
        assert "no" in await rejection(client, key_of(never))
        assert len(fleet.ordered) == 3
        fleet.publishing.set()
        for name in names:
            await bound(client, ObjectKey(fleet.namespace, name), within=WITHIN)
        one, *others = (pods for pods in (await wait_for_places(1, 2, 2)).values() if len(pods) == 2)
        # One pod each is left on two machines: one machine is enough for both.
        left = {one[0], others[0][0]}
        for name in {*names} - left:
            await client.delete(PODS, ObjectKey(fleet.namespace, name))
        [together] = (await wait_for_places(2)).values()
        assert {*together} == left
        for name in left:
            await client.delete(PODS, ObjectKey(fleet.namespace, name))
        await wait_for_places()
        assert len(fleet.ordered) == 3
