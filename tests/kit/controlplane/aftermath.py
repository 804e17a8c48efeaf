"""What must hold once a disturbance is over: nobody has lost anything, and nothing is held for nobody."""

import re
from collections.abc import Iterable, Iterator, Mapping

import httpx

from extender.kube.api import RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.scenario import findings
from tests.kit.controlplane.service import Extender
from tests.kit.objects.manifests import is_bound
from tests.kit.waiting import wait_for_answer


async def losses(client: Client, namespace: str) -> list[str]:
    """All that is wrong with pods and claims of a namespace, each by its name.

    Pods are bound, or are told why not. What a bound pod refers to is allocated and reserved for it. What is
    allocated is reserved, and for bound pods only.
    """
    claims = (await client.list(CLAIMS, namespace)).items
    pods = {pod["metadata"]["uid"]: pod for pod in (await client.list(PODS, namespace)).items}
    return [*_of_pods(pods.values(), {key_of(claim).name: claim for claim in claims}), *_of_claims(claims, pods)]


async def wait_settled(client: Client, namespace: str, *, within: float) -> None:
    """Wait until nothing is lost: a bind that is being undone holds devices for a pod that waits.

    Raises:
        WaitError: something is still lost when the time is up.
    """
    await wait_for_answer(lambda: losses(client, namespace), lambda lost: not lost, "nothing is lost", within=within)


async def check_preempted(client: Client, namespace: str, extender: Extender, *, given_up: int = 0) -> None:
    """Preemptions have ended well: the audit finds nothing, nothing is lost, and no victim has died in vain.

    Args:
        client: an administrator's.
        namespace: of the pods.
        extender: evicts; it counts since it has started.
        given_up: preemptions whose pod was chosen for again.
    """

    async def counts() -> dict[str, float]:
        async with httpx.AsyncClient(trust_env=False) as http:
            text = (await http.get(f"{extender.url}/metrics")).raise_for_status().text
        found = re.findall(r"^dra_extender_(preemption\w+) ([0-9.]+)", text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def have_ended(found: dict[str, float]) -> bool:
        return found["preemptions_total"] == found["preemption_duration_seconds_count"] + given_up

    counted = await wait_for_answer(counts, have_ended, "the preemptions have ended", within=WAIT_SECONDS)
    assert counted["preemption_victims_in_vain_total"] == 0
    await wait_settled(client, namespace, within=WAIT_SECONDS)
    assert await findings(client, namespace) == []


def consumers(claim: RawObject) -> list[str]:
    """The uids of the pods that a claim is reserved for."""
    return [each["uid"] for each in _reserved_for(claim) if each["resource"] == PODS.plural]


def is_allocated(claim: RawObject | None) -> bool:
    """Has it got devices?"""
    return bool(claim and claim.get("status", {}).get("allocation"))


def why_pending(pod: RawObject) -> str:
    """What the scheduler says; empty if it has said nothing yet."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def _of_pods(pods: Iterable[RawObject], claims: Mapping[str, RawObject]) -> Iterator[str]:
    for pod in pods:
        name = key_of(pod).name
        if not is_bound(pod):
            if not why_pending(pod):
                yield f"pod {name} waits, and nobody says for what"
            continue
        for claim in _claims_of(pod):
            found = claims.get(claim, {})
            if not is_allocated(found) or pod["metadata"]["uid"] not in consumers(found):
                yield f"pod {name} is bound, and claim {claim} is not its own"


def _of_claims(claims: Iterable[RawObject], pods: Mapping[str, RawObject]) -> Iterator[str]:
    for claim in filter(is_allocated, claims):
        name = key_of(claim).name
        if not _reserved_for(claim):
            yield f"claim {name} is allocated for nobody"
        for uid in consumers(claim):
            if not is_bound(pods.get(uid)):
                yield f"claim {name} is reserved for {'a pod that waits' if uid in pods else 'a pod that is gone'}"


def _reserved_for(claim: RawObject) -> list[RawObject]:
    found: list[RawObject] = claim.get("status", {}).get("reservedFor") or []
    return found


def _claims_of(pod: RawObject) -> Iterator[str]:
    made = {each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses") or []}
    for entry in pod["spec"].get("resourceClaims") or []:
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name:
            yield name
