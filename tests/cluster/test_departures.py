"""What a pod was filtered for goes away before it is bound: clean ends, at once and once the extender has heard of it.

The verbs are called by hand, for pods of a scheduler that does not run: nothing comes between.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, NODES, PODS
from tests.kit.controlplane.client import NAMESPACES, Client, key_of
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import by_name, findings, held
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import add_node, claim, pod, request, requests
from tests.kit.objects.manifests import namespace as a_namespace

KEEPER = "example.com/keeper"
"""A finalizer: what has it is being deleted for as long as the test wants."""

both_ways = pytest.mark.parametrize("heard", [False, True], ids=["at once", "once heard of"])


@dataclass(frozen=True)
class Scene:
    """One node with one GPU, and a namespace for claims and pods."""

    client: Client
    verbs: Verbs
    namespace: str
    node: str
    driver: str

    async def claim(self, name: str, *finalizers: str) -> ObjectKey:
        made = claim(self.namespace, name, requests(request("gpu", self.driver)))
        made["metadata"]["finalizers"] = list(finalizers)
        return key_of(await self.client.create(CLAIMS, made))

    async def filtered(self, name: str, claim_name: str, *finalizers: str) -> RawObject:
        """A pod which may go to the node."""
        made = pod(self.namespace, name, claims=[by_name(claim_name)], scheduler="none")
        made["metadata"]["finalizers"] = list(finalizers)
        made = await self.client.create(PODS, made)
        await self.verbs.wait_in_step(self.client)
        assert (await self.verbs.filter(made, self.node))["NodeNames"] == [self.node]
        return made

    async def bind(self, made: RawObject, *, heard: bool) -> str:
        """The error of a bind, now or when the extender knows what there is."""
        if heard:
            await self.verbs.wait_in_step(self.client)
        return await self.verbs.bind(made, self.node)

    async def status(self, key: ObjectKey) -> RawObject:
        """A claim's status without what is empty."""
        found = (await self.client.get(CLAIMS, key)).get("status", {})
        return {name: value for name, value in found.items() if value}

    async def check_device_is_free(self) -> None:
        """Another pod gets the only device."""
        key = await self.claim("another")
        assert await self.bind(await self.filtered("another", "another"), heard=True) == ""
        assert held(await self.client.get(CLAIMS, key)) == [(self.node, "gpu-0")]
        assert await findings(self.client, self.namespace) == []


@pytest.fixture
async def scene(client: Client, verbs: Verbs, namespace: str, gpu: Driver) -> AsyncIterator[Scene]:
    await add_node(client, namespace)
    await gpu.publish(namespace, [{"name": "gpu-0"}])
    yield Scene(client, verbs, namespace, node=namespace, driver=gpu.name)
    if any(key_of(node).name == namespace for node in (await client.list(NODES)).items):
        await client.delete(NODES, ObjectKey("", namespace))


class TestPodDeleted:
    @both_ways
    async def test_its_claim_is_free_again(self, scene: Scene, heard: bool) -> None:
        key = await scene.claim("claim")
        made = await scene.filtered("pod", "claim")
        await scene.client.delete(PODS, key_of(made))
        error = await scene.bind(made, heard=heard)
        name = f"{scene.namespace}/pod"
        # The last one if kube-controller-manager releases the claim between our write and our look at the pod.
        words = (f"pod {name} is gone", f"pod {name} is being deleted", "was taken from the pod meanwhile")
        assert any(each in error for each in words), error
        assert await scene.status(key) == {}
        await scene.check_device_is_free()

    @both_ways
    async def test_while_it_terminates(self, scene: Scene, heard: bool) -> None:
        key = await scene.claim("claim")
        made = await scene.filtered("pod", "claim", KEEPER)
        await scene.client.delete(PODS, key_of(made))
        assert await scene.bind(made, heard=heard)
        assert await scene.status(key) == {}
        await scene.client.patch(PODS, key_of(made), {"metadata": {"finalizers": None}})
        await scene.check_device_is_free()

    @both_ways
    async def test_another_of_its_name_is_not_bound_for_it(self, scene: Scene, heard: bool) -> None:
        key = await scene.claim("claim")
        made = await scene.filtered("pod", "claim")
        await scene.client.delete(PODS, key_of(made))
        again = await scene.client.create(
            PODS, pod(scene.namespace, "pod", claims=[by_name("claim")], scheduler="none")
        )
        assert await scene.bind(made, heard=heard)
        assert await scene.status(key) == {}
        assert "nodeName" not in (await scene.client.get(PODS, key_of(made)))["spec"]
        assert await scene.bind(again, heard=True) == ""
        assert await findings(scene.client, scene.namespace) == []


class TestClaimDeleted:
    @both_ways
    async def test_the_pod_waits_for_another_of_its_name(self, scene: Scene, heard: bool) -> None:
        key = await scene.claim("claim")
        made = await scene.filtered("pod", "claim")
        await scene.client.delete(CLAIMS, key)
        assert await scene.bind(made, heard=heard) in {"claim claim does not exist", f"claim {key} is gone"}
        assert "nodeName" not in (await scene.client.get(PODS, key_of(made)))["spec"]
        await scene.claim("claim")
        assert await scene.bind(made, heard=True) == ""
        assert await findings(scene.client, scene.namespace) == []

    @both_ways
    async def test_one_that_is_being_deleted_is_not_written_to(self, scene: Scene, heard: bool) -> None:
        key = await scene.claim("claim", KEEPER)
        made = await scene.filtered("pod", "claim")
        await scene.client.delete(CLAIMS, key)
        before = await scene.client.get(CLAIMS, key)
        assert "claim claim is being deleted" in await scene.bind(made, heard=heard)
        assert await scene.client.get(CLAIMS, key) == before
        await scene.client.patch(CLAIMS, key, {"metadata": {"finalizers": None}})
        await scene.check_device_is_free()


class TestNodeDeleted:
    async def test_once_heard_of_nothing_is_allocated_there(self, scene: Scene) -> None:
        key = await scene.claim("claim")
        made = await scene.filtered("pod", "claim")
        await scene.client.delete(NODES, ObjectKey("", scene.node))
        assert await scene.bind(made, heard=True) == f"node {scene.node}: node not yet known"
        assert await scene.status(key) == {}
        refused = await scene.verbs.filter(made, scene.node)
        assert refused["FailedAndUnresolvableNodes"] == {scene.node: "node not yet known"}

    async def test_a_pod_that_is_bound_there_gives_back_what_it_has(self, scene: Scene) -> None:
        """Nobody can tell in time; the garbage collector of pods deletes such a pod."""
        key = await scene.claim("claim")
        made = await scene.filtered("pod", "claim")
        await scene.client.delete(NODES, ObjectKey("", scene.node))
        error = await scene.bind(made, heard=False)
        is_bound = "nodeName" in (await scene.client.get(PODS, key_of(made)))["spec"]
        assert bool(error) != is_bound
        assert bool(await scene.status(key)) == is_bound
        await scene.client.delete(PODS, key_of(made))
        await scene.client.wait_for(CLAIMS, key, lambda found: found and not found["status"].get("allocation"))


class TestNamespaceTerminating:
    @both_ways
    async def test_a_namespace_goes_with_all_its_objects(self, scene: Scene, heard: bool) -> None:
        ending = ObjectKey("", f"{scene.namespace}-ending")
        await scene.client.create(NAMESPACES, a_namespace(ending.name))
        there = Scene(scene.client, scene.verbs, ending.name, scene.node, scene.driver)
        await there.claim("claim")
        made = await there.filtered("pod", "claim", KEEPER)
        await scene.client.delete(NAMESPACES, ending)
        if heard:
            await scene.client.wait_for(
                PODS, key_of(made), lambda found: found and found["metadata"].get("deletionTimestamp")
            )
        error = await there.bind(made, heard=heard)
        assert not heard or "is being deleted" in error

        # A kubelet and whoever owns the finalizer would do this.
        await scene.client.patch(PODS, key_of(made), {"metadata": {"finalizers": None}})
        if not error:
            await scene.client.delete(PODS, key_of(made))
        await scene.client.wait_gone(NAMESPACES, ending)
        await scene.check_device_is_free()
