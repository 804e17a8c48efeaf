"""Proposals on a real control plane: their commands, run by kubectl, and their patches make the pod run."""

import asyncio
import os
import shutil
from copy import deepcopy
from typing import Any

import httpx
import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, PODS, TEMPLATES
from tests.extender.answers.explain.test_explain_patches import apply
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import bound, by_name, by_template, rejection
from tests.kit.controlplane.service import Extender
from tests.kit.objects.manifests import claim, pod, request, requests, template

KUBECTL = shutil.which("kubectl")
TAINT = {"key": "worn", "value": "yes", "effect": "NoSchedule"}
MODELS = [{"name": f"gpu-{n}", "attributes": {"model": {"string": "a100"}}} for n in range(2)]
KINDS = {each.kind: each for each in (CLAIMS, CLASSES, TEMPLATES)}
CASES: dict[str, tuple[dict[str, Any], list[RawObject]]] = {
    "fewer devices": ({"count": 6}, MODELS),
    "another model": (
        {"selectors": [{"cel": {"expression": 'device.attributes[device.driver].model == "b200"'}}]},
        MODELS,
    ),
    "a toleration": ({}, [{**each, "taints": [TAINT]} for each in MODELS]),
}


async def wanting(client: Client, namespace: str, gpu: Driver, case: str, *, is_template: bool) -> ObjectKey:
    """A pod that fits nowhere; its claim is its own, or from a template."""
    asks, devices = CASES[case]
    await gpu.publish("site-0", devices)
    spec = requests(request("gpu", gpu.name, **asks))
    made = template(namespace, "wanted", spec) if is_template else claim(namespace, "wanted", spec)
    await client.create(TEMPLATES if is_template else CLAIMS, made)
    entry = by_template("wanted") if is_template else by_name("wanted")
    await client.create(PODS, pod(namespace, "asking", claims=[entry]))
    key = ObjectKey(namespace, "asking")
    await rejection(client, key, about="gpu")
    return key


async def proposed(site: Extender, key: ObjectKey) -> RawObject:
    """The first proposal that kubectl can carry out."""
    async with httpx.AsyncClient(base_url=site.url, timeout=WAIT_SECONDS) as http:
        reply = await http.get(f"/explain/{key}", headers={"accept": "application/json"})
    found: list[RawObject] = reply.raise_for_status().json()["proposals"]
    return next(each for each in found if each["commands"])


async def run(command: str, plane: ControlPlane) -> None:
    """Run a command of a proposal as its reader would."""
    environ = {**os.environ, "KUBECONFIG": str(plane.kubeconfig(ADMIN))}
    process = await asyncio.create_subprocess_shell(
        command, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"{command}\n{output.decode()}"


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl")
@pytest.mark.parametrize("is_template", [False, True])
@pytest.mark.parametrize("case", CASES)
async def test_the_commands_of_a_proposal_make_the_pod_run(
    case: str, *, is_template: bool, client: Client, plane: ControlPlane, site: Extender, namespace: str, gpu: Driver
) -> None:
    key = await wanting(client, namespace, gpu, case, is_template=is_template)
    for command in (await proposed(site, key))["commands"]:
        await run(command, plane)
    assert await bound(client, key) == "site-0"


@pytest.mark.parametrize("case", CASES)
async def test_the_patches_of_a_proposal_make_the_pod_run(
    case: str, client: Client, site: Extender, namespace: str, gpu: Driver
) -> None:
    """The API server takes the objects that are made anew with the patches applied."""
    key = await wanting(client, namespace, gpu, case, is_template=False)
    for patch in (await proposed(site, key))["patches"]:
        assert patch["type"] == "json"
        resource, where = KINDS[patch["kind"]], ObjectKey(patch["namespace"] or "", patch["name"])
        changed = deepcopy(await client.get(resource, where))
        for operation in patch["patch"]:
            apply(changed, operation)
        await client.delete(resource, key_of(changed))
        for name in ("uid", "resourceVersion", "creationTimestamp"):
            del changed["metadata"][name]
        await client.create(resource, changed)
    assert await bound(client, key) == "site-0"


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl")
async def test_a_pod_that_holds_the_devices_is_deleted_by_the_command(
    client: Client, plane: ControlPlane, site: Extender, namespace: str, gpu: Driver
) -> None:
    await gpu.publish("site-0", MODELS)
    await client.create(CLAIMS, claim(namespace, "held", requests(request("gpu", gpu.name, count=2))))
    await client.create(PODS, pod(namespace, "holder", claims=[by_name("held")]))
    await bound(client, ObjectKey(namespace, "holder"))
    await client.create(CLAIMS, claim(namespace, "wanted", requests(request("gpu", gpu.name))))
    await client.create(PODS, pod(namespace, "asking", claims=[by_name("wanted")]))
    key = ObjectKey(namespace, "asking")
    await rejection(client, key, about="gpu")
    proposal = await proposed(site, key)
    assert proposal["commands"] == [f"kubectl delete pod -n {namespace} holder"]
    for command in proposal["commands"]:
        await run(f"{command} --force", plane)  # no kubelet reports that the pod has ended
    assert await bound(client, key) == "site-0"
