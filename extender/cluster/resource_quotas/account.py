"""The account of one namespace: its ResourceQuotas, and what its pods and claims are charged for."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from allocator import Quantity
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.resource_quotas.charges import charged_before, claim_charges, pod_charges
from extender.cluster.resource_quotas.limits import Charges, Extended, QuotaRefusal, ResourceQuota, refusal


class Charge(NamedTuple):
    """What one object is charged for. ``spec`` is the spec of a pod; it is None for a claim."""

    amounts: Charges
    spec: Mapping[str, object] | None = None


class Account:
    """Compares charges with the quotas of a namespace, and adds them up.

    Args:
        quotas: the quotas of the namespace. What their statuses say counts as used.
        extended: the extended resources of device classes.
    """

    def __init__(self, quotas: Iterable[ResourceQuota], extended: Extended) -> None:
        self._quotas = {each.name: each for each in quotas}
        self._extended = extended

    @classmethod
    def empty(cls, quotas: Iterable[ResourceQuota], extended: Extended) -> "Account":
        """An account in which nothing is used yet, whatever the statuses of the quotas say."""
        unused = (replace(each, used=dict.fromkeys(each.hard, Quantity(0))) for each in quotas)
        return cls(unused, extended)

    @property
    def quotas(self) -> tuple[ResourceQuota, ...]:
        """The quotas, each with the amounts that are used."""
        return tuple(self._quotas.values())

    def refusal(self, charge: Charge) -> QuotaRefusal | None:
        """The quota that keeps an object from being made; None if the object is within all quotas."""
        return refusal(self._counting(charge), charge.amounts)

    def add(self, charge: Charge) -> None:
        """Count an object that exists."""
        for quota in tuple(self._counting(charge)):
            taken = {name: charge.amounts[name] for name in quota.hard.keys() & charge.amounts.keys()}
            used = {name: quota.used.get(name, Quantity(0)) + amount for name, amount in taken.items()}
            self._quotas[quota.name] = replace(quota, used={**quota.used, **used})

    def _counting(self, charge: Charge) -> Iterator[ResourceQuota]:
        """The quotas in which an object counts."""
        for quota in self._quotas.values():
            if charge.spec is None:
                if quota.limits_claims(self._extended):
                    yield quota
            elif quota.limits_pods and all(scope.has(charge.spec) for scope in quota.scopes):
                yield quota


def charges_of(
    pods: Iterable[tuple[Pod, Mapping[str, object]]], claims: Iterable[ClaimObject], extended: Extended
) -> Iterator[Charge]:
    """The charges for all pods, each with its spec, and for all claims of a namespace."""
    by_uid: dict[str, Pod] = {}
    for pod, spec in pods:
        by_uid[pod.uid] = pod
        yield Charge(pod_charges(pod), spec)
    special: dict[str, list[ClaimObject]] = {}
    claims = tuple(claims)
    for each in claims:
        special.setdefault(each.special_of, []).append(each)
    for each in claims:
        before = charged_before(each, by_uid.get(each.special_of), special[each.special_of])
        yield Charge(claim_charges(each.claim, extended, before))
