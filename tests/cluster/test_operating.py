"""What docs/how-to/operate.md says: namespaces move over and back, and what stays when the service is gone."""

from collections.abc import AsyncIterator

import pytest
import yaml

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, NODES, PODS
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.client import NAMESPACES, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.only_scheduler import DEFAULT, POLICIES
from tests.kit.controlplane.scenario import by_name
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.controlplane.verbs import connect_verbs
from tests.kit.objects.manifests import add_node, claim, pod, request, requests
from tests.kit.places import ROOT
from tests.kit.waiting import wait_for_answer

LABEL = "dra-extender.dev/scheduler"
OURS = "dra-scheduler"
SHIPPED = [*yaml.safe_load_all((ROOT / "deploy" / "namespaces" / "policies.yaml").read_text())]
VALIDATING = {kind for kind in POLICIES if kind.startswith("Validating")}


class Policies:
    """The shipped policies, some of them in force."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._made: list[RawObject] = []

    async def apply(self, kinds: set[str]) -> None:
        for each in SHIPPED:
            if each["kind"] in kinds:
                self._made.append(await self._client.create(POLICIES[each["kind"]], each))

    async def remove(self) -> None:
        for each in self._made:
            await self._client.delete(POLICIES[each["kind"]], key_of(each))

    async def move(self, label: str | None) -> None:
        await self._client.patch(NAMESPACES, ObjectKey("", self._namespace), {"metadata": {"labels": {LABEL: label}}})

    async def scheduler_of(self, asking: RawObject) -> str:
        """The scheduler of a pod that is made, or the words of the refusal."""
        try:
            return str((await self._client.try_to_create(PODS, asking))["spec"]["schedulerName"])
        except ApiError as error:
            return error.message

    async def until(self, words: str, *, names: str = DEFAULT) -> None:
        """An API server takes a moment to hear of policies and labels, and of one policy after the other."""
        asking = pod(self._namespace, "asking", claims=[by_name("any")], scheduler=names)
        await wait_for_answer(
            lambda: self.scheduler_of(asking), lambda found: words in found, f"a pod with a claim: {words}", within=30.0
        )


def is_free(found: RawObject | None) -> bool:
    return found is not None and not is_allocated(found) and not found["metadata"].get("finalizers")


@pytest.fixture
async def moving(client: Client, namespace: str) -> AsyncIterator[Policies]:
    policies = Policies(client, namespace)
    yield policies
    await policies.remove()


async def test_a_namespace_moves_over_and_back_by_a_label(moving: Policies, namespace: str) -> None:
    await moving.apply(set(POLICIES))
    await moving.until(DEFAULT)
    await moving.move(OURS)
    await moving.until(OURS)
    plain = pod(namespace, "plain", scheduler=DEFAULT)
    assert await moving.scheduler_of(plain) == DEFAULT
    await moving.until("spec.schedulerName is not dra-scheduler", names="volcano")
    await moving.move(None)
    await moving.until(DEFAULT)


async def test_on_older_versions_a_pod_has_to_name_the_scheduler(moving: Policies, namespace: str) -> None:
    await moving.apply(VALIDATING)
    await moving.move(OURS)
    await moving.until("the label dra-extender.dev/scheduler of the namespace demands it")
    assert await moving.scheduler_of(pod(namespace, "named", claims=[by_name("any")])) == OURS


async def test_when_the_service_is_gone_pods_keep_their_devices_and_give_them_back_at_their_end(
    client: Client, plane: ControlPlane, namespace: str, gpu: Driver
) -> None:
    """Kubernetes' own controller frees the claim, without dra-extender."""
    await grant_rights(client)
    await add_node(client, namespace)
    await gpu.publish(namespace, [{"name": "gpu-0"}])
    key = key_of(await client.create(CLAIMS, claim(namespace, "claim", requests(request("gpu", gpu.name)))))
    made = await client.create(PODS, pod(namespace, "pod", claims=[by_name("claim")], scheduler="none"))
    async with running_extender(plane) as extender, connect_verbs(extender.url) as verbs:
        await verbs.wait_in_step(client)
        assert await verbs.bind(made, namespace) == ""
    held = await client.get(CLAIMS, key)
    assert is_allocated(held)
    await client.delete(PODS, key_of(made))
    assert await client.wait_for(CLAIMS, key, is_free)
    await client.delete(NODES, ObjectKey("", namespace))
