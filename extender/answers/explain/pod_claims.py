"""A pod's claims: where each is written, which name was meant, and why the API server takes them or not.

Quotas, admission and the label for adminAccess may keep claims from being made. kube-controller-manager makes claims
from templates. If a claim is refused, it says so in an Event on the pod (the resource claim controller of Kubernetes
1.36, ``syncPod``). A ResourceQuota may also keep the special claim of a pod, or the pod itself, from being made.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from allocator import ClaimSpec, ClaimTemplate
from allocator.tools import hint
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject, is_immediate, mode_problem
from extender.cluster.objects.pods import Pod, PodClaim
from extender.cluster.objects.resource_classes import ResourceClass
from extender.cluster.resource_quotas import Account, Charge, Extended, claim_charges, parse_resource_quota, pod_charges
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import claim_from_template, is_made_for
from extender.framework.pods.extended_resources import (
    DemandError,
    class_serving,
    demand,
    groups_of,
    special_claim,
    wanted,
)
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.claim_rules import ADMIN_LABEL, CREATION_FAILED, MAX_CONSUMERS
from extender.kube.resources import CLAIMS, CLASSES, EVENTS, NAMESPACES, QUOTAS, TEMPLATES, Resource
from extender.planning.changes import Target

_IN_CLAIM: Final = "the spec of {} is immutable: delete the claim and create it again"
_IN_TEMPLATE: Final = (
    "the specs of {} and of the claim that is made from it are immutable: "
    "delete the template and pod {}, and create both again"
)


def with_claims_made(pod: Pod, snapshot: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """The cluster after a pod's claims are made from their templates, and the entries of the pod that wait for them."""
    statuses, waiting = dict(pod.claim_statuses), []
    for reference in pod.claims:
        name = f"{pod.name}-{reference.name}"
        claim = claim_from_template(pod, reference, name, snapshot)
        if reference.name in statuses or claim is None:
            continue
        snapshot = snapshot.with_claim(claim)
        statuses[reference.name] = name
        waiting.append(reference.name)
    return snapshot.with_pod(replace(pod, claim_statuses=statuses)), tuple(waiting)


def targets_of(pod: Pod, claims: Iterable[ClaimObject]) -> tuple[Target, ...]:
    """The claims that are to be allocated, with where each is written."""
    templates = {pod.claim_statuses.get(r.name): r.template_name for r in pod.claims if r.template_name is not None}
    names = {r.claim_name for r in pod.claims if r.claim_name is not None}

    def target(claim: ClaimObject) -> Target:
        if claim.key.name in templates:
            source = f"ResourceClaimTemplate {claim.key.namespace}/{templates[claim.key.name]}"
            return Target(claim, source, immutable=_IN_TEMPLATE.format(source, pod))
        if claim.key.name in names:
            source = f"ResourceClaim {claim.key}"
            return Target(claim, source, immutable=_IN_CLAIM.format(source))
        return Target(claim, f"extended resources of pod {pod}", is_written=False)

    return tuple(map(target, claims))


def advice(pod: Pod, snapshot: Snapshot) -> str:
    """What to do about the first claim that does not exist or cannot be used; empty if all claims can be used."""
    return next((text for reference in pod.claims if (text := _advice(pod, reference, snapshot))), "")


def resource_advice(pod: Pod, snapshot: Snapshot) -> str:
    """What to do about the first extended resource that nothing offers, or that a claim asks for; empty if none is."""
    if group := next(_groups_in_claims(pod, snapshot), ""):
        resource = snapshot.classes[group].extended_resource_name
        return f"write {resource} in the limits of a container: no claim can ask for class {group}, which has members"
    plugins = {name for node in snapshot.nodes.values() for name, amount in node.allocatable.items() if amount.nano}
    offered = plugins | set(snapshot.extended)
    missing = next((n for n in wanted(pod) if n not in offered and class_serving(n, snapshot) is None), "")
    if not missing:
        return ""
    refused = next((each for each in snapshot.objects(ResourceClass).values() if each.asked_as == missing), None)
    if refused is not None:
        return f"correct ResourceClass {refused.name}, which is not accepted: {refused.refusal or 'it is new'}"
    return f"create a DeviceClass with extendedResourceName {missing}{hint(missing, offered)}"


def _groups_in_claims(pod: Pod, snapshot: Snapshot) -> Iterator[str]:
    """The device classes with members that claims of a pod ask for."""
    for reference in pod.claims:
        name = reference.claim_name or pod.claim_statuses.get(reference.name)
        found = snapshot.claims.get(ObjectKey(pod.namespace, name or ""))
        ways = (way for request in found.claim.spec.requests for way in request.alternatives) if found else ()
        yield from groups_of((way.device_class for way in ways), snapshot)


def _advice(pod: Pod, reference: PodClaim, snapshot: Snapshot) -> str:
    name = reference.claim_name or pod.claim_statuses.get(reference.name)
    if reference.template_name is not None and name is None:
        return _missing(pod, reference, reference.template_name, TEMPLATES, snapshot)
    key = ObjectKey(pod.namespace, name or "")
    found = snapshot.claims.get(key)
    if found is None:
        return _missing(pod, reference, key.name, CLAIMS, snapshot) if reference.claim_name else ""
    if reference.template_name and not is_made_for(pod, found.claim):
        return f"delete ResourceClaim {key}: the pod's status names it, but it belongs to another pod"
    return _of_state(pod, found, snapshot) or _of_classes(found.claim.spec, snapshot)


def _of_state(pod: Pod, found: ClaimObject, snapshot: Snapshot) -> str:
    key, assumed = found.key, snapshot.assumed.get(found.claim.uid)
    if found.claim.deleting:
        return f"wait until ResourceClaim {key} is gone, then create it again"
    if found.claim.allocation is None and mode_problem(found.claim.annotations):
        return f"correct the annotations of ResourceClaim {key}"
    if found.claim.allocation is None and is_immediate(found.claim):
        return f"see what the claim waits for: dra-extender explain claim {key}"
    if len(found.claim.reserved_for) >= MAX_CONSUMERS and not found.claim.is_reserved_for(pod.uid, pod.pod_group):
        return f"wait until one of the pods that use ResourceClaim {key} has ended, or give the pod a claim of its own"
    if assumed is not None and assumed.pod_uid != pod.uid and found.claim.allocation is None:
        return f"wait until ResourceClaim {key} is allocated, then the pods share it"
    return ""


def _of_classes(spec: ClaimSpec, snapshot: Snapshot) -> str:
    asked = (way.device_class for request in spec.requests for way in request.alternatives)
    missing = next((each for each in asked if each not in snapshot.classes), "")
    if (CLASSES.kind, ObjectKey("", missing)) in snapshot.problems:
        return f"correct DeviceClass {missing}"
    if not missing:
        return ""
    return f"create DeviceClass {missing}{hint(missing, snapshot.classes)}"


def _missing(pod: Pod, reference: PodClaim, name: str, resource: Resource, snapshot: Snapshot) -> str:
    """A claim or template that an entry of the pod names does not exist, or cannot be read."""
    key = ObjectKey(pod.namespace, name)
    of_kind = {CLAIMS.kind: snapshot.claims, TEMPLATES.kind: snapshot.objects(ClaimTemplate)}
    if key in of_kind[resource.kind]:
        return ""
    if (resource.kind, key) in snapshot.problems:
        return f"correct {resource.kind} {key}"
    entry = f"resource{resource.kind.removeprefix('Resource')}Name"
    other = TEMPLATES if resource is CLAIMS else CLAIMS
    alike = {each.name for each in of_kind[resource.kind] if each.namespace == key.namespace}
    is_other = key in of_kind[other.kind]
    meant = f"; {key} is a {other.kind}" if is_other else hint(name, alike)
    at = f"the pod's spec.resourceClaims, entry {reference.name}"
    return f"create {resource.kind} {key}, or correct {entry} in {at}{meant}"


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
    """Facts about the claims of a pod beyond the watched objects.

    Attributes:
        failures: entries of ``spec.resourceClaims`` whose claims are not made, each with the reason: what quota says
            now, or the latest failure.
        unmade: why the API server refuses the pod itself, by quota or by its priority class; empty if the pod exists or
            may be made.
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
    """The time at which the Event was recorded last. Controllers that use core/v1 write the deprecated field."""
    latest = (event.get("series") or {}).get("lastObservedTime") or event.get("deprecatedLastTimestamp")
    return str(latest or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
