"""Tells whether a namespace may be allocated more devices: its DeviceQuotas, and what their cohorts lend."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from allocator import Quantity, Reason
from allocator.reason import Cause
from extender.cluster.objects.device_quotas import DEVICES, Amounts, DeviceLimit, DeviceQuota, counted_name
from extender.cluster.snapshot import Snapshot
from extender.kube.resources import DEVICE_QUOTAS
from extender.plugins.quota.usage import Measure, total

Use: TypeAlias = Callable[[DeviceQuota, DeviceLimit], Amounts]
"""What is in use of a limit of a quota."""

OVER_QUOTA: Final = Cause("device-quota", "device quota {detail}")
UNREADABLE_QUOTA: Final = Cause("device-quota-unreadable", "device quota {detail}")


class Overrun(NamedTuple):
    """A limit that would be exceeded.

    Attributes:
        counts: the amount that is exceeded, by its name in `DeviceLimit.hard`.
        asked: how much of it is needed.
        used: how much of it is in use in the namespace of the quota.
        lent: how much of it the cohort has left, if the quota may borrow; else None.
        kept: how much of what is in use is kept for pods that wait.
    """

    quota: DeviceQuota
    limit: DeviceLimit
    counts: str
    asked: Quantity
    used: Quantity
    lent: Quantity | None = None
    kept: Quantity = Quantity(0)

    @property
    def reason(self) -> Reason:
        """The reason for the scheduler. It stays the same while the pod waits, so it tells nothing that is used."""
        cohort = "" if self.lent is None else f", and cohort {self.quota.cohort} has too little left"
        limit = f"{self.quota.name}: limit {self.limit.name} allows {self._amount_in_words(self._hard)}{cohort}"
        return Reason(OVER_QUOTA, detail=limit)

    @property
    def advice(self) -> str:
        """The advice against the overrun."""
        limit = f"limit {self.limit.name} of DeviceQuota {self.quota.key}"
        if self.lent is None and self.asked > self._hard:
            return f"ask for at most {self._amount_in_words(self._hard)}, or raise {limit}"
        return f"wait until claims of namespace {self.quota.namespace} give back devices, or raise {limit}"

    def __str__(self) -> str:
        """The reason, with what is in use: so people find the words of the pod's condition again."""
        kept = f" ({self.kept} of them kept for waiting pods)" if self.kept.nano else ""
        lent = "" if self.lent is None else f", {self.lent} left to lend"
        used = f"{self.used} of {self._hard} in use{kept}, {self.asked} more needed{lent}"
        return f"{self.reason.in_words()}: {used}"

    @property
    def _hard(self) -> Quantity:
        return self.limit.hard[self.counts]

    def _amount_in_words(self, amount: Quantity) -> str:
        """An amount with its noun: ``8 devices`` or ``80Gi of memory``."""
        if self.counts != DEVICES:
            return f"{amount} of {counted_name(self.counts)}"
        return f"{amount} device" if amount == Quantity.from_int(1) else f"{amount} devices"


def unreadable(namespace: str, snapshot: Snapshot) -> Reason | None:
    """A quota of the namespace that can't be read; None if all can. Until then, nothing more is allocated there."""
    for (kind, key), problem in snapshot.problems.items():
        if kind == DEVICE_QUOTAS.kind and key.namespace == namespace:
            return Reason(UNREADABLE_QUOTA, detail=f"{key.name} can't be read: {problem}")
    return None


def cohort_of(quota: DeviceQuota, snapshot: Snapshot) -> Iterator[DeviceQuota]:
    """The quotas of a quota's cohort, including the quota itself."""
    return (each for each in snapshot.device_quotas.values() if each.cohort == quota.cohort)


def overrun(quotas: Iterable[DeviceQuota], needed: Measure, use: Use, snapshot: Snapshot) -> Overrun | None:
    """The first limit that would be exceeded.

    Args:
        quotas: of one namespace.
        needed: what is needed of a limit.
        use: what is in use of a limit.
        snapshot: has all quotas.
    """
    for quota in quotas:
        for limit in quota.limits:
            asked = {name: amount for name, amount in needed(limit).items() if amount.nano > 0}
            if not asked:
                continue
            used = use(quota, limit)
            for name, amount in sorted(asked.items()):
                own = used.get(name, Quantity(0))
                if own + amount <= limit.hard[name]:
                    continue
                if not quota.borrowing:
                    return Overrun(quota, limit, name, amount, own)
                lent = left_in_cohort(quota, limit, use, snapshot).get(name, Quantity(0))
                if amount > lent:
                    return Overrun(quota, limit, name, amount, own, lent)
    return None


def excess(limit: DeviceLimit, used: Amounts) -> Amounts:
    """What is used beyond a limit."""
    amounts = ((name, used.get(name, Quantity(0))) for name in limit.hard)
    return {name: amount - limit.hard[name] for name, amount in amounts if amount > limit.hard[name]}


def left_in_cohort(quota: DeviceQuota, limit: DeviceLimit, use: Use, snapshot: Snapshot) -> Amounts:
    """What all limits of that name in the cohort have left together; at least 0."""
    members = [(each, own) for each in cohort_of(quota, snapshot) for own in each.limits if own.name == limit.name]
    hard = total(own.hard for _, own in members)
    used = total(use(each, own) for each, own in members)
    return {name: max(Quantity(0), amount - used.get(name, Quantity(0))) for name, amount in hard.items()}
