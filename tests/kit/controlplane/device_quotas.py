"""DeviceQuotas on a control plane: their definition, as we ship it, and what their statuses say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from extender.kube.api import RawObject, Resource
from tests.kit.controlplane.client import Client, Condition, key_of
from tests.kit.objects.parts import api_object

DEFINITIONS: Final = Resource(
    "CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", ("v1",), namespaced=False
)
_CRDS: Final = Path(__file__).parents[3] / "deploy" / "crds"
DEFINITION: Final[RawObject] = yaml.safe_load((_CRDS / "devicequotas.yaml").read_text())


async def define(client: Client) -> None:
    """Install the definition."""
    await client.create(DEFINITIONS, DEFINITION)
    await client.wait_for(DEFINITIONS, key_of(DEFINITION), is_established)


@asynccontextmanager
async def defined(client: Client) -> AsyncIterator[None]:
    """The definition is there for a while."""
    await define(client)
    try:
        yield
    finally:
        await client.delete(DEFINITIONS, key_of(DEFINITION))
        await client.wait_gone(DEFINITIONS, key_of(DEFINITION))


def quota(namespace: str, *limits: RawObject, name: str = "gold", **spec: Any) -> RawObject:
    return api_object("DeviceQuota", name, namespace=namespace, spec={"limits": list(limits), **spec})


def says(summary: str) -> Condition:
    """Whether the status of a quota has this summary."""
    return lambda obj: obj is not None and obj.get("status", {}).get("summary") == summary


def is_established(obj: RawObject | None) -> bool:
    """Whether a definition is served."""
    conditions = (obj or {}).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
