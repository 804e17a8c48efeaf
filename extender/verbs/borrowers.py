"""Borrowers: pods whose devices their namespace has borrowed from the cohort of its DeviceQuota."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from allocator import SearchLimitError
from extender.decisions.solver import Solver
from extender.pods.claims import claim_keys
from extender.pods.device_quota import total_of
from extender.quota.loans import Loans
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Borrowers:
    """What pods hold of the loans of their namespaces.

    Attributes:
        claims: by uid of the pod, its claims that count in an exceeded limit; only of pods in namespaces that borrow.
    """

    loans: Loans = field(default_factory=Loans)
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Iterable[Pod], snapshot: Snapshot, solver: Solver) -> "Borrowers":
        """Of some pods in a cluster."""
        loans = loans_of(snapshot, solver)
        borrowing = (pod for pod in pods if pod.namespace in loans.of_namespace)
        return cls(loans, {pod.uid: _counted(pod, loans, snapshot) for pod in borrowing})

    def entitled(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        """Of pods that are evicted together, those that do not only give back what is borrowed.

        More pods never make an entitled pod a borrower. Of pods in one namespace that take as much, those of the lowest
        priority are borrowers first, then the youngest.
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
        """Equal for pods that give back as much."""
        claims = self.claims.get(pod.uid)
        if not claims:
            return None
        return pod.uid if len(claims) > 1 else (pod.namespace, self.loans.shares(pod.namespace, claims[0]))


def loans_of(snapshot: Snapshot, solver: Solver) -> Loans:
    """What is borrowed in a cluster: nothing, if there is not enough time to count what is used."""
    try:
        return Loans.of(snapshot, partial(total_of, snapshot=snapshot, solver=solver))
    except SearchLimitError:
        return Loans()


def _counted(pod: Pod, loans: Loans, snapshot: Snapshot) -> Sequence[str]:
    """The claims of a pod that take something of a loan."""
    found = (snapshot.claims.get(key) for key in claim_keys(pod))
    uids = (claim.claim.uid for claim in found if claim is not None)
    return tuple(uid for uid in uids if any(loans.shares(pod.namespace, uid)))
