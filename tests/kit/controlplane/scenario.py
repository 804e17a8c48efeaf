"""What scenarios say and ask: pods' references to claims, who is bound where, why not, and what the audit finds."""

import asyncio
from collections.abc import Callable
from typing import Any

from extender.answers.audit import audit_snapshot
from extender.faces.commands.audit import listed
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, EVENTS, PODS
from tests.kit.controlplane.client import WAIT_SECONDS, Client
from tests.kit.objects.manifests import claim, is_bound, pod

NODE_NAMES = ["served-0", "served-1"]
SITE = {"site-0": "east", "site-1": "east", "site-2": "west"}
"""The nodes of the fixture ``site``, each with its zone."""

GPUS: list[RawObject] = [{"name": "gpu-0"}, {"name": "gpu-1"}]


def by_name(name: str) -> RawObject:
    """A pod's entry ``gpu`` for a claim that is there."""
    return {"name": "gpu", "resourceClaimName": name}


def by_template(name: str) -> RawObject:
    """A pod's entry ``gpu`` for a claim that is made from a template."""
    return {"name": "gpu", "resourceClaimTemplateName": name}


def held(obj: RawObject) -> list[tuple[str, str]]:
    """Pool and device of each result of a claim's allocation."""
    return [(r["pool"], r["device"]) for r in obj["status"]["allocation"]["devices"]["results"]]


async def add_pod(client: Client, namespace: str, name: str, **spec: Any) -> RawObject:
    """A pod, and before it a claim of the same name.

    Args:
        spec: as of `tests.kit.objects.manifests.pod`.
    """
    await client.create(CLAIMS, claim(namespace, name))
    return await client.create(PODS, pod(namespace, name, claims=[by_name(name)], **spec))


async def bound(client: Client, key: ObjectKey, *, within: float = WAIT_SECONDS) -> str:
    """The node of a pod, once it has one."""
    found = await client.wait_for(PODS, key, is_bound, within=within)
    assert found
    node: str = found["spec"]["nodeName"]
    return node


async def rejection(client: Client, key: ObjectKey, *, about: str = "") -> str:
    """Why a pod can't be scheduled, once that is said.

    Args:
        about: text that the message must have: the first rejection of a pod is often for a claim that is not made yet.
    """

    def is_rejected(obj: RawObject | None) -> bool:
        return any(about in str(c.get("message")) for c in _refusals(obj))

    found = await client.wait_for(PODS, key, is_rejected)
    return next(str(c["message"]) for c in _refusals(found))


async def event(client: Client, namespace: str, reason: str, *, about: str = "") -> RawObject:
    """An Event in a namespace with this reason and this text in its note, once there is one."""

    def is_it(found: RawObject) -> bool:
        return found.get("reason") == reason and about in (found.get("note") or "")

    async with asyncio.timeout(WAIT_SECONDS):
        listing = await client.list(EVENTS, namespace)
        for there in listing.items:
            if is_it(there):
                return there
        async for new in client.watch(EVENTS, ObjectKey(namespace, ""), since=listing.revision):
            if is_it(new.object):
                return new.object
    raise AssertionError(f"the watch of Events in {namespace} has ended")


def has_condition(kind: str) -> Callable[[RawObject | None], bool]:
    """Whether an object has a condition of this type, whatever its status."""
    return lambda obj: any(c["type"] == kind for c in (obj or {}).get("status", {}).get("conditions", []))


async def findings(client: Client, namespace: str) -> list[str]:
    """What the audit has against claims of a namespace, alone or together with others."""
    snapshot = await listed(client)
    assert any(each.claim.allocation for key, each in snapshot.claims.items() if key.namespace == namespace)
    return [str(f) for f in audit_snapshot(snapshot) if any(name.startswith(f"{namespace}/") for name in f.claims)]


def _refusals(obj: RawObject | None) -> list[RawObject]:
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return [c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
