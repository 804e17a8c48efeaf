"""A pod's claims: where each is written, and which name was meant."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from allocator import ClaimSpec, ClaimTemplate
from allocator.tools import hint
from extender.cluster.objects.claims import ClaimObject, is_immediate, mode_problem
from extender.cluster.objects.pods import Pod, PodClaim
from extender.cluster.objects.resource_classes import ResourceClass
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import claim_from_template, is_made_for
from extender.framework.pods.extended_resources.requests import wanted
from extender.framework.pods.extended_resources.special_claim import class_serving, groups_of
from extender.kube.api import ObjectKey
from extender.kube.claim_rules import MAX_CONSUMERS
from extender.kube.resources import CLAIMS, CLASSES, TEMPLATES, Resource
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
