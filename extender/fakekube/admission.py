"""Objects of manifests that one cluster cannot have, although nothing is wrong with each alone."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator import parse_device_class
from extender.cluster.objects.claims import parse_claim_object
from extender.cluster.objects.pods import parse_pod
from extender.fakekube.manifests import ManifestObject, parse_namespace
from extender.kube.claim_rules import admin_problems
from extender.kube.resources import CLAIMS, CLASSES, NAMESPACES, PODS, QUOTAS, TEMPLATES
from extender.quota.resource_quotas.account import Account, Charge, charges_of
from extender.quota.resource_quotas.limits import Extended, ResourceQuota, parse_resource_quota


@dataclass(frozen=True, slots=True)
class RefusedObject:
    """An object that an API server would refuse, and why."""

    object: ManifestObject
    text: str

    def __str__(self) -> str:
        return self.text


def duplicates(objects: Iterable[ManifestObject]) -> tuple[RefusedObject, ...]:
    """Objects that appear more than once, each with its files; the first one is not among them."""
    first: dict[tuple[str, str, str], ManifestObject] = {}
    found = []
    for each in objects:
        other = first.setdefault((each.kind, each.namespace, each.name), each)
        if other is not each:
            found.append(RefusedObject(each, f"{each} is in {other.source} and again in {each.source}"))
    return tuple(found)


def unauthorized(objects: Collection[ManifestObject]) -> tuple[RefusedObject, ...]:
    """Claims and claim templates with adminAccess that an API server would refuse in their namespaces.

    A namespace that is not among the objects has no labels. Allocated claims were accepted before.
    """
    labels = {each.name: parse_namespace(each.data) for each in objects if each.kind == NAMESPACES.kind}
    found = []
    for each in objects:
        if each.kind not in {CLAIMS.kind, TEMPLATES.kind} or _is_allocated(each.data):
            continue
        where = (
            f" {each.namespace}" if each.namespace in labels else f" {each.namespace}, which is not among the manifests"
        )
        problems = admin_problems(dict(each.data), labels.get(each.namespace, {}))
        found += [RefusedObject(each, f"{each.source}: {each}: {problem}{where}") for problem in problems]
    return tuple(found)


def over_quota(objects: Sequence[ManifestObject], there: Iterable[Mapping[str, Any]] = ()) -> tuple[RefusedObject, ...]:
    """The pods and claims that a ResourceQuota of their namespaces does not allow, if they are created in this order.

    Objects with a uid (an API server has made them), bound pods and allocated claims were accepted before.

    Args:
        objects: of manifests.
        there: API objects of the cluster to which the objects are added.
    """
    raw = [*there, *(each.data for each in objects)]
    quotas: dict[str, list[ResourceQuota]] = {}
    for quota in (parse_resource_quota(each) for each in raw if each["kind"] == QUOTAS.kind):
        quotas.setdefault(quota.namespace, []).append(quota)
    extended = Extended.of(parse_device_class(each) for each in raw if quotas and each["kind"] == CLASSES.kind)
    manifests = {id(each.data): each for each in objects}
    found = []
    for namespace, own in quotas.items():
        account = Account.empty(own, extended)
        charges = _charges([each for each in raw if each["metadata"].get("namespace") == namespace], extended)
        for obj, charge in sorted(charges, key=lambda pair: not _was_accepted(pair[0])):
            refusal = None if _was_accepted(obj) else account.refusal(charge)
            if refusal is None:
                account.add(charge)
            else:
                each = manifests[id(obj)]
                found.append(RefusedObject(each, f"{each.source}: {each} is not made: {refusal}"))
    return tuple(found)


def _charges(raw: Collection[Mapping[str, Any]], extended: Extended) -> list[tuple[Mapping[str, Any], Charge]]:
    """The pods and claims of a namespace in their order, each with its charge."""
    of_kind = {kind: [each for each in raw if each["kind"] == kind] for kind in (PODS.kind, CLAIMS.kind)}
    pods = [(parse_pod(each), each.get("spec") or {}) for each in of_kind[PODS.kind]]
    charges = charges_of(pods, map(parse_claim_object, of_kind[CLAIMS.kind]), extended)
    charged = [*of_kind[PODS.kind], *of_kind[CLAIMS.kind]]
    by_object = {id(each): charge for each, charge in zip(charged, charges, strict=True)}
    return [(each, by_object[id(each)]) for each in raw if id(each) in by_object]


def _was_accepted(data: Mapping[str, Any]) -> bool:
    return bool(data["metadata"].get("uid") or (data.get("spec") or {}).get("nodeName") or _is_allocated(data))


def _is_allocated(data: Mapping[str, object]) -> bool:
    status = data.get("status")
    return isinstance(status, dict) and bool(status.get("allocation"))
