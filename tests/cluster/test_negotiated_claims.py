"""Negotiated claims over HTTP, with an API server, its controllers, kube-scheduler and a controller of licenses."""

import json
from collections.abc import AsyncIterator

import pytest

from extender.config.sources import load
from extender.faces.commands.explain import ExplainedObject, explained_live
from extender.kube.api import ObjectKey, RawObject
from extender.kube.connection.credentials import Origin
from extender.kube.resources import CLAIMS, CLASSES, PODS, Resource
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.controllers import ENTRY, Licensing, entry, license_findings, licensing, serving_with
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.scenario import bound, event, rejection
from tests.kit.controlplane.service import grant_rights
from tests.kit.licensing import CLOSED, NONE_LEFT, taken
from tests.kit.objects.manifests import claim, pod, request, requests
from tests.kit.objects.parts import api_object
from tests.kit.waiting import wait_for_answer

pytestmark = pytest.mark.usefixtures("nodes")

SCHEDULER = "negotiating"
CONFIG_MAPS = Resource("ConfigMap", "configmaps", "", ("v1",), namespaced=True, is_foreign=True)
PARAMETERS = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
RIGHT = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dra-extender-parameters}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dra-extender-parameters}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dra-extender-parameters}
subjects: []
"""
UNKNOWN = "controller ghost.example.com of device class ghost is not in the settings"


@pytest.fixture(name="licenses")
async def _licenses(client: Client, plane: ControlPlane) -> AsyncIterator[Licensing]:
    """A controller with two licenses, and an extender and a scheduler that know it."""
    right = plane.folder / "parameters.yaml"
    right.write_text(RIGHT)
    await grant_rights(client, right)
    async with licensing(plane, client, ["Http"], 2) as controllers:
        serve = serving_with(plane, controllers, parameters=[PARAMETERS])
        async with pair(client, plane, SCHEDULER, serve=serve):
            yield controllers[0]


async def add_pod(client: Client, namespace: str, name: str, license_: RawObject) -> ObjectKey:
    """A pod with a claim."""
    await client.create(CLAIMS, license_)
    made = pod(namespace, name, claims=[entry(key_of(license_).name)], scheduler=SCHEDULER)
    return key_of(await client.create(PODS, made))


async def test_bad_input_is_told_and_what_is_mended_runs(client: Client, namespace: str, licenses: Licensing) -> None:
    # A controller that nobody knows: the pod is told, and so is an immediate claim.
    annotations = {"dra-extender.dev/controller": "ghost.example.com"}
    await client.create(CLASSES, api_object("DeviceClass", "ghost", metadata={"annotations": annotations}, spec={}))
    haunted = claim(namespace, "haunted", requests(request(ENTRY, "ghost")))
    key = await add_pod(client, namespace, "haunted", haunted)
    assert UNKNOWN in await rejection(client, key, about="controller")
    immediate = claim(namespace, "immediate", requests(request(ENTRY, "ghost")))
    immediate["metadata"]["annotations"] = {"dra-extender.dev/allocation-mode": "Immediate"}
    await client.create(CLAIMS, immediate)
    assert await event(client, namespace, "ClaimNotAllocated", about=UNKNOWN)
    await client.delete(CLASSES, ObjectKey("", "ghost"))

    # Parameters that are missing: the pod runs once they are there, and gives its license back in the end.
    wanted = licenses.claim(namespace, "wanted")
    ref = {"apiGroup": "", "kind": "ConfigMap", "name": "small"}
    wanted["metadata"]["annotations"] = {"dra-extender.dev/parameters-ref": json.dumps(ref)}
    key = await add_pod(client, namespace, "wanted", wanted)
    missing = f"claim wanted: parameters ConfigMap {namespace}/small: there is no such object"
    assert missing in await rejection(client, key, about="parameters")
    await client.create(CONFIG_MAPS, api_object("ConfigMap", "small", namespace=namespace, data={"memory": "2Gi"}))
    await bound(client, key)
    assert is_allocated(await client.get(CLAIMS, ObjectKey(namespace, "wanted")))
    assert len(taken(licenses.folder)) == 1
    assert await license_findings(client, namespace, [licenses]) == []
    await client.delete(PODS, key)
    await wait_for_answer(lambda: _taken(licenses), lambda found: not found, "the license is given back", within=30)


async def _taken(licenses: Licensing) -> dict[str, str]:
    return taken(licenses.folder)


async def test_explain_without_a_service_asks_the_controller(
    client: Client, plane: ControlPlane, namespace: str, licenses: Licensing
) -> None:
    closed = licenses.folder.parent / CLOSED
    closed.touch()
    wanted = licenses.claim(namespace, "wanted")
    key = await add_pod(client, namespace, "wanted", wanted)
    assert NONE_LEFT in await rejection(client, key, about="license")
    known = load(flags={"controllers": [{"name": licenses.name, **licenses.address}]})
    origin = Origin(str(plane.kubeconfig(ADMIN)))
    for asked in (ExplainedObject(key), ExplainedObject(key_of(wanted), is_claim=True)):
        assert NONE_LEFT in (await explained_live(origin, known, asked)).text
        unknown = await explained_live(origin, load(), asked)
        assert f"controller {licenses.name} of device class {licenses.name} is not in the settings" in unknown.text
    closed.unlink()
    await bound(client, key)
