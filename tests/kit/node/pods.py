"""Pods that run: made as a user makes them, and asked what their containers see."""

from collections.abc import Sequence
from typing import Any

import orjson

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import PODS
from tests.kit.controlplane.client import Client, key_of
from tests.kit.node.containerd import PROBE
from tests.kit.objects.manifests import pod
from tests.kit.waiting import wait_for_answer

RUN_SECONDS = 60.0
"""How long a test waits for what the kubelet does in about a second on an idle machine."""


async def start_pod(
    client: Client,
    namespace: str,
    name: str,
    *,
    claims: Sequence[RawObject] = (),
    stays: bool = False,
    asks: Sequence[str] = (),
    **spec: Any,
) -> ObjectKey:
    """A pod whose container shows its environment, and waits.

    Args:
        claims: entries of spec.resourceClaims.
        stays: whether the container needs its whole grace period.
        asks: the requests of each claim that the container uses; none: all.
        spec: further fields; ``limits`` are those of the container.
    """
    entries = [
        {"name": each["name"], **part} for each in claims for part in ([{"request": ask} for ask in asks] or [{}])
    ]
    resources = {"limits": spec.pop("limits", {}), "claims": entries}
    container = {
        "name": "main",
        "image": PROBE,
        "imagePullPolicy": "Never",
        "args": ["show", *(["stay"] if stays else [])],
        "resources": resources,
    }
    await client.create(PODS, pod(namespace, name, claims=claims, containers=[container], **spec))
    return ObjectKey(namespace, name)


async def wait_running(client: Client, key: ObjectKey) -> RawObject:
    """A pod, once it runs."""
    found = await client.wait_for(PODS, key, is_running, within=RUN_SECONDS)
    assert found
    return found


async def devices_of(client: Client, key: ObjectKey) -> dict[str, str]:
    """The devices that the container of a pod has been given, once it runs: its variables for them."""
    await wait_running(client, key)
    path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log"

    async def ask() -> RawObject:
        try:
            return await client.read(path)
        except orjson.JSONDecodeError:
            return {}

    environment = await wait_for_answer(ask, bool, f"the environment of {key}", within=RUN_SECONDS)
    return {name: value for name, value in environment.items() if name.startswith("DEVICE_")}


async def end_pods(client: Client, *keys: ObjectKey) -> None:
    """Delete pods as a user does, and wait until the kubelet has ended them."""
    for key in keys:
        await client.end(key)
    for key in keys:
        await client.wait_for(PODS, key, lambda found: found is None, within=RUN_SECONDS)


async def end_all_pods(client: Client, namespace: str) -> None:
    """End all pods of a namespace, as `end_pods`."""
    await end_pods(client, *(key_of(pod) for pod in (await client.list(PODS, namespace)).items))


def is_running(pod: RawObject | None) -> bool:
    """Do all its containers run?"""
    return bool(pod and pod.get("status", {}).get("phase") == "Running")
