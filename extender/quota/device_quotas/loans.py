"""Loans: what namespaces have borrowed from their cohorts, and which claims give it back when they are released."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.cluster.objects.device_quotas import DeviceLimit, DeviceQuota
from extender.cluster.snapshot import Snapshot
from extender.quota.device_quotas.overrun import excess
from extender.quota.device_quotas.totals import Total


class Loan(NamedTuple):
    """What a namespace uses beyond a limit of a quota that may borrow.

    Attributes:
        total: the amounts that are used of the limit.
        counts: what is borrowed, as in `DeviceLimit.hard`.
        nano: how much of it, in units of 10**-9.
    """

    total: Total
    counts: str
    nano: int

    def taken(self, claim: str) -> int:
        """How much of it the claim with this uid takes, in units of 10**-9."""
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
        """How much a claim takes of each loan of its namespace; empty if the namespace has none."""
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
