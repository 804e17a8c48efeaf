"""ResourceQuota: the real admission and its controller, beside our cluster in memory; and what users see of it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, PODS, QUOTAS, TEMPLATES
from extender.lab.api import MemoryApi
from tests.cluster.quota_cases import CASES, PLAIN, RESOURCE, SERVED, Case, created, used
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, Condition
from tests.kit.controlplane.components import ControlPlane, Options
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.extended import add_pod, box, special_claims
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.scenario import GPUS, bound, by_template, event, held
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import claim, claim_spec, device_class, pod, template
from tests.kit.objects.quotas import resource_quota
from tests.kit.servers.memory import memory_api


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that counts quota."""
    options = Options(more_controllers=("resourcequota-controller",))
    with own_plane(binaries, logs, "quota", options) as running:
        yield running


@pytest.fixture
async def classes(client: Client) -> AsyncIterator[None]:
    """A class that serves an extended resource, and one that serves none."""
    for name in (SERVED, PLAIN):
        await client.create(CLASSES, device_class(name))
    await client.patch(CLASSES, ObjectKey("", SERVED), {"spec": {"extendedResourceName": RESOURCE}})
    yield
    for name in (SERVED, PLAIN):
        await client.delete(CLASSES, ObjectKey("", name))


def in_memory() -> MemoryApi:
    classes = [device_class(SERVED), device_class(PLAIN)]
    classes[0]["spec"]["extendedResourceName"] = RESOURCE
    return memory_api(*classes)


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_both_refuse_the_same_and_count_the_same(client: Client, namespace: str, case: Case) -> None:
    ours = in_memory()
    for api in (client, ours):
        for each in case.quotas(namespace):
            await api.create(QUOTAS, each)
    await wait_counted(client, ours, namespace)
    refused: list[str] = []
    for each in case.objects:
        real, memory = [await created(api, namespace, [each]) for api in (client, ours)]
        assert memory == real
        refused += real
        # Kubernetes' controller counts from a watch: a count of its own that is late would change what is left.
        await wait_counted(client, ours, namespace)
    assert refused == list(case.refused)


async def wait_counted(client: Client, ours: MemoryApi, namespace: str) -> None:
    """Wait until Kubernetes has counted as much as we have."""
    for name, amounts in (await used(ours, namespace)).items():
        await client.wait_for(QUOTAS, ObjectKey(namespace, name), has_used(amounts))


def has_used(amounts: dict[str, str]) -> Condition:
    """Whether the status of a quota says that this is used."""
    return lambda obj: obj is not None and obj.get("status", {}).get("used") == amounts


class TestUsersSee:
    """What becomes of pods whose claims quota refuses; each test has a driver and a class of its own."""

    @pytest.fixture
    async def resource(self, client: Client, namespace: str, gpu: Driver) -> str:
        """An extended resource that the driver's class serves."""
        await gpu.publish("site-0", GPUS)
        name = f"{namespace}.example.com/gpu"
        await client.patch(CLASSES, ObjectKey("", gpu.name), {"spec": {"extendedResourceName": name}})
        return name

    @staticmethod
    async def limit(client: Client, namespace: str, **hard: str) -> None:
        """Make the quota, or change it, and wait until it counts."""
        key = ObjectKey(namespace, "quota")
        if (await client.select(QUOTAS, namespace, {})) == ():
            await client.create(QUOTAS, resource_quota(hard, namespace=namespace))
        else:
            await client.patch(QUOTAS, key, {"spec": {"hard": hard}})
        await client.wait_for(QUOTAS, key, lambda obj: bool(obj) and (obj or {}).get("status", {}).get("hard") == hard)

    async def test_a_claim_from_a_template_is_explained_and_made_once_there_is_room(
        self, client: Client, verbs: Verbs, namespace: str, gpu: Driver
    ) -> None:
        await gpu.publish("site-0", GPUS)
        counted = f"{gpu.name}.deviceclass.resource.k8s.io/devices"
        await self.limit(client, namespace, **{counted: "1"})
        await client.create(TEMPLATES, template(namespace, "gpu", claim_spec(1, gpu.name)))
        first, second = (ObjectKey(namespace, name) for name in ("first", "second"))
        await client.create(PODS, pod(namespace, "first", claims=[by_template("gpu")]))
        assert await bound(client, first) == "site-0"
        await client.create(PODS, pod(namespace, "second", claims=[by_template("gpu")]))
        # The scheduler holds the pod back until its claim exists, and says nothing.
        told = await event(client, namespace, "FailedResourceClaimCreation")
        assert told["regarding"]["name"] == "second"
        reason = f"quota quota of namespace {namespace}: 1 of 1 of {counted} are used and 1 more asked for"
        assert "claim gpu can't be made from its template" in await verbs.explained(second, about=reason)
        await self.limit(client, namespace, **{counted: "2"})
        assert await bound(client, second) == "site-0"

    async def test_a_special_claim_is_refused_at_bind_and_nothing_is_left_behind(
        self, client: Client, verbs: Verbs, namespace: str, gpu: Driver, resource: str
    ) -> None:
        counted = f"{gpu.name}.deviceclass.resource.k8s.io/devices"
        await self.limit(client, namespace, **{counted: "1"})
        own = claim(namespace, "own", claim_spec(1, gpu.name))
        await client.create(CLAIMS, own)
        key = ObjectKey(namespace, "pod")
        using = [{"name": "own", "resourceClaimName": "own"}]
        await add_pod(client, namespace, "pod", box("main", **{resource: "1"}), claims=using)
        told = await event(client, namespace, "QuotaExceeded")
        assert (told["regarding"]["name"], told["type"]) == ("pod", "Warning")
        assert "exceeded quota: quota" in told["note"]
        assert "fits on 1 of" in await verbs.explained(key, about="the special claim is not made: quota quota of")
        # The scheduler tries the pod again and again; between two tries, nothing is held.
        await client.wait_for(CLAIMS, ObjectKey(namespace, "own"), lambda obj: not (obj or {}).get("status"))
        assert await special_claims(client, namespace) == []
        await self.limit(client, namespace, **{counted: "2"})
        assert await bound(client, key) == "site-0"
        (made,) = await special_claims(client, namespace)
        assert [pool for pool, _ in held(made)] == ["site-0"]
