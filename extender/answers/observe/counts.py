"""Counts of claims and of pending pods: a scrape costs what has changed since the last one."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from enum import Enum
from itertools import product
from typing import TypeAlias, TypeVar

from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import POD_CLAIM_NAME, ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, View
from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.pending_reason import PendingReason
from extender.framework.pod_and_claim_states import ClaimState, PodState, state_of_claim, state_of_pod
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import no_attempt

_L = TypeVar("_L", bound=Hashable)


class _Counted(View[Counter[_L]]):
    """Counts the objects of one kind by label. One thread counts at a time."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self._labels: dict[ObjectKey, _L] = {}

    @abstractmethod
    def keys(self, snapshot: Snapshot) -> Iterable[ObjectKey]:
        """The keys of all objects."""

    @abstractmethod
    def label(self, key: ObjectKey, snapshot: Snapshot) -> _L | None:
        """The label of an object; None if it does not count, or does not exist."""

    def build(self, snapshot: Snapshot) -> Counter[_L]:
        """Count all objects."""
        self._labels = {}
        return self.put(Counter(), self.keys(snapshot), snapshot)

    def apply(self, value: Counter[_L], reach: Reach, snapshot: Snapshot) -> Counter[_L]:
        """Count those that have changed."""
        return self.put(value, (key for _, key in reach.pairs()), snapshot)

    def put(self, counts: Counter[_L], keys: Iterable[ObjectKey], snapshot: Snapshot) -> Counter[_L]:
        """Count objects, whether they are counted already or not."""
        for key in keys:
            old, new = self._labels.pop(key, None), self.label(key, snapshot)
            if old is not None:
                counts[old] -= 1
            if new is not None:
                self._labels[key] = new
                counts[new] += 1
        return counts


class ClaimSource(Enum):
    """What a claim was made from; the words are those of kube-controller-manager's metric of claims."""

    CLAIM = "resource_claim"
    """A person or a program has made it."""
    TEMPLATE = "resource_claim_template"
    EXTENDED_RESOURCE = "extended_resource"
    """A special claim."""


_ClaimLabel: TypeAlias = tuple[ClaimState, ClaimSource]


class ClaimCounts(_Counted[_ClaimLabel]):
    """Counts claims by state, and by who made them."""

    topics = frozenset({Topic.CLAIM})
    bound = "the state and the source of each claim"

    def count(self, snapshot: Snapshot) -> Mapping[_ClaimLabel, int]:
        """How many claims of each source are in each state."""
        counts = self.at(snapshot)
        return {label: counts[label] for label in product(ClaimState, ClaimSource)}

    def keys(self, snapshot: Snapshot) -> Iterable[ObjectKey]:
        """All claims."""
        return snapshot.claims

    def label(self, key: ObjectKey, snapshot: Snapshot) -> _ClaimLabel | None:
        """State and source of a claim."""
        claim = snapshot.claims.get(key)
        return None if claim is None else (state_of_claim(claim, snapshot), _source(claim))


def _source(claim: ClaimObject) -> ClaimSource:
    if claim.special_of:
        return ClaimSource.EXTENDED_RESOURCE
    return ClaimSource.TEMPLATE if POD_CLAIM_NAME in claim.claim.annotations else ClaimSource.CLAIM


class PendingPods(_Counted[PendingReason]):
    """Counts pending pods by what each waits for.

    Args:
        timeline: of the cluster.
        decision_log: has the latest answer about each pod. Only this object may take its changes.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    topics = frozenset({Topic.POD})
    bound = "the reason of each pending pod"

    def __init__(self, timeline: Timeline, decision_log: DecisionLog, schedulers: Collection[str]) -> None:
        super().__init__(timeline)
        self._schedulers = schedulers
        self._decision_log = decision_log

    def count(self, snapshot: Snapshot) -> Mapping[PendingReason, int]:
        """How many pods wait for each reason."""
        answered = self._decision_log.changes()
        if answered is None:
            self._known = None  # any reason may be another one
        counts = self.put(self.at(snapshot), answered or (), snapshot)
        return {reason: counts[reason] for reason in PendingReason}

    def keys(self, snapshot: Snapshot) -> Iterable[ObjectKey]:
        """All pods."""
        return snapshot.pods

    def label(self, key: ObjectKey, snapshot: Snapshot) -> PendingReason | None:
        """Why a pod waits; None if it does not."""
        pod = snapshot.pods.get(key)
        if pod is None or state_of_pod(pod) is not PodState.PENDING:
            return None
        if no_attempt(pod, self._schedulers):
            return PendingReason.NO_ATTEMPT
        latest = self._decision_log.latest(pod.uid)
        return PendingReason.NOT_ASKED if latest is None else latest.waits_for
