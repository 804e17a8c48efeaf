"""DeviceQuotas in a scheduling cycle: what a pod may be allocated in filter, in bind, and after the writes of bind.

If quotas borrow from their cohorts, evictions prefer the pods whose devices are borrowed.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from allocator import SearchLimitError
from extender.cluster.consumers import claim_keys, is_in_use
from extender.cluster.controller_marks import is_marked
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.device_quotas import DeviceLimit, DeviceQuota
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot, quotas_of
from extender.cluster.writes.events import QUOTA_EXCEEDED
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import PendingReason
from extender.framework.plugin import NodeCheck, NodeOffer, Plugin, Refusal
from extender.framework.pods.claims import PodClaims
from extender.framework.victims import VictimOrder
from extender.kube.api import ObjectKey
from extender.plugins.quota.kept_claims import rank
from extender.plugins.quota.pod_quota import PodQuota, excess, is_counted, kept_overrun, total_of, within_quota
from extender.plugins.quota.totals import Total, Totals


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


_LATE: Final = "selectors of the namespace's DeviceQuotas take too long"

QUOTA: Final = "quota"
"""The name of the plugin."""


class QuotaPlugin(Plugin):
    """Refuses a pod with which its namespace would be withheld more than a DeviceQuota allows."""

    name = QUOTA
    waits_for = PendingReason.QUOTA
    event = QUOTA_EXCEEDED
    of_cluster = ("device_quotas", "problems")

    def is_slow(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> bool:
        """Whether all claims of the namespace have to be measured, because what it has is not remembered."""
        return bool(snapshot.device_quotas) and not is_counted(pod, snapshot, solver)

    def withhold(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> PodClaims:
        """The claims without the optional requests with which they might exceed a quota."""
        return within_quota(pod, claims, snapshot, solver) if snapshot.device_quotas else claims

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> Refusal | NodeCheck | None:
        """Compare what the claims need with any devices; and leave the devices of each node to a check, if they count.

        Raises:
            TimeoutError: selectors of the quotas took too long.
        """
        quota = PodQuota.of(pod, snapshot, solver)
        if quota is None:
            return None
        refusal = quota.refusal(claims)
        if refusal is not None:
            return Refusal(refusal.reason, str(refusal), refusal.advice)
        if not quota.depends_on_devices(claims) or quota.suffices(claims):
            return None
        return partial(_on_node, quota, claims)

    def reserve(
        self, pod: Pod, claims: PodClaims, offer: NodeOffer, snapshot: Snapshot, solver: Solver
    ) -> Refusal | None:
        """Compare what was found. Assumed allocations of other binds of this process count.

        Raises:
            TimeoutError: selectors of the quotas took too long.
        """
        quota = PodQuota.of(pod, snapshot, solver)
        if quota is None or not (offer.needs.pending or claims.negotiated):
            return None
        if quota.unreadable:
            return Refusal(quota.unreadable)
        try:
            return _on_node(quota, claims, offer)
        except TimeoutError as error:
            raise TimeoutError(_LATE) from error

    def verify(self, claim: ClaimObject, pod: Pod, snapshot: Snapshot, solver: Solver) -> Refusal | None:
        """Compare an allocation with earlier allocations, also by other replicas.

        A claim that a bound pod uses is not compared: it was compared when that pod was bound.

        Raises:
            TimeoutError: selectors of the quotas took too long.
        """
        quota = PodQuota.of(pod, snapshot, solver)
        if quota is None or is_in_use(claim.claim, snapshot):
            return None
        try:
            found = quota.refusal_after(claim)
        except TimeoutError as error:
            raise TimeoutError(_LATE) from error
        if found is None:
            return None
        if claim.claim.allocation is not None and is_marked(claim.claim):
            solver.memories.of(Totals).returned.note(claim.claim.uid, claim.claim.allocation, solver.clock())
        return Refusal(found.reason, f"claim {claim.key} was allocated after others: {found}")

    def victim_order(self, pods: Iterable[Pod], snapshot: Snapshot, solver: Solver) -> VictimOrder:
        """Pods with devices that their namespaces have borrowed from their cohorts go first."""
        return Borrowers.of(pods, snapshot, solver)

    def counts_holders(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether the pod's namespace has a quota: what its own pods hold is taken from it."""
        return bool(quotas_of(pod.namespace, snapshot))

    def nominate(self, pods: Sequence[Pod], snapshot: Snapshot, solver: Solver) -> Refusal | None:
        """Compare all that is then kept in the pods' namespace. Raises as `verify`.

        If two replicas have kept too much at once, or a quota was lowered, pods of a later `rank` give way: what is
        kept for them does not count for pods for which something is kept already.
        """
        if not any(self.counts_holders(pod, snapshot) for pod in pods):
            return None
        if all((known := snapshot.pod(pod.uid)) is not None and known.kept.node for pod in pods):
            last = max(rank(pod, snapshot) for pod in pods)
        else:
            last = None
            for pod in pods:
                snapshot = snapshot.with_pod(pod)
        overrun = kept_overrun(pods[0].namespace, last, snapshot, solver)
        return None if overrun is None else Refusal(overrun.reason, str(overrun), overrun.advice)

    def queueing_hint(self, topic: Topic, key: Hashable, before: Snapshot, after: Snapshot) -> Collection[str]:
        """The namespace of a quota that has changed, or of a claim that holds other devices; and who may borrow."""
        if not isinstance(key, ObjectKey):
            return ()
        if topic is Topic.DEVICE_QUOTA:
            return {key.namespace, *_borrowers(key.namespace, before), *_borrowers(key.namespace, after)}
        return _relieved(key, before, after) if topic is Topic.CLAIM else ()


def _on_node(quota: PodQuota, claims: PodClaims, offer: NodeOffer) -> Refusal | None:
    """The limit that a pod would exceed with what was found for it on a node."""
    pending = offer.needs.pending
    if not (pending or claims.negotiated):
        return None
    overrun = quota.refusal_of(pending, offer.found, claims.negotiated)
    return None if overrun is None else Refusal(overrun.reason, str(overrun), overrun.advice)


def _relieved(key: ObjectKey, before: Snapshot, after: Snapshot) -> frozenset[str]:
    """The namespaces whose quotas have more left because a claim holds other devices than before."""
    old, new = before.claims.get(key), after.claims.get(key)
    if not after.device_quotas or old is None:
        return frozenset()
    held = before.held_by(old.claim.uid)
    if not held or (new is not None and after.held_by(new.claim.uid) == held):
        return frozenset()
    own = {key.namespace} if quotas_of(key.namespace, after) else set()
    return frozenset(own | _borrowers(key.namespace, after))


def _borrowers(namespace: str, snapshot: Snapshot) -> set[str]:
    """The namespaces that may borrow from the quotas of a namespace."""
    cohorts = {quota.cohort for quota in quotas_of(namespace, snapshot)} - {""}
    return {each.namespace for each in snapshot.device_quotas.values() if each.borrowing and each.cohort in cohorts}
