"""docs/how-to/operate.md from the first step to the last: its own commands, by a real kubectl and a real Helm.

What the Deployment would start runs here as processes, with tokens of the service account that the page installs. A
kube-scheduler as it comes has the other pods.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, DEVICE_QUOTAS, LEASES, PODS, SLICES, Resource
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import ALL_VERSIONS, ControlPlane, control_plane
from tests.kit.controlplane.in_tree import IN_TREE, in_tree
from tests.kit.controlplane.scenario import bound, by_name, rejection
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import SERVE, running_extender
from tests.kit.controlplane.shell import Page, Shell
from tests.kit.objects.manifests import add_node, claim, device_class, is_bound, pod, resource_slice
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.places import ROOT
from tests.kit.waiting import wait_for_answer

pytestmark = pytest.mark.every_version

PAGE = Page.read(ROOT / "docs" / "how-to" / "operate.md")
OURS = "dra-scheduler"
TEAM = "team-a"
SYSTEM, NAME = "kube-system", "dra-extender"
DEPLOYMENTS = Resource("Deployment", "deployments", "apps", ("v1",), namespaced=True)
OPTIONS = replace(ALL_VERSIONS, more_controllers=("deployment-controller", "replicaset-controller"))
"""Deployments get their pods, so that there are revisions to go back to. No kubelet starts them."""


@pytest.fixture(scope="module")
def own_plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane in whose kube-system something may be installed."""
    with (
        TemporaryDirectory(prefix="dra-extender-") as folder,
        control_plane(binaries, Path(folder), logs, OPTIONS) as running,
    ):
        yield running


@pytest.fixture
async def admin(own_plane: ControlPlane) -> AsyncIterator[Client]:
    async with connect(own_plane.access()) as connected:
        yield connected


@pytest.fixture(scope="module")
def shell(own_plane: ControlPlane, kubectl: Path, helm: Path) -> Shell:
    tools = own_plane.folder / "tools"
    tools.mkdir()
    for name, program in (("kubectl", kubectl), ("helm", helm)):
        (tools / name).symlink_to(program)
    return Shell(PAGE, tools, own_plane.kubeconfig(ADMIN))


@dataclass
class Cluster:
    """Two nodes with four devices each, and a namespace of a team."""

    client: Client

    async def make(self) -> None:
        await self.client.create(NAMESPACES, a_namespace(TEAM))
        await self.client.create(CLASSES, device_class())
        for name in ("node-0", "node-1"):
            await add_node(self.client, name)
            await self.client.create(SLICES, resource_slice(name, name, [{"name": f"gpu-{n}"} for n in range(4)]))

    async def pod(self, name: str, *, scheduler: str = IN_TREE, count: int = 1) -> ObjectKey:
        """A pod with a claim of its name."""
        wanted = claim(TEAM, name)
        wanted["spec"]["devices"]["requests"][0]["exactly"]["count"] = count
        await self.client.create(CLAIMS, wanted)
        made = pod(TEAM, name, claims=[by_name(name)], scheduler=scheduler, terminationGracePeriodSeconds=0)
        return key_of(await self.client.create(PODS, made))

    async def scheduler_of(self, key: ObjectKey) -> str:
        return str((await self.client.get(PODS, key))["spec"]["schedulerName"])

    async def claim(self, name: str) -> RawObject:
        return await self.client.get(CLAIMS, ObjectKey(TEAM, name))

    async def is_there(self, resource: Resource, key: ObjectKey) -> bool:
        try:
            await self.client.get(resource, key)
        except ApiError as error:
            if error.is_missing:
                return False
            raise
        return True

    async def until_pods_get(self, name: str) -> None:
        """An API server takes a moment to hear of policies and labels."""

        async def given() -> str:
            asking = pod(TEAM, "asking", claims=[by_name("any")], scheduler=IN_TREE)
            try:
                return str((await self.client.try_to_create(PODS, asking))["spec"]["schedulerName"])
            except ApiError as error:  # one policy is in force already, and the other one is not
                return error.message

        await wait_for_answer(given, lambda found: found == name, f"pods with claims get {name}", within=30.0)

    async def has_quotas(self) -> bool:
        """Whether DeviceQuotas are served."""
        try:
            await self.client.list(DEVICE_QUOTAS)
        except ApiError:  # they are not served, or not yet
            return False
        return True

    async def revision(self) -> str:
        found = await self.client.get(DEPLOYMENTS, ObjectKey(SYSTEM, NAME))
        return str(found["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision", ""))

    async def image(self) -> str:
        deployment = await self.client.get(DEPLOYMENTS, ObjectKey(SYSTEM, NAME))
        pod_spec = deployment["spec"]["template"]["spec"]
        containers = (*pod_spec["initContainers"], *pod_spec["containers"])
        (found,) = (str(each["image"]) for each in containers if each["name"] == NAME)
        return found


@asynccontextmanager
async def as_installed(plane: ControlPlane, shell: Shell) -> AsyncIterator[None]:
    """The scheduler and the extender of a replica, with the rights of their service account and no others."""
    token = shell.run("kubectl --namespace kube-system create token dra-extender").strip()
    kubeconfig = replace(plane.access(), token=token).write_kubeconfig(plane.folder / "installed.kubeconfig")
    async with AsyncExitStack() as stack:
        extender = await stack.enter_async_context(running_extender(plane, kubeconfig=kubeconfig, serve=SERVE))
        text = SHIPPED.read_text()
        config = localize(text, extender.url, kubeconfig)
        await stack.enter_async_context(scheduler(plane, config, shipped_flags(text)))
        yield


async def test_a_cluster_is_operated_as_the_page_says(own_plane: ControlPlane, admin: Client, shell: Shell) -> None:
    cluster = Cluster(admin)
    await cluster.make()
    async with in_tree(own_plane):
        await before_it_is_installed(cluster)
        shell.block("Install beside the default scheduler")
        async with as_installed(own_plane, shell):
            await pods_that_name_nobody_stay_with_the_default_scheduler(cluster)
            await a_namespace_moves_over_and_back(cluster, shell)
            await an_upgrade_is_rolled_back(cluster, shell)
            await the_namespace_is_moved_back_before_the_end(cluster, shell)
        await it_is_uninstalled(cluster, shell)
        await check_what_is_left(cluster, shell)


async def before_it_is_installed(cluster: Cluster) -> None:
    await bound(cluster.client, await cluster.pod("before"))


async def pods_that_name_nobody_stay_with_the_default_scheduler(cluster: Cluster) -> None:
    await bound(cluster.client, await cluster.pod("default"))
    await bound(cluster.client, await cluster.pod("named", scheduler=OURS))


async def a_namespace_moves_over_and_back(cluster: Cluster, shell: Shell) -> None:
    """The first two blocks move it over, and the third one back."""
    move = "Move a namespace over and back"
    shell.block(move, 0)
    await cluster.until_pods_get(OURS)
    moved = await cluster.pod("moved")
    assert await cluster.scheduler_of(moved) == OURS
    await bound(cluster.client, moved)
    waiting = await cluster.pod("too-much", count=9)
    await rejection(cluster.client, waiting)
    plain = pod(TEAM, "plain", scheduler=IN_TREE)
    assert await cluster.scheduler_of(key_of(await cluster.client.create(PODS, plain))) == IN_TREE
    shell.block(move, 1)
    await cluster.until_pods_get(IN_TREE)
    assert not await cluster.is_there(PODS, waiting), "pods that wait are deleted, so that they are made anew"
    assert await cluster.is_there(PODS, moved)
    back = await cluster.pod("back")
    assert await cluster.scheduler_of(back) == IN_TREE
    await bound(cluster.client, back)


async def an_upgrade_is_rolled_back(cluster: Cluster, shell: Shell) -> None:
    """With kustomize, another image stands for the next version."""
    first = await wait_for_answer(cluster.revision, bool, "the Deployment has a revision", within=30.0)
    image = await cluster.image()
    shell.run("kubectl --namespace kube-system set image deployment/dra-extender dra-extender=example.com/next:2")
    await wait_for_answer(cluster.revision, lambda found: found != first, "the next revision", within=30.0)
    assert await cluster.image() == "example.com/next:2"
    shell.block("Upgrade and roll back", 0)
    assert await cluster.image() == image


async def the_namespace_is_moved_back_before_the_end(cluster: Cluster, shell: Shell) -> None:
    shell.block("Uninstall", 0)
    await cluster.until_pods_get(IN_TREE)
    shell.run(QUOTA)
    assert await cluster.is_there(DEVICE_QUOTAS, ObjectKey(TEAM, "gold"))
    await rejection(cluster.client, await cluster.pod("waits", scheduler=OURS, count=9))
    await cluster.client.create(CLAIMS, claim(TEAM, "free"))


QUOTA = """kubectl apply --filename - <<'END'
apiVersion: dra-extender.dev/v1alpha1
kind: DeviceQuota
metadata: {name: gold, namespace: team-a}
spec:
  limits: [{name: gpu, deviceClassName: gpu.example.com, devices: 8}]
END"""


async def it_is_uninstalled(cluster: Cluster, shell: Shell) -> None:
    shell.block("Uninstall", 1)
    assert not await cluster.is_there(DEPLOYMENTS, ObjectKey(SYSTEM, NAME))
    assert not await cluster.has_quotas()
    leases = [key_of(each).name for each in (await cluster.client.list(LEASES, SYSTEM)).items]
    assert [name for name in leases if name.startswith("dra-")] == []


async def check_what_is_left(cluster: Cluster, shell: Shell) -> None:
    running = await cluster.claim("moved")
    assert is_allocated(running)
    assert running["metadata"]["finalizers"]
    shell.run("kubectl --namespace team-a delete pod moved")
    assert await cluster.client.wait_for(CLAIMS, ObjectKey(TEAM, "moved"), is_free)
    made = pod(TEAM, "later", claims=[by_name("free")], scheduler=IN_TREE)
    await bound(cluster.client, key_of(await cluster.client.create(PODS, made)))
    waiting = await cluster.client.get(PODS, ObjectKey(TEAM, "waits"))
    assert not is_bound(waiting)
    assert waiting["status"]["conditions"], "what was said of it stays"


def is_free(found: RawObject | None) -> bool:
    return found is not None and not is_allocated(found) and not found["metadata"].get("finalizers")


async def test_with_helm_as_the_page_says(admin: Client, shell: Shell) -> None:
    cluster = Cluster(admin)

    async def replicas() -> int:
        found = await admin.get(DEPLOYMENTS, ObjectKey(SYSTEM, NAME))
        return int(found["spec"]["replicas"])

    helm = "With Helm"
    shell.block(helm, 0)
    assert await replicas() == 2
    await wait_for_answer(cluster.has_quotas, bool, "DeviceQuotas are served", within=30.0)
    shell.block(helm, 1)
    assert await replicas() == 3
    shell.block(helm, 2)
    assert await replicas() == 2
    shell.block(helm, 3)
    assert not await cluster.is_there(DEPLOYMENTS, ObjectKey(SYSTEM, NAME))
    await wait_for_answer(cluster.has_quotas, lambda found: not found, "no DeviceQuotas are served", within=30.0)


def test_all_commands_of_the_page_were_run(shell: Shell) -> None:
    assert PAGE.commands - shell.done == set()
