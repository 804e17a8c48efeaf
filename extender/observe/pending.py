"""Pending pods, counted by what each waits for."""

from collections.abc import Callable, Collection, Iterable, Mapping

from extender.cluster.change_log import Change
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.kube_scheduler import no_attempt
from extender.observe.decision_log import DecisionLog
from extender.observe.pod_and_claim_states import PendingReason, PodState, state_of_pod
from extender.observe.tally import Tally


class PendingPods:
    """Counts pending pods by reason.

    Args:
        changes_since: the changes after a version of the snapshot; None: anything may have changed.
        decision_log: has the latest answer about each pod. Only this object may take its changes.
        schedulers: names of the schedulers that call the extender; empty: not known.
    """

    def __init__(
        self,
        changes_since: Callable[[int], Iterable[Change] | None],
        decision_log: DecisionLog,
        schedulers: Collection[str],
    ) -> None:
        self._schedulers = schedulers
        self._decision_log = decision_log
        self._tally = Tally(Topic.POD, changes_since, lambda snapshot: snapshot.pods, self._label)

    def count(self, snapshot: Snapshot) -> Mapping[PendingReason, int]:
        """How many pods wait for each reason."""
        answered = self._decision_log.changes()
        if answered is None:
            self._tally.forget()
        counts = self._tally.count(snapshot, answered or ())
        return {reason: counts.get(reason, 0) for reason in PendingReason}

    def _label(self, snapshot: Snapshot, key: ObjectKey) -> PendingReason | None:
        pod = snapshot.pods.get(key)
        return self._reason(pod) if pod is not None and state_of_pod(pod) is PodState.PENDING else None

    def _reason(self, pod: Pod) -> PendingReason:
        if no_attempt(pod, self._schedulers):
            return PendingReason.NO_ATTEMPT
        latest = self._decision_log.latest(pod.uid)
        return PendingReason.NOT_ASKED if latest is None else latest.waits_for
