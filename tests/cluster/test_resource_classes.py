"""ResourceClass on a real API server: what its definition refuses, and the story that KEP-14 tells of three GPUs.

A k80, a p100, and a p100 with ECC. Pods ask for them by class; quota limits each class.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLASSES, PODS, QUOTAS, RESOURCE_CLASSES
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, Condition, key_of
from tests.kit.controlplane.components import ControlPlane, Options
from tests.kit.controlplane.definitions import RESOURCE_CLASS
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.extended import box, mapped
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.scenario import bound, findings, held, rejection
from tests.kit.objects.manifests import pod
from tests.kit.objects.parts import api_object

OPTIONS: Final = Options(more_controllers=("resourcequota-controller", "garbage-collector-controller"))

COLLECTED: Final = 75.0
"""Seconds within which the garbage collector knows a new kind, with a margin: it looks for kinds every 30 s."""


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that has the kind before the extender starts, and that counts quota."""
    with own_plane(binaries, logs, "resource-classes", OPTIONS, definition=RESOURCE_CLASS) as running:
        yield running


def needs(key: str, operator: str, *values: str) -> RawObject:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def resource_class(name: str, resource: str, *requirements: RawObject) -> RawObject:
    spec: RawObject = {"resourceName": resource}
    if requirements:
        spec["resourceSelector"] = [{"matchExpressions": list(requirements)}]
    return api_object("ResourceClass", name, spec=spec)


def says(status: str, reason: str, generation: int = 1) -> Condition:
    """Whether the condition Accepted of a class has this status and reason, for this state of its spec."""

    def holds(obj: RawObject | None) -> bool:
        found = (obj or {}).get("status", {}).get("conditions") or ()
        return [(status, reason, generation)] == [
            (each["status"], each["reason"], each["observedGeneration"]) for each in found
        ]

    return holds


ACCEPTED: Final = says("True", "Accepted")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "either resourceName or members"),
        ({"resourceName": "a.b/gpu", "members": {"gpu": 1}}, "either resourceName or members"),
        ({"members": {"gpu": 1}, "resourceSelector": []}, "no resourceSelector"),
        ({"members": {}}, "spec.members"),
        ({"members": {"gpu": 0}}, "spec.members.gpu"),
        ({"resourceName": "a.b/gpu", "matchAttribute": "a.b/root"}, "matchAttribute needs members"),
        ({"members": {"gpu": 1}, "matchAttribute": "root"}, "spec.matchAttribute"),
        ({"resourceName": "gpu"}, "spec.resourceName"),
        ({"resourceName": "a.b/gpu", "resourceSelector": [{}]}, "matchExpressions"),
        ({"resourceName": "a.b/gpu", "resourceSelector": [{"matchExpressions": []}]}, "matchExpressions"),
        ({"resourceName": "a.b/gpu", "resourceSelector": [{"matchExpressions": [needs("x", "Is")]}]}, "operator"),
        ({"resourceName": "a.b/gpu", "resourceSelector": [{"matchExpressions": [needs("x", "In")]}]}, "one or more"),
        (
            {"resourceName": "a.b/gpu", "resourceSelector": [{"matchExpressions": [needs("x", "Gt", "1", "2")]}]},
            "Gt and Lt take one value",
        ),
        (
            {"resourceName": "a.b/gpu", "resourceSelector": [{"matchExpressions": [needs("x", "Exists", "1")]}]},
            "take no values",
        ),
    ],
)
async def test_definition_refuses(client: Client, spec: RawObject, problem: str) -> None:
    with pytest.raises(ApiError) as refused:
        await client.create(RESOURCE_CLASSES, api_object("ResourceClass", "wrong", spec=spec))
    assert problem in str(refused.value)


async def test_definition_refuses_a_name_that_no_extended_resource_can_have(client: Client) -> None:
    with pytest.raises(ApiError, match="at most 63 characters"):
        await client.create(RESOURCE_CLASSES, resource_class("a" * 64, "a.b/gpu"))


@pytest.fixture
async def cards(gpu: Driver) -> Driver:
    """A k80, a p100, and a p100 with ECC, each on a node of its own."""
    for node, kind, ecc in (("site-0", "k80", False), ("site-1", "p100", False), ("site-2", "p100", True)):
        attributes = {"gpuType": {"string": kind}} | ({"supportECC": {"bool": True}} if ecc else {})
        await gpu.publish(node, [{"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "16G"}}}])
    return gpu


@pytest.fixture
async def classes(client: Client, namespace: str, cards: Driver) -> AsyncIterator[dict[str, str]]:
    """The classes of the story, by the name in the text: the extended resource by which pods ask for each."""
    assert cards.name == f"gpu.{namespace}.example.com"
    resource, kind = f"{namespace}.example.com/gpu", "gpuType"
    wanted = {
        "nvidia-k80": (needs(kind, "In", "k80"),),
        "nvidia-p100": (needs(kind, "In", "p100"),),
        "nvidia-p100-ecc": (needs(kind, "In", "p100"), needs("supportECC", "In", "true")),
        "raw": (),
    }
    found = {}
    for name, requirements in wanted.items():
        made = await client.create(RESOURCE_CLASSES, resource_class(f"{name}-{namespace}", resource, *requirements))
        accepted = await client.wait_for(RESOURCE_CLASSES, key_of(made), ACCEPTED)
        assert accepted is not None
        found[name] = accepted["status"]["extendedResourceName"]
    yield found
    for name in wanted:
        await client.delete(RESOURCE_CLASSES, ObjectKey("", f"{name}-{namespace}"))
        await client.wait_for(CLASSES, ObjectKey("", f"{name}-{namespace}"), lambda obj: obj is None, within=COLLECTED)


async def asks(
    client: Client, namespace: str, name: str, resource: str, *, policy: str = "best-fit", **spec: Any
) -> ObjectKey:
    """A pod with one device of an extended resource."""
    made = pod(namespace, name, terminationGracePeriodSeconds=0, **spec)
    made["metadata"]["annotations"] = {"dra-extender.dev/policy": policy}
    made["spec"]["containers"] = [box("main", **{resource: "1"})]
    await client.create(PODS, made)
    return ObjectKey(namespace, name)


async def card_of(client: Client, key: ObjectKey) -> str:
    """The node of the device that a pod has got."""
    await bound(client, key)
    made, _ = await mapped(client, key)
    ((node, _),) = held(made)
    return node


@pytest.mark.usefixtures("site")
class TestStory:
    async def test_pods_get_the_cards_of_their_classes(
        self, client: Client, namespace: str, classes: dict[str, str]
    ) -> None:
        assert await card_of(client, await asks(client, namespace, "k80", classes["nvidia-k80"])) == "site-0"
        assert await card_of(client, await asks(client, namespace, "ecc", classes["nvidia-p100-ecc"])) == "site-2"
        assert await card_of(client, await asks(client, namespace, "p100", classes["nvidia-p100"])) == "site-1"
        assert await findings(client, namespace) == []

    async def test_containers_can_still_ask_for_the_raw_resource(
        self, client: Client, namespace: str, classes: dict[str, str]
    ) -> None:
        assert classes["raw"] == f"{namespace}.example.com/gpu"
        cards = {
            await card_of(client, await asks(client, namespace, f"any-{number}", classes["raw"])) for number in range(3)
        }
        assert cards == {"site-0", "site-1", "site-2"}

    async def test_precious_card_is_taken_last_and_goes_to_the_pod_of_its_class_with_higher_priority(
        self, client: Client, namespace: str, classes: dict[str, str], important: str
    ) -> None:
        ordinary = [
            await asks(client, namespace, f"p100-{number}", classes["nvidia-p100"], policy="reserve")
            for number in range(2)
        ]
        assert [await card_of(client, key) for key in ordinary] == ["site-1", "site-2"]
        precious = await asks(client, namespace, "ecc", classes["nvidia-p100-ecc"], priorityClassName=important)
        assert await card_of(client, precious) == "site-2"
        assert await client.wait_for(PODS, ordinary[1], lambda obj: obj is None) is None
        assert await findings(client, namespace) == []

    async def test_quota_limits_each_class(self, client: Client, namespace: str, classes: dict[str, str]) -> None:
        hard = {f"requests.{classes['nvidia-k80']}": "0", f"requests.{classes['nvidia-p100']}": "1"}
        quota = await client.create(
            QUOTAS, api_object("ResourceQuota", "gold", namespace=namespace, spec={"hard": hard})
        )
        await client.wait_for(QUOTAS, key_of(quota), lambda obj: bool(obj and obj.get("status", {}).get("hard")))
        first = await asks(client, namespace, "first", classes["nvidia-p100"], policy="reserve")
        assert await card_of(client, first) == "site-1"
        for name, of in (("second", "nvidia-p100"), ("silver", "nvidia-k80")):
            with pytest.raises(ApiError, match="exceeded quota: gold"):
                await asks(client, namespace, name, classes[of])
        assert await card_of(client, await asks(client, namespace, "ecc", classes["nvidia-p100-ecc"])) == "site-2"

    async def test_class_that_changes_changes_nothing_that_is_allocated(
        self, client: Client, namespace: str, classes: dict[str, str]
    ) -> None:
        key = ObjectKey("", f"nvidia-p100-{namespace}")
        running = [await asks(client, namespace, f"p100-{number}", classes["nvidia-p100"]) for number in range(2)]
        before = {await card_of(client, key) for key in running}
        requirements = [needs("gpuType", "In", "p100"), needs("supportECC", "NotIn", "true")]
        await client.patch(RESOURCE_CLASSES, key, {"spec": {"resourceSelector": [{"matchExpressions": requirements}]}})
        await client.wait_for(RESOURCE_CLASSES, key, says("True", "Accepted", 2))
        assert {await card_of(client, key) for key in running} == before == {"site-1", "site-2"}
        await client.delete(PODS, running[1] if await card_of(client, running[1]) == "site-2" else running[0])
        waiting = await asks(client, namespace, "without-ecc", classes["nvidia-p100"])
        assert "no free device" in await rejection(client, waiting)

    @pytest.mark.usefixtures("cards")
    async def test_class_with_a_value_without_order_is_not_accepted_until_it_is_mended(
        self, client: Client, namespace: str
    ) -> None:
        resource = f"{namespace}.example.com/gpu"
        made = await client.create(RESOURCE_CLASSES, resource_class(namespace, resource, needs("memory", "Gt", "much")))
        found = await client.wait_for(RESOURCE_CLASSES, key_of(made), says("False", "InvalidExpression"))
        assert found is not None
        message = found["status"]["conditions"][0]["message"]
        assert message.startswith('spec.resourceSelector[0].matchExpressions[0].values[0]: "much" is neither an amount')
        mended = [{"matchExpressions": [needs("memory", "Gt", "15G")]}]
        await client.patch(RESOURCE_CLASSES, key_of(made), {"spec": {"resourceSelector": mended}})
        await client.wait_for(RESOURCE_CLASSES, key_of(made), says("True", "Accepted", 2))
        assert await bound(client, await asks(client, namespace, "pod", f"dra-extender.dev/{namespace}"))
        await client.delete(RESOURCE_CLASSES, key_of(made))


@pytest.mark.usefixtures("site")
async def test_group_resource_in_limits_becomes_one_claim_whose_devices_match(
    client: Client, namespace: str, gpu: Driver, nic: Driver
) -> None:
    root, name = "resource.kubernetes.io/pcieRoot", f"pair-{namespace}"
    for driver, roots in ((gpu, "ab"), (nic, "b")):
        named = [{"name": each, "attributes": {root: {"string": each}}} for each in roots]
        await driver.publish("site-0", named)
    spec = {"members": {gpu.name: 1, nic.name: 1}, "matchAttribute": root}
    made = await client.create(RESOURCE_CLASSES, api_object("ResourceClass", name, spec=spec))
    await client.wait_for(RESOURCE_CLASSES, key_of(made), ACCEPTED)
    key = await asks(client, namespace, "pair", f"dra-extender.dev/{name}")
    await bound(client, key)
    found, mappings = await mapped(client, key)
    assert set(held(found)) == {("site-0", "b")}
    requests = [each["request"] for each in found["status"]["allocation"]["devices"]["results"]]
    assert sorted(mappings) == sorted(f"main dra-extender.dev/{name} {each}" for each in requests)
    assert len(requests) == 2
    assert await findings(client, namespace) == []
    await client.delete(RESOURCE_CLASSES, key_of(made))
