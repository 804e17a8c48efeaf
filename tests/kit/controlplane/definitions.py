"""The definitions of our own kinds on a control plane, as we ship them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import yaml

from extender.kube.api import RawObject
from extender.kube.resources import Resource
from tests.kit.controlplane.client import Client, key_of
from tests.kit.places import ROOT

DEFINITIONS: Final = Resource(
    "CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", ("v1",), namespaced=False
)
_CRDS: Final = ROOT / "deploy" / "crds"
DEVICE_QUOTA: Final[RawObject] = yaml.safe_load((_CRDS / "devicequotas.yaml").read_text())
CONTEXT: Final[RawObject] = yaml.safe_load((_CRDS / "podschedulingcontexts.yaml").read_text())
RESOURCE_CLASS: Final[RawObject] = yaml.safe_load((_CRDS / "resourceclasses.yaml").read_text())


async def define(client: Client, definition: RawObject) -> None:
    """Install a definition."""
    await client.create(DEFINITIONS, definition)
    await client.wait_for(DEFINITIONS, key_of(definition), is_established)


@asynccontextmanager
async def defined(client: Client, definition: RawObject) -> AsyncIterator[None]:
    """A definition is there for a while."""
    await define(client, definition)
    try:
        yield
    finally:
        await client.delete(DEFINITIONS, key_of(definition))
        await client.wait_gone(DEFINITIONS, key_of(definition))


def is_established(obj: RawObject | None) -> bool:
    """Whether a definition is served."""
    conditions = (obj or {}).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
