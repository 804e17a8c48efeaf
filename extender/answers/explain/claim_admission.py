"""Reasons why the API server does not take a pod's claims: quota, admission, and the label for adminAccess.

kube-controller-manager makes claims from templates. If a claim is refused, it says so in an Event on the pod (the
resource claim controller of Kubernetes 1.36, ``syncPod``). A ResourceQuota may also keep the special claim of a pod, or
the pod itself, from being made.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.resource_quotas import Account, Charge, Extended, claim_charges, parse_resource_quota, pod_charges
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import claim_from_template
from extender.framework.pods.extended_resources.requests import DemandError, demand, special_claim, wanted
from extender.framework.pods.extended_resources.special_claim import class_serving, groups_of
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.claim_rules import ADMIN_LABEL, CREATION_FAILED
from extender.kube.resources import EVENTS, NAMESPACES, QUOTAS


@dataclass(frozen=True, slots=True)
class Unmade:
    """Why quota keeps objects from being made for a pod.

    Attributes:
        claims: the reason for each entry of ``spec.resourceClaims`` whose claim is kept from being made.
        special: the reason for the special claim; empty if it may be made, or is not needed.
        pod: the reason for the pod itself; empty if the pod exists, or may be made. Quotas with scopes are left out.
    """

    claims: Mapping[str, str] = field(default_factory=dict)
    special: str = ""
    pod: str = ""


def unmade(pod: Pod, waiting: Collection[str], snapshot: Snapshot, quotas: Collection[RawObject]) -> Unmade:
    """Which objects the quotas of a pod's namespace keep from being made now, and why.

    Args:
        pod: a pending pod, or a pod that is not made yet.
        waiting: entries of ``spec.resourceClaims`` whose claims are not made yet.
        snapshot: the cluster.
        quotas: the ResourceQuotas of the namespace, with their statuses.
    """
    extended = Extended.of(snapshot.classes.values())
    account = Account((quota for quota in map(parse_resource_quota, quotas) if not quota.scopes), extended)
    of_pod, of_itself = pod_charges(pod), ""
    if snapshot.pod(pod.uid) is None:
        of_itself = str(account.refusal(Charge(of_pod, {})) or "")
        account.add(Charge(of_pod, {}))
    claims = {}
    for each in _waiting(pod, waiting, snapshot):
        charge = Charge(claim_charges(each.claim, extended))
        if refusal := account.refusal(charge):
            claims[each.claim.name] = str(refusal)
        else:
            account.add(charge)
    special = _special(pod, snapshot)
    charge = Charge({} if special is None else claim_charges(special.claim, extended, of_pod))
    return Unmade(claims, str(account.refusal(charge) or ""), of_itself)


def _waiting(pod: Pod, waiting: Collection[str], snapshot: Snapshot) -> Iterator[ClaimObject]:
    """The claims to be made from templates, each with the name of its entry."""
    for entry in pod.claims:
        claim = claim_from_template(pod, entry, entry.name, snapshot) if entry.name in waiting else None
        if claim is not None:
            yield claim


def _special(pod: Pod, snapshot: Snapshot) -> ClaimObject | None:
    """The special claim to be made on a node without device plugins; None if there is one, or none is needed."""
    classes = {name: served for name in wanted(pod) if (served := class_serving(name, snapshot)) is not None}
    if not classes or snapshot.special_claims(pod.uid):
        return None
    try:
        return special_claim(pod, demand(pod, classes, groups_of(classes.values(), snapshot)).spec)
    except DemandError:
        return None


CLAIM_NOT_MADE: Final = "claim {} can't be made from its template"
"""A reason; ``{}`` stands for the name of an entry of ``spec.resourceClaims``."""

_SECONDS: Final = 5.0
"""The longest wait for the answers of the API server."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What is known of the claims of a pod beyond the watched objects.

    Attributes:
        failures: entries of ``spec.resourceClaims`` whose claims are not made, each with the reason: what quota says
            now, or the latest failure.
        unmade: why quota keeps the pod itself from being made; empty if the pod exists, or may be made.
        special: why quota keeps the special claim of the pod from being made; empty if the claim may be made.
        forbidden: the claim whose adminAccess the pod's namespace does not allow; empty if there is none.
        unread: why the API server's answers are missing; empty if nothing is missing.
    """

    failures: Mapping[str, str] = field(default_factory=dict)
    unmade: str = ""
    special: str = ""
    forbidden: str = ""
    unread: str = ""


NOTHING_ASKED: Final = Admission()


async def read_admission(pod: Pod, snapshot: Snapshot, api: Api) -> Admission:
    """Ask the API server what the watched objects do not tell; most pods need no question."""
    waiting = {each.name for each in pod.claims if each.template_name} - set(pod.claim_statuses)
    asking = next((each.claim.name for each in _pending(pod, snapshot) if _asks_for_admin_access(each)), "")
    if not pod.is_pending or not (waiting or asking or pod.containers):
        return NOTHING_ASKED
    try:
        async with asyncio.timeout(_SECONDS):
            fields = {"reason": CREATION_FAILED, "regarding.uid": pod.uid}
            events = await api.select(EVENTS, pod.namespace, fields) if waiting and pod.uid else ()
            quotas = await api.select(QUOTAS, pod.namespace, {}) if waiting or pod.containers else ()
            is_forbidden = bool(asking) and not await _allows_admin_access(pod.namespace, api)
    except (ApiError, OutcomeUnknownError) as error:
        return Admission(unread=str(error))
    except TimeoutError:
        return Admission(unread=f"no answer within {_SECONDS:g} s")
    failures: dict[str, str] = {}
    for event in sorted(events, key=_last):
        entry, _, text = str(event.get("note") or "").removeprefix("PodResourceClaim ").partition(": ")
        if entry in waiting:
            failures[entry] = f"{text} (Event {CREATION_FAILED}, {_last(event)})"
    by_quota = unmade(pod, waiting, snapshot, quotas)
    failures.update(by_quota.claims)
    return Admission(failures, by_quota.pod, by_quota.special, asking if is_forbidden else "")


def _pending(pod: Pod, snapshot: Snapshot) -> Iterator[ClaimObject]:
    """The claims that are to be allocated, made or not."""
    made = (snapshot.claims.get(key) for key in claim_keys(pod))
    yield from (each for each in made if each is not None and each.claim.allocation is None)
    for entry in pod.claims:
        claim = None if entry.name in pod.claim_statuses else claim_from_template(pod, entry, entry.name, snapshot)
        if claim is not None:
            yield claim


def _asks_for_admin_access(claim: ClaimObject) -> bool:
    return any(way.admin_access for request in claim.claim.spec.requests for way in request.alternatives)


async def _allows_admin_access(namespace: str, api: Api) -> bool:
    try:
        found = await api.get(NAMESPACES, ObjectKey("", namespace))
    except ApiError as error:
        if error.is_missing:
            return False
        raise
    labels = found["metadata"].get("labels") or {}
    return bool(labels.get(ADMIN_LABEL) == "true")


def _last(event: RawObject) -> str:
    """When the Event was recorded last. Controllers that use core/v1 write the deprecated field."""
    latest = (event.get("series") or {}).get("lastObservedTime") or event.get("deprecatedLastTimestamp")
    return str(latest or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
