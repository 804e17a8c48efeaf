"""Borrowers: pods whose devices their namespace has borrowed from the cohort of its DeviceQuota."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from allocator import SearchLimitError
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.plugins.quota.pod_quota import total_of
from extender.quota.device_quotas.loans import Loans


@dataclass(frozen=True, slots=True)
class Borrowers:
    """The loans of namespaces, and the claims of pods that take part in them.

    Attributes:
        claims: for each pod in a namespace that borrows, by uid: its claims that count in an exceeded limit.
    """

    loans: Loans = field(default_factory=Loans)
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Iterable[Pod], snapshot: Snapshot, solver: Solver) -> "Borrowers":
        """The borrowers among some pods of a cluster."""
        loans = loans_of(snapshot, solver)
        borrowing = (pod for pod in pods if pod.namespace in loans.of_namespace)
        return cls(loans, {pod.uid: _counted(pod, loans, snapshot) for pod in borrowing})

    def entitled(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        """The pods, among those that are evicted together, that give back more than borrowed devices.

        An entitled pod stays entitled if more pods are evicted. If pods of one namespace take equally much, the pods of
        the lowest priority are borrowers first, then the youngest pods.
        """
        evicted = list(pods)
        if not self.claims:
            return evicted
        held: dict[str, dict[str, None]] = {}
        by_age = sorted(sorted(evicted, key=lambda each: each.uid), key=lambda each: each.created, reverse=True)
        for pod in sorted(by_age, key=lambda each: each.priority):
            held.setdefault(pod.namespace, {}).update(dict.fromkeys(self.claims.get(pod.uid, ())))
        back = {claim for namespace, claims in held.items() for claim in self.loans.given_back(namespace, [*claims])}
        return [pod for pod in evicted if not self.claims.get(pod.uid) or not back.issuperset(self.claims[pod.uid])]

    def kind(self, pod: Pod) -> Hashable:
        """Equal for pods that give back the same amounts."""
        claims = self.claims.get(pod.uid)
        if not claims:
            return None
        return pod.uid if len(claims) > 1 else (pod.namespace, self.loans.shares(pod.namespace, claims[0]))


def loans_of(snapshot: Snapshot, solver: Solver) -> Loans:
    """The loans of a cluster; none if there is not enough time to count what is used."""
    try:
        return Loans.of(snapshot, partial(total_of, snapshot=snapshot, solver=solver))
    except SearchLimitError:
        return Loans()


def _counted(pod: Pod, loans: Loans, snapshot: Snapshot) -> Sequence[str]:
    """The claims of a pod that take something of a loan."""
    found = (snapshot.claims.get(key) for key in claim_keys(pod))
    uids = (claim.claim.uid for claim in found if claim is not None)
    return tuple(uid for uid in uids if any(loans.shares(pod.namespace, uid)))
