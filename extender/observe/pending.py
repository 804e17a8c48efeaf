"""Why pods with devices are pending: the latest answer about each of them, as one of a few reasons."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from allocator import Recent
from extender.kube.api import ObjectKey
from extender.observe.states import PodState, state_of_pod
from extender.observe.tally import Tally
from extender.scheduler.attempts import no_attempt
from extender.state.changes import Change
from extender.state.kinds import Topic
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot

MOST_PODS: Final = 20_000
"""Pods whose latest answer is kept."""


class PendingReason(Enum):
    """What a pending pod waits for."""

    NO_ATTEMPT = "no_attempt"
    """A scheduling gate keeps it from its scheduler, or its scheduler does not call the extender."""
    NOT_ASKED = "not_asked"
    """No scheduler has asked this replica about it."""
    CLAIMS = "claims"
    """A claim of the pod cannot be used, whatever the nodes have: it does not exist, is invalid, or is not ready."""
    DEVICES = "devices"
    """No node has the devices."""
    TERMINATING = "terminating"
    """The devices are there once terminating pods are gone."""
    SEARCH = "search"
    """No node was found, and a limit has stopped a search."""
    FILTER_ERROR = "filter_error"
    """Filter has ended with an error."""
    FITS = "fits"
    """Its devices fit on a node; the rest is up to its scheduler."""
    BIND_ERROR = "bind_error"
    """Bind has ended with an error, or waits for the devices to be ready."""


class PendingPods:
    """Remembers the latest answer about each pod, and counts pending pods by reason.

    Args:
        changes_since: the changes after a version of the snapshot; None: anything may have changed.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    def __init__(self, changes_since: Callable[[int], Iterable[Change] | None], schedulers: Collection[str]) -> None:
        self._schedulers = schedulers
        self._answers: Recent[PendingReason] = Recent(MOST_PODS)
        self._answered: deque[ObjectKey] = deque(maxlen=MOST_PODS)
        self._tally = Tally(Topic.POD, changes_since, lambda snapshot: snapshot.pods, self._label)

    def answered(self, key: ObjectKey, uid: str, reason: PendingReason) -> None:
        """Note the answer about a pod."""
        self._answers.keep(uid, reason)
        self._answered.append(key)

    def count(self, snapshot: Snapshot) -> Mapping[PendingReason, int]:
        """How many pods wait for each reason."""
        if len(self._answered) == MOST_PODS:  # Some were pushed out.
            self._tally.forget()
        answered = [self._answered.popleft() for _ in range(len(self._answered))]
        counts = self._tally.count(snapshot, answered)
        return {reason: counts.get(reason, 0) for reason in PendingReason}

    def _label(self, snapshot: Snapshot, key: ObjectKey) -> PendingReason | None:
        pod = snapshot.pods.get(key)
        return self._reason(pod) if pod is not None and state_of_pod(pod) is PodState.PENDING else None

    def _reason(self, pod: Pod) -> PendingReason:
        if no_attempt(pod, self._schedulers):
            return PendingReason.NO_ATTEMPT
        return self._answers.find(pod.uid) or PendingReason.NOT_ASKED
