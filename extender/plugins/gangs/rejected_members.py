"""Members of gangs that filter has rejected: the nodes that their schedulers may take, and who waits for an answer."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.task import NodeLists, Rejection
from extender.tools.fairness import FairMemory

MOST_UNSEEN: Final = 1024
"""At most this number of pods is remembered that the watch has not shown yet: a caller may make up any number."""


@dataclass(slots=True)
class RejectedMember:
    """A member that filter has rejected.

    Attributes:
        since: when it was rejected first, by the clock.
        names: the nodes of the latest call, but of a call about one node only if there was no other call: a scheduler
            asks about a nominated node alone.
        latest: the nodes of the latest call.
        was_ready: in the latest call, the gang was ready, but the pod found no devices on the node that is kept for it.
        is_undecided: in the latest call, a limit has stopped the search on that node.
        is_answered: since the latest call, something was done for the pod.
        with_evictions: the nodes where the pod's scheduler would evict others. Then all suffices there, except perhaps
            the devices.
    """

    since: float
    names: tuple[str, ...]
    latest: tuple[str, ...]
    was_ready: bool
    is_undecided: bool = False
    is_answered: bool = False
    with_evictions: tuple[str, ...] = ()


class RejectedMembers:
    """Remembers members until they have a node.

    Args:
        clock: seconds, from any point.
        seconds: for which a pod is remembered that the watch has not shown yet: a scheduler may be ahead of it.
    """

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._names = NodeLists()
        self._known: dict[str, RejectedMember] = {}
        self._unseen = FairMemory[RejectedMember](MOST_UNSEEN)

    def __len__(self) -> int:
        return len(self._known) + len(self._unseen)

    def note(self, rejection: Rejection) -> bool:
        """Remember a member; returns whether it was known."""
        before = self._member_by_uid(rejection.sent.uid)
        latest = names = self._names.shared(rejection.names)
        if before is not None and before.names and len(names) < 2:
            names = before.names
        since, was_ready = self._clock() if before is None else before.since, not rejection.result.is_blocked
        is_undecided = rejection.result.is_undecided
        member = RejectedMember(since, names, latest, was_ready, is_undecided)
        self._keep(rejection.sent, member, rejection.snapshot)
        return before is not None

    def note_evictions(self, pod: Pod, names: Iterable[str], snapshot: Snapshot) -> None:
        """Remember where the scheduler of a member would evict others for it, until filter is asked again."""
        known = self._member_by_uid(pod.uid)
        if known is None:
            known = RejectedMember(self._clock(), (), (), was_ready=False)
            self._keep(pod, known, snapshot)
        known.with_evictions = self._names.shared(sorted(names))

    def answered(self, pod: Pod) -> None:
        """Something was done for a pod, or filter has let it pass."""
        if (known := self._member_by_uid(pod.uid)) is not None:
            known.is_answered = True

    def not_answered(self, pod: Pod) -> None:
        """Note that what was to be done for a pod could not be written."""
        if (known := self._member_by_uid(pod.uid)) is not None:
            known.is_answered = False

    def unanswered(self, pods: Iterable[Pod]) -> Iterator[tuple[Pod, RejectedMember]]:
        """The pods for which nothing was done since they were rejected. From now on, they are answered."""
        for pod in pods:
            known = self._member_by_uid(pod.uid)
            if known is not None and not known.is_answered:
                known.is_answered = True
                yield pod, known

    def names(self, pod: Pod) -> Sequence[str] | None:
        """The nodes that the pod's scheduler may take without evictions; None if it has not asked about the pod."""
        known = self._member_by_uid(pod.uid)
        return None if known is None else known.names

    def with_evictions(self, pod: Pod) -> Sequence[str]:
        """The nodes where the pod's scheduler would evict others for it."""
        known = self._member_by_uid(pod.uid)
        return () if known is None else known.with_evictions

    def since(self, pods: Iterable[Pod]) -> Sequence[float]:
        """The times at which these pods, if they have got no node, were asked about first."""
        return [known.since for pod in pods if (known := self._member_by_uid(pod.uid)) is not None]

    def forget(self, others: Collection[str], snapshot: Snapshot) -> Sequence[Pod]:
        """Forget pods that wait in no gang any more.

        Args:
            others: the uids of the pods that wait in a gang.
            snapshot: the cluster.

        Returns:
            those of them that are there and were not answered.
        """
        for uid, member in self._unseen.items():
            if snapshot.pod(uid) is not None:
                self._unseen.pop(uid)
                self._known[uid] = member
            elif self._clock() > member.since + self._seconds:
                self._unseen.pop(uid)
        gone = {uid: self._known.pop(uid) for uid in [uid for uid in self._known if uid not in others]}
        pods = [snapshot.pod(uid) for uid, member in gone.items() if not member.is_answered]
        return [pod for pod in pods if pod is not None]

    def _member_by_uid(self, uid: str) -> RejectedMember | None:
        return self._known.get(uid) or self._unseen.get(uid)

    def _keep(self, pod: Pod, member: RejectedMember, snapshot: Snapshot) -> None:
        if snapshot.pod(pod.uid) is None:
            self._unseen.keep(pod.namespace, pod.uid, member)
        else:
            self._unseen.pop(pod.uid)
            self._known[pod.uid] = member
