"""The cluster's only scheduler: policies mark pods with devices, and the extender is asked about these alone."""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, PODS, TEMPLATES
from tests.kit.controlplane.aftermath import consumers, is_allocated
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.extended import box, mapped
from tests.kit.controlplane.only_scheduler import DEFAULT, MARKER, is_marked, only_scheduler, policies_in_force
from tests.kit.controlplane.scenario import add_pod, bound, by_template, event, findings, held
from tests.kit.controlplane.service import Extender
from tests.kit.controlplane.verbs import Verbs, connect_verbs
from tests.kit.objects.manifests import DEVICE_CLASS, is_bound, pod, template

RESOURCE: Final = "example.com/gpu"
MUTATING: Final = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
VALIDATING: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture
async def extender(client: Client, plane: ControlPlane, nodes: list[str]) -> AsyncIterator[Extender]:
    assert nodes
    async with only_scheduler(client, plane) as running:
        yield running


@pytest.fixture
async def guarded(client: Client) -> AsyncIterator[None]:
    """Both policies are in force."""
    async with policies_in_force(client):
        yield


@pytest.fixture
async def asked(extender: Extender) -> AsyncIterator[Verbs]:
    async with connect_verbs(extender.url) as connected:
        yield connected


def boxed(namespace: str, name: str, *containers: RawObject, **spec: object) -> RawObject:
    """A pod that names no scheduler."""
    return {**pod(namespace, name, scheduler=DEFAULT), "spec": {"containers": list(containers), **spec}}


PLAIN: Final = {
    "nothing": box("main"),
    "cpu": box("main", cpu="10m", memory="1Mi"),
    "huge pages": box("main", cpu="10m", **{"hugepages-2Mi": "2Mi"}),
}
FOREIGN: Final = {
    "an extended resource": (RESOURCE, {}),
    "the implicit name of a class": ("deviceclass.resource.kubernetes.io/gpu", {}),
    "an init container's": (RESOURCE, {"initContainers": [box("init", **{RESOURCE: "1"})]}),
}


@pytest.mark.usefixtures("guarded")
class TestPolicies:
    @pytest.mark.parametrize("kind", PLAIN)
    async def test_plain_pods_are_left_alone(self, client: Client, namespace: str, kind: str) -> None:
        made = await client.try_to_create(PODS, boxed(namespace, "plain", PLAIN[kind]))
        assert not is_marked(made)
        assert made["spec"]["schedulerName"] == DEFAULT

    async def test_pods_of_other_schedulers_are_left_alone(self, client: Client, namespace: str) -> None:
        other = pod(namespace, "other", claims=[by_template("gpu")], scheduler="another")
        made = await client.try_to_create(PODS, other)
        assert (is_marked(made), made["spec"]["schedulerName"]) == (False, "another")

    @pytest.mark.parametrize("scheduler", [DEFAULT, "dra-scheduler"])
    async def test_pods_with_claims_get_marker_and_profile(
        self, client: Client, namespace: str, scheduler: str
    ) -> None:
        asking = pod(namespace, "p", claims=[by_template("gpu")], scheduler=scheduler)
        made = await client.try_to_create(PODS, asking)
        (container,) = made["spec"]["containers"]
        assert (container["resources"]["requests"], container["resources"]["limits"]) == ({MARKER: "1"}, {MARKER: "1"})
        assert container["resources"]["claims"] == [{"name": "gpu"}]
        assert made["spec"]["schedulerName"] == "dra-scheduler"

    async def test_what_a_container_requests_stays(self, client: Client, namespace: str) -> None:
        asking = boxed(namespace, "p", box("main", cpu="10m"), box("other"), resourceClaims=[by_template("gpu")])
        main, other = (await client.try_to_create(PODS, asking))["spec"]["containers"]
        assert main["resources"]["requests"] == main["resources"]["limits"] == {"cpu": "10m", MARKER: "1"}
        assert other["resources"] == {}

    @pytest.mark.parametrize("kind", FOREIGN)
    async def test_pods_with_foreign_resources_are_marked(self, client: Client, namespace: str, kind: str) -> None:
        resource, spec = FOREIGN[kind]
        container = box("main") if spec else box("main", **{resource: "1"})
        assert is_marked(await client.try_to_create(PODS, boxed(namespace, "p", container, **spec)))

    async def test_a_marker_that_is_there_stays(self, client: Client, namespace: str) -> None:
        asking = boxed(namespace, "p", box("a"), box("b", **{MARKER: "2"}), resourceClaims=[by_template("gpu")])
        first, second = (await client.try_to_create(PODS, asking))["spec"]["containers"]
        assert (first["resources"], second["resources"]["requests"]) == ({}, {MARKER: "2"})


async def test_without_the_first_policy_the_second_one_refuses_pods_with_devices(
    client: Client, namespace: str
) -> None:
    async with policies_in_force(client, *VALIDATING):
        for asking in (
            pod(namespace, "p", claims=[by_template("gpu")], scheduler=DEFAULT),
            boxed(namespace, "p", box("main", **{RESOURCE: "1"})),
        ):
            with pytest.raises(ApiError, match=f"lacks the resource {MARKER}"):
                await client.try_to_create(PODS, asking)
        await client.try_to_create(PODS, boxed(namespace, "p", box("main", cpu="10m")))
        await client.try_to_create(PODS, boxed(namespace, "p", box("main", **{RESOURCE: "1", MARKER: "1"})))


@pytest.mark.usefixtures("guarded")
class TestScheduling:
    async def test_plain_pods_never_come_to_the_extender(self, client: Client, namespace: str, asked: Verbs) -> None:
        before = await calls(asked)
        names = [f"plain-{number}" for number in range(20)]
        for name in names:
            await client.create(PODS, boxed(namespace, name, box("main", cpu="10m")))
        for name in names:
            assert await bound(client, ObjectKey(namespace, name))
        assert await calls(asked) == before

    async def test_pods_with_claims_get_their_devices(self, client: Client, namespace: str, asked: Verbs) -> None:
        before = await calls(asked)
        await client.create(TEMPLATES, template(namespace, "gpu"))
        names = [f"pod-{number}" for number in range(4)]
        for name in names:
            await client.create(PODS, pod(namespace, name, claims=[by_template("gpu")], scheduler=DEFAULT))
        for name in names:
            await bound(client, ObjectKey(namespace, name))
        claims = (await client.list(CLAIMS, namespace)).items
        assert len({device for each in claims for device in held(each)}) == 4
        assert await findings(client, namespace) == []
        after = await calls(asked)
        assert {name: after[name] - before.get(name, 0) for name in ("filter", "bind")} == {"filter": 4, "bind": 4}

    async def test_a_pod_that_fits_nowhere_waits_and_is_served_when_there_is_room(
        self, client: Client, namespace: str, asked: Verbs
    ) -> None:
        for number in range(4):
            await add_pod(client, namespace, f"pod-{number}", scheduler=DEFAULT)
            await bound(client, ObjectKey(namespace, f"pod-{number}"))
        await add_pod(client, namespace, "late", scheduler=DEFAULT)
        await asked.wait_in_step(client)
        await asked.explained(ObjectKey(namespace, "late"), about="in use")
        await client.delete(PODS, ObjectKey(namespace, "pod-0"))
        assert await bound(client, ObjectKey(namespace, "late"))
        assert await findings(client, namespace) == []

    async def test_extended_resources_get_a_claim(self, client: Client, namespace: str, asked: Verbs) -> None:
        await client.patch(CLASSES, ObjectKey("", DEVICE_CLASS), {"spec": {"extendedResourceName": RESOURCE}})
        await asked.wait_in_step(client)
        await client.create(PODS, boxed(namespace, "p", box("main", **{RESOURCE: "1"})))
        await bound(client, ObjectKey(namespace, "p"))
        _, shown = await mapped(client, ObjectKey(namespace, "p"))
        assert shown == [f"main {RESOURCE} container-0-request-1"]


class TestUnmarked:
    """Pods that came before the policies, or while these were away."""

    async def test_a_pod_with_claims_is_caught_on_the_node_that_the_scheduler_has_chosen(
        self, client: Client, namespace: str, asked: Verbs
    ) -> None:
        before = await calls(asked)
        await add_pod(client, namespace, "early", scheduler=DEFAULT)
        node = await bound(client, ObjectKey(namespace, "early"))
        found = await client.wait_for(CLAIMS, ObjectKey(namespace, "early"), is_reserved)
        assert found is not None
        assert [pool for pool, _ in held(found)] == [node]
        assert await calls(asked) == before
        assert await findings(client, namespace) == []

    async def test_where_its_node_has_no_device_left_it_waits_there(
        self, client: Client, namespace: str, nodes: list[str], asked: Verbs
    ) -> None:
        node = nodes[0]
        only_there = on(node)
        for number in range(2):
            await add_pod(client, namespace, f"early-{number}", scheduler=DEFAULT, **only_there)
            await bound(client, ObjectKey(namespace, f"early-{number}"))
            await client.wait_for(CLAIMS, ObjectKey(namespace, f"early-{number}"), is_reserved)
        await add_pod(client, namespace, "third", scheduler=DEFAULT, **only_there)
        await bound(client, ObjectKey(namespace, "third"))
        await event(client, namespace, "ClaimsNotAllocated", about="no free device")
        text = await asked.explained(ObjectKey(namespace, "third"), about="kubelet does not start it")
        assert MARKER in text
        await client.delete(PODS, ObjectKey(namespace, "early-0"))
        await client.wait_for(CLAIMS, ObjectKey(namespace, "third"), is_reserved)

    async def test_explain_tells_why_the_scheduler_does_not_ask(
        self, client: Client, namespace: str, asked: Verbs
    ) -> None:
        await add_pod(client, namespace, "early", scheduler=DEFAULT, **on("nowhere"))
        text = await asked.explained(ObjectKey(namespace, "early"), about=MARKER)
        assert "without asking dra-extender" in text
        assert not is_bound(await client.get(PODS, ObjectKey(namespace, "early")))

    async def test_extended_resources_of_an_unmarked_pod_are_reported(
        self, client: Client, namespace: str, asked: Verbs
    ) -> None:
        await client.patch(CLASSES, ObjectKey("", DEVICE_CLASS), {"spec": {"extendedResourceName": RESOURCE}})
        await asked.wait_in_step(client)
        await client.create(PODS, boxed(namespace, "p", box("main", **{RESOURCE: "1"})))
        await bound(client, ObjectKey(namespace, "p"))
        told = await event(client, namespace, "ClaimsNotAllocated", about=RESOURCE)
        assert "kubelet starts it without" in told["note"]


def on(node: str) -> RawObject:
    """What keeps a pod to a node."""
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}
    return {"affinity": {"nodeAffinity": required}}


def is_reserved(found: RawObject | None) -> bool:
    return found is not None and is_allocated(found) and bool(consumers(found))


async def calls(asked: Verbs) -> dict[str, int]:
    """How often each verb was called."""
    names = ("filter", "prioritize", "preempt", "bind")
    return {name: await asked.answered(name) for name in names}
