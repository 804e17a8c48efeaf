"""The queue before the scheduler's queue, as deploy/scheduling-gates has it: its policies, and its settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import yaml

from extender.cluster.objects.pods import GATE
from extender.kube.api import RawObject
from extender.kube.resources import PODS
from tests.kit.controlplane.access import EXTENDER
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.only_scheduler import POLICIES
from tests.kit.controlplane.scenario import by_name
from tests.kit.controlplane.service import SERVE, grant_rights
from tests.kit.objects.manifests import pod
from tests.kit.places import ROOT
from tests.kit.waiting import wait_for_answer

FOLDER: Final = ROOT / "deploy" / "scheduling-gates"
SHIPPED_NAME: Final = "dra-scheduler"
SERVE_GATED: Final = ("env", "DRA_EXTENDER__SCHEDULING_GATES__ENABLED=true", *SERVE)


def is_gated(found: RawObject | None) -> bool:
    """Whether a pod has the gate."""
    return GATE in gates(found)


def gates(found: RawObject | None) -> list[str]:
    """The names of a pod's scheduling gates."""
    return [each["name"] for each in ((found or {}).get("spec", {}).get("schedulingGates") or ())]


def policies(scheduler: str = SHIPPED_NAME) -> list[RawObject]:
    """The shipped ones, and their bindings, for the pods of a scheduler and for the user that the extender has here."""
    text = (FOLDER / "policies.yaml").read_text().replace(f'"{SHIPPED_NAME}"', f'"{scheduler}"')
    return list(yaml.safe_load_all(text.replace("system:serviceaccount:kube-system:dra-extender", EXTENDER)))


@asynccontextmanager
async def gates_in_force(client: Client, scheduler: str = SHIPPED_NAME) -> AsyncIterator[None]:
    """The shipped policies are there, and an API server obeys them; so are all rights."""
    await grant_rights(client)
    applied = policies(scheduler)
    for each in applied:
        await client.create(POLICIES[each["kind"]], each)
    asking = pod("default", "asking", claims=[by_name("any")], scheduler=scheduler)

    async def asked() -> bool:
        return is_gated(await client.try_to_create(PODS, asking))

    try:
        await wait_for_answer(asked, bool, "a pod with the gate", within=30.0)
        yield
    finally:
        for each in applied:
            await client.delete(POLICIES[each["kind"]], key_of(each))
        await wait_for_answer(asked, lambda found: not found, "a pod without the gate", within=30.0)
