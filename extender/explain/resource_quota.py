"""Objects that ResourceQuotas keep from being made for a pod: its claims, its special claim, the pod itself."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import RawObject
from extender.pods.claims import claim_from_template
from extender.pods.extended_resources.requests import DemandError, demand, special_claim, wanted
from extender.pods.extended_resources.special_claim import class_serving, groups_of
from extender.quota.resource_quotas.account import Account, Charge
from extender.quota.resource_quotas.charges import claim_charges, pod_charges
from extender.quota.resource_quotas.limits import Extended, parse_resource_quota


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
