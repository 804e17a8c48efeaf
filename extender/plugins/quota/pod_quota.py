"""Tells whether a pod, or more of its namespace, may be allocated devices: its DeviceQuotas, and what cohorts lend."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from allocator import Allocation, AllocationMode, LeftOut, Quantity, Reason, SearchLimitError
from allocator.model.optional import optional_problem, without
from allocator.reason import Cause
from allocator.search import SearchBudget, TimedSelectors
from extender.cluster.consumers import claim_keys
from extender.cluster.double_allocations import is_before
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.device_quotas import DEVICES, Amounts, DeviceLimit, DeviceQuota, counted_name
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, quotas_of
from extender.framework.decisions.solver import Solver
from extender.framework.pods.claims import PodClaims
from extender.framework.pods.negotiated_claims import NegotiatedClaim
from extender.kube.resources import DEVICE_QUOTAS
from extender.plugins.quota.kept_claims import Rank, kept_claims, rank
from extender.plugins.quota.totals import KeptTotal, Total, Totals
from extender.plugins.quota.usage import LimitMeter, Measure, Taken, in_flight, least, most, total

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


@dataclass(frozen=True, slots=True)
class UnreadableQuota:
    """A quota of the namespace can't be read."""

    reason: Reason
    advice: str = "correct the DeviceQuota"

    def __str__(self) -> str:
        return self.reason.in_words()


_MIGHT_EXCEED: Final = "it might exceed a DeviceQuota of the namespace"

QuotaRefusal: TypeAlias = Overrun | UnreadableQuota
"""Keeps a pod off all nodes; has a ``reason``."""


@dataclass(frozen=True, slots=True)
class PodQuota:
    """The quotas of a pod's namespace.

    Attributes:
        quotas: the quotas in the order of their names.
        unreadable: a quota of the namespace that can't be read; None if all can.
    """

    pod: Pod
    snapshot: Snapshot
    solver: Solver
    quotas: tuple[DeviceQuota, ...]
    unreadable: Reason | None

    @classmethod
    def of(cls, pod: Pod, snapshot: Snapshot, solver: Solver) -> "PodQuota | None":
        """The quotas for a pod in a cluster; None if no quota limits its namespace."""
        quotas, problem = quotas_of(pod.namespace, snapshot), unreadable(pod.namespace, snapshot)
        return cls(pod, snapshot, solver, quotas, problem) if quotas or problem else None

    def depends_on_devices(self, claims: PodClaims) -> bool:
        """Whether quota has to be compared on each node, because it depends on the devices there."""
        ways = [request.alternatives for each in claims.open_specs for request in each.requests]
        is_open = claims.special.is_needed or any(
            len(each) != 1 or each[0].mode is not AllocationMode.EXACT_COUNT for each in ways
        )
        return is_open or any(limit.selectors or limit.capacities for quota in self.quotas for limit in quota.limits)

    def suffices(self, claims: PodClaims) -> bool:
        """Whether the claims are within quota with any devices. May be False although they are. Raises as `refusal`."""
        if claims.special.is_needed:
            return False
        largest = partial(self.solver.memories.of(Totals).largest.of, self.snapshot.inventory)
        return self._overrun(partial(most, specs=claims.open_specs, largest=largest)) is None

    def refusal(self, claims: PodClaims) -> QuotaRefusal | None:
        """The reason that keeps a pod off all nodes: a limit that its claims exceed with any devices.

        Raises:
            TimeoutError: selectors of the quotas took too long.
        """
        if self.unreadable:
            return UnreadableQuota(self.unreadable)
        ours = [each.claim.spec for each in claims.pending]
        return self._overrun(
            lambda limit: _sum(least(limit, ours), self._asked_of_controllers(limit, claims.negotiated))
        )

    def refusal_of(
        self, pending: Sequence[ClaimObject], found: Allocation, negotiated: Sequence[NegotiatedClaim]
    ) -> Overrun | None:
        """The limit that claims would exceed with an allocation, and what controllers are asked for.

        Raises:
            TimeoutError: as `refusal`.
        """
        taken = [Taken(each.claim.spec, got) for each, got in zip(pending, found.results, strict=True)]
        meter = meter_of(self.snapshot, self.solver)
        return self._overrun(
            lambda limit: _sum(meter.measured(limit, taken), self._asked_of_controllers(limit, negotiated))
        )

    def _asked_of_controllers(self, limit: DeviceLimit, negotiated: Sequence[NegotiatedClaim]) -> Amounts:
        """What controllers are asked for; or what one has allocated before, if that was over quota and given back."""
        amounts: Amounts = {}
        for each in negotiated:
            spec = each.negotiated_spec
            returned = self.solver.memories.of(Totals).returned.of(each.uid, self.solver.clock())
            if returned is None:
                amounts = _sum(amounts, least(limit, [spec]))
                continue
            theirs = tuple(result for result in returned.results if result.request in each.requests)
            taken = [Taken(spec, replace(returned, results=theirs))]
            amounts = _sum(amounts, meter_of(self.snapshot, self.solver).allocated(limit, taken))
        return amounts

    def refusal_after(self, claim: ClaimObject) -> Overrun | None:
        """The limit that an allocated claim exceeds, if only earlier allocations count. Raises as `refusal`."""
        allocation = claim.claim.allocation
        if allocation is None:
            return None
        meter, taken = meter_of(self.snapshot, self.solver), [Taken(claim.claim.spec, allocation)]

        def used_before(quota: DeviceQuota, limit: DeviceLimit) -> Amounts:
            parts = self._total(quota, limit).parts
            others = ((self.snapshot.claim(uid), part.amounts) for uid, part in parts.items() if uid != claim.claim.uid)
            return total(amounts for other, amounts in others if other is not None and is_before(other, claim))

        return self._overrun(lambda limit: meter.allocated(limit, taken), used_before)

    def _overrun(self, needed: Measure, use: Use | None = None) -> Overrun | None:
        """The limit that would be exceeded. ``use``: what is in use; None: all that is withheld from the pod."""
        try:
            found = overrun(self.quotas, needed, use or self._in_use, self.snapshot)
            if found is None or use is not None:
                return found
            kept = self._kept_for_others(found.quota, found.limit)
        except SearchLimitError as error:
            raise TimeoutError from error
        return found._replace(kept=kept.get(found.counts, found.kept))

    def _in_use(self, quota: DeviceQuota, limit: DeviceLimit) -> Amounts:
        """What is withheld from the pod: what is allocated, on its way in other binds, and kept for other pods."""
        assumed = [taken for uid, taken in in_flight(quota.namespace, self.snapshot) if uid != self.pod.uid]
        amounts = [self._total(quota, limit).amounts]
        if assumed:
            amounts.append(meter_of(self.snapshot, self.solver).allocated(limit, assumed))
        if kept := self._kept_for_others(quota, limit):
            amounts.append(kept)
        return amounts[0] if len(amounts) == 1 else total(amounts)

    def _kept_for_others(self, quota: DeviceQuota, limit: DeviceLimit) -> Amounts:
        """What is kept for other pods.

        If more is kept than a quota allows, because it was lowered or two replicas kept devices at once, the pods do
        not wait for each other: what is kept for pods of a later `rank` does not count against a nominated pod.
        """
        found = kept_of(quota, limit, self.snapshot, self.solver)
        if not found.claims:
            return {}
        named = (self.snapshot.claims.get(key) for key in claim_keys(self.pod))
        own = {claim.claim.uid for claim in named if claim is not None}
        place = rank(self.pod, self.snapshot) if self.pod.nominated_node else None
        others = [
            each.uid
            for each in found.claims
            if each.pod.uid != self.pod.uid
            and each.claim_uid not in own
            and (place is None or rank(each.pod, self.snapshot) <= place)
        ]
        if len(others) == len(found.claims):
            return found.amounts
        return total(found.parts[uid][1] for uid in others)

    def _total(self, quota: DeviceQuota, limit: DeviceLimit) -> Total:
        return total_of(quota, limit, self.snapshot, self.solver)


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return total((one, other)) if one and other else one or other


def within_quota(pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> PodClaims:
    """The claims without the optional requests with which they might exceed a quota of the namespace.

    The first of the optional requests that fit are kept. So an optional request never keeps its pod off a node.
    """
    quota = PodQuota.of(pod, snapshot, solver)
    if quota is None or quota.unreadable or any(optional_problem(each.claim.spec) for each in claims.pending):
        return claims
    withheld = [(each.claim.uid, name) for each in claims.pending for name in each.claim.spec.optional]
    for each in tuple(withheld):
        rest = [other for other in withheld if other != each]
        try:
            if quota.suffices(_without(claims, rest)):
                withheld = rest
        except TimeoutError:
            break
    return _without(claims, withheld)


def _without(claims: PodClaims, withheld: Sequence[tuple[str, str]]) -> PodClaims:
    """The claims without some optional requests, each with the uid of its claim."""
    pending, left_out = [], []
    for each in claims.pending:
        names = [name for uid, name in withheld if uid == each.claim.uid]
        pending.append(replace(each, claim=replace(each.claim, spec=without(each.claim.spec, names))))
        left_out += [LeftOut(str(each.claim), name, _MIGHT_EXCEED) for name in names]
    return replace(claims, pending=tuple(pending), withheld=(*claims.withheld, *left_out))


def kept_overrun(namespace: str, last: Rank | None, snapshot: Snapshot, solver: Solver) -> Overrun | None:
    """The limit that a namespace exceeds with what is kept for its pods.

    Args:
        namespace: has the quotas.
        last: what is kept for pods of a later `rank` does not count: they give way. None: all counts.
        snapshot: the cluster.
        solver: the allocator.

    Raises:
        TimeoutError: selectors of the quotas took too long.
    """

    def use(quota: DeviceQuota, limit: DeviceLimit) -> Amounts:
        held = total_of(quota, limit, snapshot, solver).amounts
        assumed = [taken for _, taken in in_flight(quota.namespace, snapshot)]
        kept = {} if quota.namespace == namespace else kept_of(quota, limit, snapshot, solver).amounts
        return total((held, meter_of(snapshot, solver).allocated(limit, assumed), kept))

    try:
        for quota in quotas_of(namespace, snapshot):
            needed = partial(_kept_until, last, quota, snapshot=snapshot, solver=solver)
            if found := overrun([quota], needed, use, snapshot):
                return found
    except SearchLimitError as error:
        raise TimeoutError from error
    return None


def _kept_until(
    last: Rank | None, quota: DeviceQuota, limit: DeviceLimit, *, snapshot: Snapshot, solver: Solver
) -> Amounts:
    found = kept_of(quota, limit, snapshot, solver)
    if last is None:
        return found.amounts
    return total(found.parts[each.uid][1] for each in found.claims if rank(each.pod, snapshot) <= last)


def is_counted(pod: Pod, snapshot: Snapshot, solver: Solver) -> bool:
    """Whether the use of the quotas of a pod is remembered.

    Otherwise all claims of a namespace have to be measured, or all devices looked at.
    """
    own, totals = quotas_of(pod.namespace, snapshot), solver.memories.of(Totals)
    if not totals.largest.is_known and any(limit.capacities for quota in own for limit in quota.limits):
        return False
    lenders = (each for quota in own if quota.borrowing for each in cohort_of(quota, snapshot))
    return all(map(totals.knows, (*own, *lenders)))


def total_of(quota: DeviceQuota, limit: DeviceLimit, snapshot: Snapshot, solver: Solver) -> Total:
    """What the namespace of a quota is allocated of a limit. Raises SearchLimitError: time is up."""
    return solver.memories.of(Totals).of(quota, limit, snapshot, meter_of(snapshot, solver))


def kept_of(quota: DeviceQuota, limit: DeviceLimit, snapshot: Snapshot, solver: Solver) -> KeptTotal:
    """What is kept of a limit for the nominated pods of the namespace of a quota.

    Raises:
        SearchLimitError, TimeoutError: time is up.
    """
    claims = kept_claims(quota.namespace, snapshot, solver)
    if not claims:
        return KeptTotal(limit)
    return solver.memories.of(Totals).kept.of(quota, limit, claims, meter_of(snapshot, solver))


def meter_of(snapshot: Snapshot, solver: Solver) -> LimitMeter:
    """Measures by the devices of a snapshot, for as long as the solver allows a search."""
    return LimitMeter(snapshot.inventory, TimedSelectors(solver.selectors, SearchBudget(solver.limits, solver.clock)))
