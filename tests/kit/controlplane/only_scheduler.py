"""The cluster's only scheduler, as deploy/only-scheduler has it: its policies, its configuration and its settings."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import yaml

from extender.kube.api import RawObject
from extender.kube.resources import PODS, Resource
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.pair import BACKOFF_SECONDS
from tests.kit.controlplane.scenario import by_name
from tests.kit.controlplane.scheduler import localize, scheduler, shipped_flags
from tests.kit.controlplane.service import SERVE, Extender, grant_rights, running_extender
from tests.kit.objects.manifests import pod
from tests.kit.places import ROOT
from tests.kit.waiting import wait_for_answer

FOLDER: Final = ROOT / "deploy" / "only-scheduler"
CONFIGURATION: Final = FOLDER / "scheduler.yaml"
DEFAULT: Final = "default-scheduler"
"""The schedulerName of pods that name none."""

MARKER: Final = "dra-extender.dev/devices"

_GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final[Mapping[str, Resource]] = {
    kind: Resource(kind, plural, _GROUP, ("v1",), namespaced=False)
    for kind, plural in (
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}
"""The kinds of the policies."""

SERVE_MARKED: Final = ("env", "DRA_EXTENDER__SCHEDULING__MARKED_PODS_ONLY=true", *SERVE)


def policies() -> list[RawObject]:
    """The shipped ones, and their bindings."""
    return list(yaml.safe_load_all((FOLDER / "policies.yaml").read_text()))


@asynccontextmanager
async def policies_in_force(client: Client, *kinds: str) -> AsyncIterator[None]:
    """The shipped policies are there, and an API server obeys them.

    Args:
        kinds: those of `POLICIES` to apply; none: all.
    """
    applied = [each for each in policies() if not kinds or each["kind"] in kinds]
    for each in applied:
        await client.create(POLICIES[each["kind"]], each)
    try:
        await _wait_for_policies(client, {each["kind"] for each in applied})
        yield
    finally:
        for each in applied:
            await client.delete(POLICIES[each["kind"]], key_of(each))
        await _wait_for_policies(client, set())


async def _wait_for_policies(client: Client, kinds: set[str]) -> None:
    """An API server takes a moment to hear of policies."""
    asking = pod("default", "asking", claims=[by_name("any")], scheduler=DEFAULT)

    async def marked() -> str:
        try:
            return "marked" if is_marked(await client.try_to_create(PODS, asking)) else "unmarked"
        except Exception as error:
            if MARKER in str(error):
                return "refused"
            raise

    is_refused = "ValidatingAdmissionPolicy" in kinds and "MutatingAdmissionPolicy" not in kinds
    expected = "refused" if is_refused else "marked" if "MutatingAdmissionPolicy" in kinds else "unmarked"
    await wait_for_answer(marked, lambda found: found == expected, f"a pod that is {expected}", within=30.0)


def is_marked(found: RawObject) -> bool:
    """Whether a container of a pod requests the marker."""
    return any(MARKER in each.get("resources", {}).get("requests", {}) for each in found["spec"]["containers"])


@asynccontextmanager
async def only_scheduler(client: Client, plane: ControlPlane, *, gates: str = "") -> AsyncIterator[Extender]:
    """The scheduler and the extender that it asks, without the policies.

    Args:
        gates: feature gates of the scheduler beside those that we ship.
    """
    await grant_rights(client)
    text = CONFIGURATION.read_text()
    flags = tuple(f"{flag},{gates}" if gates and "gates" in flag else flag for flag in shipped_flags(text))
    async with running_extender(plane, serve=SERVE_MARKED) as extender:
        config = localize(text, extender.url, plane.kubeconfig(SCHEDULER))
        async with scheduler(plane, config | {"podMaxBackoffSeconds": BACKOFF_SECONDS}, flags):
            yield extender
