"""DeviceQuotas and one pod: whether the namespace of the pod may be allocated what the pod needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from allocator import Allocation, AllocationMode, LeftOut, Reason, SearchLimitError
from allocator.model.optional import optional_problem, without
from allocator.search import SearchBudget, TimedSelectors
from extender.cluster.consumers import claim_keys
from extender.cluster.double_allocations import is_before
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.device_quotas import Amounts, DeviceLimit, DeviceQuota
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, quotas_of
from extender.framework.decisions.solver import Solver
from extender.framework.pods.claims import PodClaims
from extender.framework.pods.negotiated_claims import NegotiatedClaim
from extender.plugins.quota.kept_claims import Rank, kept_claims, rank
from extender.plugins.quota.overrun import Overrun, Use, cohort_of, overrun, unreadable
from extender.plugins.quota.totals import KeptTotal, Total, Totals
from extender.plugins.quota.usage import LimitMeter, Measure, Taken, in_flight, least, most, total


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
