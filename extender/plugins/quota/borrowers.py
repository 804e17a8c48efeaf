"""Loans: what namespaces have borrowed from their cohorts; and borrowers: the pods whose devices are borrowed."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from allocator import SearchLimitError
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.device_quotas import DeviceLimit, DeviceQuota
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.victims import VictimOrder
from extender.plugins.quota.overrun import excess
from extender.plugins.quota.pod_quota import total_of
from extender.plugins.quota.totals import Total


class Loan(NamedTuple):
    """A loan: what a namespace uses beyond a limit of a quota that may borrow.

    Attributes:
        total: the amounts that are used of the limit.
        counts: what is borrowed, as in `DeviceLimit.hard`.
        nano: how much of it, in units of 10**-9.
    """

    total: Total
    counts: str
    nano: int

    def taken(self, claim: str) -> int:
        """The part of the loan that the claim with this uid takes, in units of 10**-9."""
        part = self.total.parts.get(claim)
        return part.amounts[self.counts].nano if part is not None and self.counts in part.amounts else 0


@dataclass(frozen=True, slots=True)
class Loans:
    """All that is borrowed, by namespace."""

    of_namespace: Mapping[str, Sequence[Loan]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, total: Callable[[DeviceQuota, DeviceLimit], Total]) -> "Loans":
        """The loans of a cluster.

        Args:
            snapshot: the cluster.
            total: what is used of a limit; may raise any error.
        """
        found: dict[str, list[Loan]] = {}
        for quota in snapshot.device_quotas.values():
            for limit in quota.limits if quota.borrowing else ():
                used = total(quota, limit)
                over = excess(limit, used.amounts)
                found.setdefault(quota.namespace, []).extend(Loan(used, name, over[name].nano) for name in over)
        return cls({namespace: loans for namespace, loans in found.items() if loans})

    def shares(self, namespace: str, claim: str) -> tuple[int, ...]:
        """The part that a claim takes of each loan of its namespace; empty if the namespace has none."""
        return tuple(loan.taken(claim) for loan in self.of_namespace.get(namespace, ()))

    def given_back(self, namespace: str, claims: Sequence[str]) -> frozenset[str]:
        """The claims that give back borrowed amounts, if some claims of a namespace are released.

        Released claims count as borrowed until the namespace is within its limits. Claims that take least count first.
        If claims take equally much, the first one in the argument counts first.

        Args:
            namespace: of the claims.
            claims: their uids, each once.
        """
        left = [loan.nano for loan in self.of_namespace.get(namespace, ())]
        found = set()
        for claim in sorted(claims, key=lambda each: self.shares(namespace, each)):
            shares = self.shares(namespace, claim)
            if any(taken and rest > 0 for taken, rest in zip(shares, left, strict=True)):
                found.add(claim)
            left = [rest - taken for rest, taken in zip(left, shares, strict=True)]
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Borrowers(VictimOrder):
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

    def may_borrow(self, namespace: str) -> bool:
        """Whether the namespace has a loan."""
        return namespace in self.loans.of_namespace

    def entitled(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        """Like `VictimOrder.entitled`.

        If pods of one namespace take equally much, the pods of the lowest priority are borrowers first, then the
        youngest pods.
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
