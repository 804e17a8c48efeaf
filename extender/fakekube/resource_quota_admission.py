"""Quota in a cluster in memory: refuses what a ResourceQuota does not allow, and keeps the statuses of quotas.

It does the work of the admission plugin ResourceQuota and of kube-controller-manager's resourcequota controller.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from allocator import parse_device_class
from extender.cluster.objects.claim_annotations import SPECIAL
from extender.cluster.objects.claims import ClaimObject, parse_claim_object
from extender.cluster.objects.pods import parse_pod
from extender.kube.api import ObjectKey, RawObject
from extender.kube.encoding import loads
from extender.kube.errors import ApiError
from extender.kube.raw import EventType
from extender.kube.resources import CLAIMS, CLASSES, PODS, QUOTAS, Resource
from extender.quota.resource_quotas.account import Account, Charge, charges_of
from extender.quota.resource_quotas.charges import charged_before, claim_charges, pod_charges
from extender.quota.resource_quotas.limits import Extended, parse_resource_quota

_CHARGED: Final = (PODS, CLAIMS)


class QuotaAdmission:
    """Follows the objects of an API server in memory.

    Args:
        objects: all of them, by kind and key, as JSON.
    """

    def __init__(self, objects: Mapping[str, Mapping[ObjectKey, bytes]]) -> None:
        self._objects = objects
        self._accounts: dict[str, Account] = {}

    def check(self, resource: Resource, key: ObjectKey, new: RawObject) -> None:
        """Refuse a new object that is over quota. Raises ApiError."""
        if resource not in _CHARGED or not self._objects[QUOTAS.kind]:
            return
        refusal = self._account(key.namespace).refusal(self._charge(resource, new))
        if refusal is not None:
            message = f'{resource} "{key.name}" is forbidden: {refusal.message}'
            raise ApiError(HTTPStatus.FORBIDDEN, "Forbidden", message)

    def changed(self, event: EventType, resource: Resource, obj: RawObject) -> None:
        """An object has changed. If less may be used now, the sums are made again when they are asked for."""
        namespace = obj["metadata"].get("namespace", "")
        if resource == CLASSES:
            self._accounts.clear()
        elif resource in _CHARGED and event is EventType.ADDED:
            if namespace in self._accounts:
                self._accounts[namespace].add(self._charge(resource, obj))
        elif resource == QUOTAS or event is EventType.DELETED or _is_finished(resource, obj):
            self._accounts.pop(namespace, None)

    def with_status(self, quota: RawObject) -> RawObject:
        """A ResourceQuota with what is used."""
        value = parse_resource_quota(quota)
        used = next(each.used for each in self._account(value.namespace).quotas if each.name == value.name)
        hard = quota.get("spec", {}).get("hard") or {}
        status = {"hard": hard, "used": {name: str(amount) for name, amount in used.items()}}
        return {**quota, "status": status}

    def _account(self, namespace: str) -> Account:
        if namespace not in self._accounts:
            extended = self._extended()
            quotas = (parse_resource_quota(each) for each in self._of(QUOTAS, namespace))
            account = self._accounts[namespace] = Account.empty(quotas, extended)
            pods = ((parse_pod(each), each["spec"]) for each in self._of(PODS, namespace))
            for charge in charges_of(pods, map(parse_claim_object, self._of(CLAIMS, namespace)), extended):
                account.add(charge)
        return self._accounts[namespace]

    def _charge(self, resource: Resource, obj: RawObject) -> Charge:
        if resource == PODS:
            return Charge(pod_charges(parse_pod(obj)), obj["spec"])
        claim, found = parse_claim_object(obj), None
        if claim.special_of:
            owner = self._objects[PODS.kind].get(ObjectKey(claim.claim.namespace, claim.claim.owner_name))
            found = None if owner is None else parse_pod(loads(owner))
        before = charged_before(claim, found, self._special(claim))
        return Charge(claim_charges(claim.claim, self._extended(), before))

    def _special(self, claim: ClaimObject) -> list[ClaimObject]:
        """The special claims of the pod of a special claim."""
        if not claim.special_of:
            return []
        raw = self._of(CLAIMS, claim.claim.namespace)
        all_special = (
            parse_claim_object(each) for each in raw if SPECIAL in (each["metadata"].get("annotations") or ())
        )
        return [each for each in all_special if each.special_of == claim.special_of]

    def _extended(self) -> Extended:
        """The extended resources that device classes serve."""
        return Extended.of(parse_device_class(loads(each)) for each in self._objects[CLASSES.kind].values())

    def _of(self, resource: Resource, namespace: str) -> Iterable[RawObject]:
        texts = self._objects[resource.kind].items()
        return [loads(text) for key, text in texts if key.namespace == namespace]


def _is_finished(resource: Resource, obj: RawObject) -> bool:
    return resource == PODS and obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}
