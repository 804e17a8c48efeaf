"""A pod's claims: where each is written, and which name was meant."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from allocator import Kind, nearest
from extender.explain.changes import Change, Target
from extender.explain.edits import rename_reference, use_class
from extender.explain.holders import users
from extender.kube.api import CLAIMS, CLASSES, TEMPLATES, ObjectKey
from extender.kube.claim_rules import MAX_CONSUMERS
from extender.pods.claims import claim_from_template
from extender.state.objects import ClaimObject, Pod, PodClaim
from extender.state.snapshot import Snapshot


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
    found = []
    for each in claims:
        name, namespace = each.key.name, each.key.namespace
        if name in templates:
            found.append(Target(each, f"ResourceClaimTemplate {namespace}/{templates[name]}"))
        elif name in names:
            found.append(Target(each, f"ResourceClaim {namespace}/{name}"))
        else:
            found.append(Target(each, f"extended resources of pod {pod}", is_written=False))
    return tuple(found)


def remedies(pod: Pod, snapshot: Snapshot) -> Iterator[Change]:
    """Changes that may help a pod that one of its claims blocks: existing names, and events to wait for."""
    for reference in pod.claims:
        name = reference.claim_name or pod.claim_statuses.get(reference.name)
        claim = snapshot.claims.get(ObjectKey(pod.namespace, name or ""))
        if claim is None:
            yield from _other_names(pod, reference, snapshot)
            continue
        yield from _waits(pod, claim, snapshot)
        source = f"ResourceClaimTemplate {pod.namespace}/{reference.template_name}"
        target = Target(claim, source if reference.template_name else f"ResourceClaim {claim.key}")
        for request in claim.claim.spec.requests:
            for way in request.alternatives:
                meant = nearest(way.device_class, snapshot.classes)
                if way.device_class not in snapshot.classes and meant:
                    yield use_class(target, way.device_class, meant)


def advice(pod: Pod, snapshot: Snapshot) -> str:
    """What to do about the first claim that does not exist or cannot be used."""
    for reference in pod.claims:
        at = f"the pod's spec.resourceClaims, entry {reference.name}"
        name = reference.claim_name or pod.claim_statuses.get(reference.name)
        template = ObjectKey(pod.namespace, reference.template_name or "")
        if reference.template_name and name is None and template not in snapshot.templates:
            if (TEMPLATES.kind, template) in snapshot.problems:
                return f"correct ResourceClaimTemplate {template}"
            return f"create ResourceClaimTemplate {template}, or correct resourceClaimTemplateName in {at}"
        key = ObjectKey(pod.namespace, name or "")
        found = snapshot.claims.get(key)
        if found is None and (CLAIMS.kind, key) in snapshot.problems:
            return f"correct ResourceClaim {key}"
        if found is None:
            return f"create ResourceClaim {key}, or correct resourceClaimName in {at}" if reference.claim_name else ""
        if reference.template_name and found.claim.owner_uid != pod.uid:
            return f"delete ResourceClaim {key}: the pod's status names it, but it belongs to another pod"
        asked = (way.device_class for request in found.claim.spec.requests for way in request.alternatives)
        missing = next((each for each in asked if each not in snapshot.classes), "")
        if (CLASSES.kind, ObjectKey("", missing)) in snapshot.problems:
            return f"correct DeviceClass {missing}"
        if missing:
            classes = ", ".join(sorted(snapshot.classes)[:_MAX_NAMED]) or "none"
            return f"create DeviceClass {missing}, or ask for one that exists ({classes})"
    return ""


_MAX_NAMED: Final = 5


def _other_names(pod: Pod, reference: PodClaim, snapshot: Snapshot) -> Iterator[Change]:
    templates = {key.name for key in snapshot.templates if key.namespace == pod.namespace}
    claims = {key.name for key in snapshot.claims if key.namespace == pod.namespace}
    wrong = reference.claim_name or reference.template_name or ""
    if reference.claim_name is not None and wrong in templates:
        yield rename_reference(pod, reference.name, wrong, wrong, template=True)
    if reference.template_name is not None and wrong in claims:
        yield rename_reference(pod, reference.name, wrong, wrong, template=False)
    is_template = reference.template_name is not None
    right = nearest(wrong, templates if is_template else claims)
    if right and right != wrong:
        yield rename_reference(pod, reference.name, wrong, right, template=is_template)


def _waits(pod: Pod, claim: ClaimObject, snapshot: Snapshot) -> Iterator[Change]:
    key, assumed_allocation = claim.key, snapshot.assumed.get(claim.claim.uid)
    if claim.claim.deleting:
        new = replace(claim.claim, deleting=False, allocation=None, reserved_for=())
        text = f"wait until claim {key} is gone, then create it again"
        how = f"kubectl get resourceclaim -n {key.namespace} {key.name} -o jsonpath={{.metadata.finalizers}}"
        yield Change(Kind.WAIT, f"claim {key}", text, how, lambda s: s.with_claim(replace(claim, claim=new)))
    elif len(claim.claim.reserved_for) >= MAX_CONSUMERS:
        fewer = replace(claim.claim, reserved_for=claim.claim.reserved_for[1:])
        text = f"wait until one of the {len(claim.claim.reserved_for)} pods that use claim {key} has ended"
        how = f"or give the pod a claim of its own: kubectl get resourceclaim -n {key.namespace} {key.name} -o yaml"
        yield Change(Kind.WAIT, f"claim {key}", text, how, lambda s: s.with_claim(replace(claim, claim=fewer)))
    elif assumed_allocation is not None and assumed_allocation.pod_uid != pod.uid and claim.claim.allocation is None:
        shared = replace(claim.claim, allocation=assumed_allocation.allocation)
        pods = " and ".join(f"pod {each}" for each in users(claim, snapshot)) or "another pod"
        text = f"wait until claim {key} is allocated for {pods}, then share it"
        yield Change(Kind.WAIT, f"claim {key}", text, "", lambda s: s.with_claim(replace(claim, claim=shared)))
