"""Why pods wait in a cluster that no scheduler follows, such as one of manifests: what filter would say now."""

from collections.abc import Callable, Sequence
from typing import Final

from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import Conclusion
from extender.answers.observe.tables.pods import fits_in_words
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider

_SECONDS: Final = 2.0
"""The longest time for the pods of one table. The next table begins with what is known then."""

LATER: Final = "not judged yet: look again"
"""Stands for the reason of a pod for which there was no time."""


class UnaskedPods:
    """Judges pods that nobody asks about, and remembers the answers until the cluster changes.

    Args:
        decider: remembers verdicts.
        turn: makes what each table calls between small pieces of work, so that verbs go first.
        schedulers: names of the schedulers that call the extender; empty: not known.
        marked_only: the schedulers ask only about pods with the marker.
    """

    def __init__(
        self,
        decider: Decider,
        turn: Callable[[], Callable[[], None]],
        schedulers: Sequence[str] = (),
        *,
        marked_only: bool = False,
    ) -> None:
        self._decider = decider
        self._turn = turn
        self._schedulers = schedulers
        self._marked_only = marked_only
        self._known: tuple[int, dict[str, str]] = (-1, {})

    def reasons(self, snapshot: Snapshot, seconds: float = _SECONDS) -> Callable[[Pod], str]:
        """What tells why a pending pod of a snapshot waits, for one table; for so many seconds, new pods are judged.

        Threads may ask at the same time: both find the same.
        """
        clock = self._decider.solver.clock
        until, pause = clock() + seconds, self._turn()
        if self._known[0] != snapshot.version:
            self._known = (snapshot.version, {})
        known = self._known[1]

        def reason(pod: Pod) -> str:
            found = known.get(pod.uid, "")
            if not found and clock() < until:
                found = known[pod.uid] = self._judged(pod, snapshot, pause, until)
            return found or LATER

        return reason

    def _judged(self, pod: Pod, snapshot: Snapshot, pause: Callable[[], None], until: float) -> str:
        explainer = Explainer(
            snapshot,
            self._decider,
            pause,
            until,
            seconds=0.0,
            schedulers=self._schedulers,
            marked_only=self._marked_only,
            preempts=False,
        )
        found = explainer.explain(pod)
        if found.verdict is Conclusion.FITS:
            return fits_in_words(len(found.places))
        return found.headline or found.summary
