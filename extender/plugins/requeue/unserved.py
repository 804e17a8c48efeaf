"""Events on pods that no node can serve, once that has lasted for a while."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from allocator.tools import printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.framework.handle import Handle
from extender.framework.pods.extended_resources.requests import request_nouns
from extender.framework.rejected_pods import PATIENCE
from extender.framework.task import BackgroundTask, Rejection, share_of
from extender.tools.fairness.fair_memory import FairMemory
from extender.tools.faults import Faults

REASON: Final = "DevicesUnavailable"

_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class _Rejection:
    text: str
    since: datetime


class Unserved(BackgroundTask):
    """Remembers who was rejected, and tells it of those that stay pending: once for each reason that is new.

    Args:
        state: tells which pods are still pending.
        record: writes Events, in the background.
        now: the time.
        faults: gets unexpected errors, each with its pod.
    """

    def __init__(
        self,
        state: ClusterState,
        record: Callable[[Pod, Note], None],
        now: Callable[[], datetime],
        faults: Faults,
    ) -> None:
        self._state = state
        self._record = record
        self._now = now
        self._faults = faults
        self._waiting = FairMemory[_Rejection](_KEPT)
        self._told = FairMemory[str](_KEPT)

    def on_rejected(self, rejection: Rejection) -> None:
        """Remember the pod, once its scheduler gives up."""
        if rejection.is_final:
            pod = rejection.sent
            self.rejected(pod, rejection.result.unresolvable.counts(request_nouns(pod)))

    def on_passed(self, pod: Pod) -> None:
        """The pod has a node."""
        self.forget(pod)

    async def tick(self) -> None:
        """Tell pods."""
        self.look()

    def rejected(self, pod: Pod, reasons: Iterable[str]) -> None:
        """Filter has left the pod no node, for these reasons."""
        text = summary(pod, reasons)
        known = self._waiting.get(pod.uid)
        if self._told.get(pod.uid) == text or (known is not None and known.text == text):
            return
        if known is None:
            share = share_of(pod, self._state.snapshot)
            self._waiting.keep(share, pod.uid, _Rejection(text, self._now()))
        else:  # a reason that changes does not start the wait anew
            self._waiting.replace(pod.uid, _Rejection(text, known.since))

    def forget(self, pod: Pod) -> None:
        """The pod has a node, or is gone."""
        self._waiting.pop(pod.uid)
        self._told.pop(pod.uid)

    def look(self) -> None:
        """Tell what has lasted for long enough."""
        due = self._now() - PATIENCE
        while (uid := next(iter(self._waiting), None)) is not None:
            first = self._waiting.get(uid)
            if first is None or first.since > due:
                return
            self._waiting.pop(uid)
            pod = self._state.snapshot.pod(uid)
            if pod is not None and not pod.node_name:
                self._told.keep(pod.namespace, uid, first.text)
                with self._faults.of(f"pod {pod}"):
                    self._record(pod, Note(REASON, printable(first.text)))


def summary(pod: Pod, reasons: Iterable[str]) -> str:
    """One line that stays the same while the reasons do: without numbers of nodes, which change all the time."""
    return (
        f"no node has the devices that the pod needs: {'; '.join(sorted(set(reasons)))} (GET /explain/{pod} says more)"
    )


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task for unserved pods."""
    return [Unserved(handle.state, handle.tell, handle.now, handle.faults)]
