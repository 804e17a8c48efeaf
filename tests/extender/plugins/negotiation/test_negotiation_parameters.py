"""Parameters of negotiated claims: objects that claims and classes name, and that controllers get as they are."""

import json
from typing import Any

import pytest

from allocator.tools import JSON
from extender.cluster.objects.claims import MARK
from extender.config.settings import ControllerSettings
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import Resource
from extender.plugins.negotiation.protocol import ALLOCATE, UNSUITABLE_NODES
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, URL, WORLD, Scene, negotiated_class
from tests.kit.clusters import Object, claim, pod
from tests.kit.servers.memory import Transport
from tests.kit.virtualtime import in_virtual_time

GROUP = "gpu.example.com"
NEEDS: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": "Needs", "resource": "needs"}
SETUP: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": "Setup", "resource": "setups", "namespaced": False}
ANNOTATION = "dra-extender.dev/parameters-ref"
FORBIDDEN = ApiError(403, "Forbidden", "needs.gpu.example.com is forbidden")


class Objects(Transport):
    """An API server that also has objects of kinds that we do not know."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.cluster.api)
        self.objects: dict[tuple[str, ObjectKey], RawObject | ApiError] = {}

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        found = self.objects.get((f"{resource.plural}.{resource.group}/{resource.versions[0]}", key))
        if isinstance(found, ApiError):
            raise found
        return await super().get(resource, key) if found is None else found


def ref(kind: str = "Needs", name: str = "small", **more: JSON) -> str:
    return json.dumps({"apiGroup": GROUP, "kind": kind, "name": name, **more})


def of_claim(text: str) -> list[Object]:
    """A pod with a claim that names parameters."""
    wanted = claim("p-c", LICENSE)
    wanted["metadata"]["annotations"] = {ANNOTATION: text}
    return [pod("p", "p-c"), wanted]


class Parameterized:
    """A scene whose controller may have parameters of two kinds.

    Attributes:
        needs: the object that the claim names by `ref`.
    """

    def __init__(self, *objects: Object, **of_class: str) -> None:
        self.scene = Scene(*objects, world=(WORLD[0], negotiated_class(**of_class), *WORLD[2:]))
        self.scene.transport = self.api = Objects(self.scene)
        self.service = self.scene.replica(controllers=[{**URL, "parameters": [NEEDS, SETUP]}])
        self.needs = {"kind": "Needs", "metadata": {"name": "small", "managedFields": []}, "memory": "2Gi"}

    def add(self, found: RawObject | ApiError) -> None:
        self.api.objects["needs.gpu.example.com/v1", ObjectKey("ns", "small")] = found

    async def reasons(self) -> list[str]:
        return await self.scene.reasons(by=self.service)


@in_virtual_time
async def test_controller_gets_the_objects_that_claim_and_class_name() -> None:
    all_ = Parameterized(*of_claim(ref()), parameters_ref=ref("Setup", "cluster"))
    setup = {"kind": "Setup", "metadata": {"name": "cluster"}, "command": ["init"]}
    all_.add(all_.needs)
    all_.api.objects["setups.gpu.example.com/v1", ObjectKey("", "cluster")] = setup
    assert await all_.reasons() == []
    assert await all_.scene.bind(by=all_.service) == ""
    expected = (
        {"source": "FromClass", "requests": ["license"], "object": setup},
        {"source": "FromClaim", "requests": ["license"], "object": all_.needs},
    )
    for kind in (UNSUITABLE_NODES, ALLOCATE):
        (asked,) = all_.scene.licenses.asked(kind)
        assert asked.claims[0].parameters == expected


@in_virtual_time
async def test_pod_waits_for_an_object_that_is_missing_and_is_woken_when_it_is_there() -> None:
    all_ = Parameterized(*of_claim(ref()))
    missing = "claim p-c: parameters Needs.gpu.example.com ns/small: there is no such object"
    assert await all_.reasons() == [missing]
    assert all_.scene.licenses.questions == []
    all_.add(all_.needs)
    await all_.scene.tick(1.0, by=all_.service)
    await all_.scene.tick(by=all_.service)
    assert await all_.scene.woken()
    assert await all_.reasons() == []


@in_virtual_time
async def test_bind_without_the_object_writes_nothing() -> None:
    all_ = Parameterized(*of_claim(ref()))
    error = await all_.scene.bind(by=all_.service)
    assert error == "node n: claim p-c: parameters Needs.gpu.example.com ns/small: there is no such object"
    assert MARK not in (await all_.scene.claim())["metadata"]["annotations"]
    assert all_.scene.licenses.questions == []


PLACE = f"claim p-c: metadata.annotations[{ANNOTATION}]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("small", f'{PLACE}: "small" is not an object in JSON'),
        (json.dumps({"kind": "Needs"}), f"{PLACE}.name: is required"),
        (ref(namespace="kube-system"), f"{PLACE}.namespace: is unknown; there are apiGroup, kind, name"),
        (
            ref("Other"),
            f"claim p-c: parameters Other.{GROUP} ns/small: the controller's settings do not name this kind",
        ),
        (ref("Setup"), "claim p-c: parameters Setup.gpu.example.com ns/small: the kind has no namespace"),
    ],
)
@in_virtual_time
async def test_reference_of_a_claim_that_cannot_be_followed_is_a_reason(text: str, problem: str) -> None:
    assert await Parameterized(*of_claim(text)).reasons() == [problem]


@in_virtual_time
async def test_object_that_may_not_be_read_is_a_reason() -> None:
    all_ = Parameterized(*of_claim(ref()))
    all_.add(FORBIDDEN)
    place = "claim p-c: parameters Needs.gpu.example.com ns/small"
    assert await all_.reasons() == [f"{place}: cannot be read: {FORBIDDEN}"]


@in_virtual_time
async def test_reference_of_a_class_to_a_kind_with_namespaces_has_one() -> None:
    all_ = Parameterized(pod("p", "p-c"), claim("p-c", LICENSE), parameters_ref=ref())
    problem = "claim p-c: parameters Needs.gpu.example.com small: the namespace is missing"
    assert await all_.reasons() == [problem]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ({**NEEDS, "apiVersion": "gpu"}, 'is not an apiVersion such as "gpu.example.com/v1"'),
        ({**NEEDS, "resource": "Needs"}, '"Needs"'),
        ({"apiVersion": "v1", "kind": "Secret", "resource": "secrets"}, "Secrets are not handed to controllers"),
        ({"apiVersion": "v1", "kind": "Needs", "resource": "secrets"}, "resource: Secrets are not handed to"),
        ({"apiVersion": "v1", "kind": "Secret", "resource": "needs"}, "kind: Secrets are not handed to controllers"),
    ],
)
def test_kinds_that_cannot_be_read_are_told_by_the_settings(kind: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="validation error") as error:
        ControllerSettings.model_validate({"name": NAME, "url": "https://a", "parameters": [kind]})
    assert problem in str(error.value)
