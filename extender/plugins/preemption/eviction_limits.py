"""Limits of evictions: how many pods are evicted for a pod and in a namespace, and what evictions were good for.

Both ways to evict pods ask here before and tell what became of it: preemption for devices, and the victims that
kube-scheduler chooses. Two things keep evictions from going on without end:

- *Caps* that operators set (`EvictionCaps`).
- A memory of evictions in vain. A pod for which others were evicted in vain evicts again after a pause that doubles,
  and never the same victims if the cause is the same. The memory is about kinds of pods, not about uids: a controller
  makes its pod again under a new uid (`kind_of`).
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import Final

from allocator import ClaimSpec
from allocator.tools import Recent
from extender.cluster.objects.pods import Pod, PodClaim
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import claim_from_template
from extender.kube.api import ObjectKey

FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 600.0
"""The pause after evictions in vain; twice as long each time, up to the longest."""

REMEMBERED_SECONDS: Final = 3600.0
"""Evictions in vain are remembered for this time after the latest one of a kind of pods."""

MOST_KINDS: Final = 256
"""Kinds of pods that are remembered for one namespace. Beyond that, no further kind of it evicts during the pauses."""

MOST_NAMESPACES: Final = 4096
"""Namespaces that are remembered. The one that evicted longest ago is forgotten first."""

_MOST_PODS: Final = 1024
"""Pods of one namespace whose evictions are counted one by one."""

_MOST_CAUSES: Final = 16
_MOST_SETS: Final = 64
"""Causes that are remembered for one kind of pods, and sets of victims for each of them."""

_PLANNED_SECONDS: Final = 30.0
"""Evictions that are planned count for this time at most: until then they were made, or never will be."""

_MINUTE: Final = 60.0

MOST_REFUSALS: Final = 3
"""After so many refused binds of a pod (by a controller, or over quota), its nomination ends, and pods were evicted for
it in vain."""

LOOKING_SECONDS: Final = 10.0
"""Between two looks whether a pod still may not evict others."""


@dataclass(frozen=True, slots=True)
class EvictionCaps:
    """Caps that operators set. 0 allows no eviction.

    Attributes:
        for_pod: the most pods that are evicted for one pod, in its whole life.
        of_namespace: the most pods of one namespace that are evicted in a minute, for whomever.
        for_namespace: the most pods that are evicted in a minute for pods of one namespace.
    """

    for_pod: int
    of_namespace: int
    for_namespace: int


class RefusedBy(StrEnum):
    """The limit that keeps a pod from evicting others; the label of a metric."""

    POD = "pod"
    VICTIMS = "victims"
    PREEMPTORS = "preemptors"
    PAUSE = "pause"
    SAME_VICTIMS = "same_victims"


@dataclass(frozen=True, slots=True)
class EvictionRefusal:
    """Why no pod may be evicted for a pod now.

    Attributes:
        seconds: until it may be tried again.
    """

    by: RefusedBy
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Evicted:
    """Evictions for one pod, as they are remembered.

    Attributes:
        namespace: of the pod.
        kind: of the pod (`kind_of`).
        victims: equal for victims of the same kinds.
    """

    namespace: str
    kind: Hashable
    victims: Hashable

    @classmethod
    def of(cls, pod: Pod, victims: Iterable[Pod], snapshot: Snapshot) -> "Evicted":
        """The evictions of some pods for a pod; the snapshot has their claims."""
        kinds = Counter((each.namespace, kind_of(each, snapshot)) for each in victims)
        return cls(pod.namespace, kind_of(pod, snapshot), frozenset(kinds.items()))


@dataclass(slots=True)
class _InVain:
    """Evictions in vain for one kind of pods.

    Attributes:
        times: how often in a row.
        until: the end of the pause, in seconds of the clock.
        noted: when the latest one was noted.
        cause: the cause of the latest one; empty if it is not known.
        victims: the kinds of victims that were evicted in vain, by cause.
    """

    times: int = 0
    until: float = 0.0
    noted: float = 0.0
    cause: str = ""
    victims: dict[str, set[Hashable]] = field(default_factory=dict)

    def note(self, victims: Hashable, cause: str, now: float) -> None:
        """Victims were evicted in vain once more."""
        self.times += 1
        self.until = now + min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.times - 1, 16), LONGEST_PAUSE_SECONDS)
        self.noted, self.cause = now, cause
        if cause:
            known = self.victims.pop(cause, set())
            self.victims[cause] = {*list(known)[-_MOST_SETS:], victims}
            for oldest in list(self.victims)[:-_MOST_CAUSES]:
                del self.victims[oldest]


@dataclass(slots=True)
class _OfNamespace:
    """The memory of one namespace.

    Attributes:
        in_vain: by kind of pod.
        evicted: the number of pods evicted for a pod, by uid.
        made: when pods were evicted for its pods, in the last minute; each with their number.
        suffered: when its own pods were evicted, in the same way.
    """

    in_vain: dict[Hashable, _InVain] = field(default_factory=dict)
    evicted: Recent[int] = field(default_factory=lambda: Recent(_MOST_PODS))
    made: deque[tuple[float, int]] = field(default_factory=deque)
    suffered: deque[tuple[float, int]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class _Planned:
    """Evictions that may be made soon.

    Attributes:
        namespace: of the preemptor.
        number: the most victims.
        victims: the most victims of each namespace.
        until: by the clock, when they do not count any more.
    """

    namespace: str
    number: int
    victims: Mapping[str, int]
    until: float


Option = tuple[Sequence[Pod], int]
"""Victims of a node: those that are known, and the number of all. Pods without devices may not be known."""


class EvictionLimits:
    """Says who may evict now. May be asked in threads.

    Args:
        caps: set by operators.
        clock: seconds, from any point.
        refused: told of each refusal.
    """

    def __init__(
        self, caps: EvictionCaps, clock: Callable[[], float], refused: Callable[[RefusedBy], None] = lambda _: None
    ) -> None:
        self._caps = caps
        self._clock = clock
        self._refused = refused
        self._known: Recent[_OfNamespace] = Recent(MOST_NAMESPACES)
        self._planned: dict[str, _Planned] = {}
        self._lock = Lock()
        self._now = 0.0

    def pause(self, pod: Pod, snapshot: Snapshot) -> float:
        """Seconds until a pod may evict others, whoever they are; 0: now. Choosing victims costs more than this."""
        with self._alone():
            paused = self._paused(pod.namespace, kind_of(pod, snapshot))
            found = paused or self._over_cap(pod, ((), 1), self._planned_for_others(pod))
        return 0.0 if found is None else found.seconds

    def refusal(self, pod: Pod, option: Option, snapshot: Snapshot) -> EvictionRefusal | None:
        """Why these victims may not be evicted for a pod now; None if they may. The snapshot has their claims."""
        kind = kind_of(pod, snapshot)
        kinds = self._kinds_of_victims(pod, kind, (option,), snapshot)
        with self._alone():
            return self._refusals(pod, kind, (option,), kinds)[0]

    def admit(
        self, pod: Pod, options: Mapping[str, Option], snapshot: Snapshot
    ) -> tuple[Mapping[str, Option], Sequence[EvictionRefusal]]:
        """Plan those of the evictions that may be made now; returns them, and why others may not be made.

        The kinds of thousands of victims take a tenth of a second, for which nobody else waits.

        Args:
            pod: the others are evicted for it.
            options: by node.
            snapshot: has the claims of all pods.
        """
        kind, sets = kind_of(pod, snapshot), tuple(options.values())
        kinds = self._kinds_of_victims(pod, kind, sets, snapshot)
        with self._alone():
            refusals = self._refusals(pod, kind, sets, kinds)
            allowed = {node: options[node] for node, refusal in zip(options, refusals, strict=True) if refusal is None}
            if allowed:
                self._planned[pod.uid] = self._plan_of(pod, allowed.values())
        return allowed, [each for each in refusals if each is not None]

    def count_refused(self, refusal: EvictionRefusal) -> None:
        """A pod has to wait because of a refusal."""
        self._refused(refusal.by)

    def plan(self, pod: Pod, options: Collection[Option]) -> None:
        """One of these evictions may be made soon for a pod. Until then, the worst of them counts for the caps."""
        with self._alone():
            self._planned[pod.uid] = self._plan_of(pod, options)

    def drop_plan(self, uid: str) -> None:
        """Forget what was planned for the pod of this uid."""
        with self._alone():
            self._planned.pop(uid, None)

    def note_evicted(self, pod: Pod, option: Option, snapshot: Snapshot) -> Evicted:
        """Pods were evicted for a pod; returns what is to be told when it is known what they were good for."""
        victims, number = option
        with self._alone():
            self._planned.pop(pod.uid, None)
            now, own = self._now, self._of_namespace(pod.namespace)
            own.evicted.keep(pod.uid, number + (own.evicted.find(pod.uid) or 0))
            own.made.append((now, number))
            for namespace, count in Counter(each.namespace for each in victims).items():
                self._of_namespace(namespace).suffered.append((now, count))
        return Evicted.of(pod, victims, snapshot)

    def note_in_vain(self, evicted: Evicted, cause: str) -> None:
        """Pods were evicted in vain: the pod is not bound with what they held.

        Args:
            evicted: what `note_evicted` has returned.
            cause: why the last bind of the pod was refused; empty if that is not known. The text is the same if the
                cause is the same.
        """
        with self._alone():
            now, own = self._now, self._of_namespace(evicted.namespace)
            _forget_old(own, now)
            if len(own.in_vain) >= MOST_KINDS and evicted.kind not in own.in_vain:
                del own.in_vain[min(own.in_vain, key=lambda each: own.in_vain[each].until)]
            own.in_vain.setdefault(evicted.kind, _InVain()).note(evicted.victims, cause, now)

    def note_served(self, evicted: Evicted) -> None:
        """The pod is bound with what its victims held: pods of its kind need no pause any more."""
        with self._alone():
            found = self._known.find(evicted.namespace)
            if found is not None:
                found.in_vain.pop(evicted.kind, None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within, no other thread changes what is known. A thread may wait in the clock for a turn of its search.

        So the clock is read before.
        """
        now = self._clock()
        with self._lock:
            self._now = now
            yield

    def _of_namespace(self, namespace: str) -> _OfNamespace:
        found = self._known.find(namespace)
        return self._known.keep(namespace, _OfNamespace()) if found is None else found

    def _paused(self, namespace: str, kind: Hashable) -> EvictionRefusal | None:
        own, now = self._known.find(namespace), self._now
        if own is None or not own.in_vain:
            return None
        _forget_old(own, now)
        known = own.in_vain.get(kind)
        if known is not None:
            reason = f"evictions for pods like this were in vain {known.times} times in a row"
            return EvictionRefusal(RefusedBy.PAUSE, reason, known.until - now) if known.until > now else None
        pauses = [each.until for each in own.in_vain.values() if each.until > now]
        if len(pauses) < MOST_KINDS:
            return None
        reason = f"{len(pauses)} other kinds of pods of namespace {namespace} have evicted in vain"
        return EvictionRefusal(RefusedBy.PAUSE, reason, min(pauses) - now)

    def _plan_of(self, pod: Pod, options: Collection[Option]) -> _Planned:
        victims = Counter[str]()
        for known, _ in options:
            victims |= Counter(each.namespace for each in known)
        number = max((number for _, number in options), default=0)
        return _Planned(pod.namespace, number, victims, self._now + _PLANNED_SECONDS)

    def _planned_for_others(self, pod: Pod) -> _Planned:
        """All that is planned for other pods: the number for those of the pod's namespace, and the victims."""
        now = self._now
        self._planned = {uid: each for uid, each in self._planned.items() if each.until > now}
        others = [each for uid, each in self._planned.items() if uid != pod.uid]
        victims = dict[str, int]()
        for each in others:
            for namespace, count in each.victims.items():
                victims[namespace] = victims.get(namespace, 0) + count
        number = sum(each.number for each in others if each.namespace == pod.namespace)
        return _Planned(pod.namespace, number, victims, now)

    def _kinds_of_victims(
        self, pod: Pod, kind: Hashable, options: Collection[Option], snapshot: Snapshot
    ) -> Sequence[Hashable]:
        """The kinds of the victims of each option, if some were evicted in vain for pods of a kind; else None for each.

        It takes no lock for the long part. What is noted meanwhile begins with a pause.
        """
        with self._alone():
            known = self._in_vain_for(pod.namespace, kind)
            is_needed = known is not None and bool(known.victims.get(known.cause))
        if not is_needed:
            return [None] * len(options)
        return [Evicted.of(pod, victims, snapshot).victims for victims, _ in options]

    def _refusals(
        self, pod: Pod, kind: Hashable, options: Collection[Option], kinds: Sequence[Hashable]
    ) -> Sequence[EvictionRefusal | None]:
        """Why the victims of each option may not be evicted for a pod now. ``kinds``: of the victims of each."""
        if paused := self._paused(pod.namespace, kind):
            return [paused] * len(options)
        planned = self._planned_for_others(pod)
        return [
            self._in_vain(pod.namespace, kind, victims) or self._over_cap(pod, option, planned)
            for option, victims in zip(options, kinds, strict=True)
        ]

    def _in_vain_for(self, namespace: str, kind: Hashable) -> _InVain | None:
        own = self._known.find(namespace)
        return None if own is None else own.in_vain.get(kind)

    def _in_vain(self, namespace: str, kind: Hashable, victims: Hashable) -> EvictionRefusal | None:
        known = self._in_vain_for(namespace, kind)
        if known is None or victims is None or victims not in known.victims.get(known.cause, ()):
            return None
        reason, until = f"pods like these were evicted in vain: {known.cause}", known.noted + REMEMBERED_SECONDS
        return EvictionRefusal(RefusedBy.SAME_VICTIMS, reason, until - self._now)

    def _over_cap(self, pod: Pod, option: Option, planned: _Planned) -> EvictionRefusal | None:
        """Why a cap is too low for an option. ``planned``: for other pods."""
        (victims, number), now, caps, own = option, self._now, self._caps, self._of_namespace(pod.namespace)
        if (own.evicted.find(pod.uid) or 0) + number > caps.for_pod:
            reason = f"at most {caps.for_pod} pods are evicted for one pod"
            return EvictionRefusal(RefusedBy.POD, reason, REMEMBERED_SECONDS)
        if wait := _seconds_until_room(own.made, number + planned.number, caps.for_namespace, now):
            reason = f"at most {caps.for_namespace} pods are evicted in a minute for pods of namespace {pod.namespace}"
            return EvictionRefusal(RefusedBy.PREEMPTORS, reason, wait)
        for namespace, count in Counter(each.namespace for each in victims).items():
            total = count + planned.victims.get(namespace, 0)
            if wait := _seconds_until_room(self._of_namespace(namespace).suffered, total, caps.of_namespace, now):
                reason = f"at most {caps.of_namespace} pods of one namespace are evicted in a minute"
                return EvictionRefusal(RefusedBy.VICTIMS, reason, wait)
        return None


def kind_of(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Equal for pods of one namespace and controller that ask for as many devices of the same classes.

    So a pod that its controller makes again is of the kind of its predecessor, and so are all pods without a controller
    that ask for the same. Selectors and priorities do not count: a pod that changes them stays of its kind.
    """
    specs = (_spec_of(pod, each, snapshot) for each in pod.claims)
    requests = (request for spec in specs if spec is not None for request in spec.requests)
    asked = Counter((way.device_class, way.count) for each in requests for way in each.alternatives[:1])
    extended = Counter(each for container in pod.containers for each in container.requests)
    return pod.controller, frozenset(asked.items()), frozenset(extended.items())


def _spec_of(pod: Pod, entry: PodClaim, snapshot: Snapshot) -> ClaimSpec | None:
    """What a claim of a pod asks for; None if the claim and its template are gone."""
    made = claim_from_template(pod, entry, entry.name, snapshot)
    if made is None:
        name = entry.claim_name or pod.claim_statuses.get(entry.name) or ""
        made = snapshot.claims.get(ObjectKey(pod.namespace, name))
    return None if made is None else made.claim.spec


def _seconds_until_room(evicted: deque[tuple[float, int]], more: int, cap: int, now: float) -> float:
    """Seconds until more pods may be evicted under a cap for a minute; 0: now. Forgets what is older."""
    while evicted and evicted[0][0] <= now - _MINUTE:
        evicted.popleft()
    total = more + sum(number for _, number in evicted)
    if total <= cap:
        return 0.0
    for time, number in evicted:
        total -= number
        if total <= cap:
            return time + _MINUTE - now
    return _MINUTE


def _forget_old(own: _OfNamespace, now: float) -> None:
    for kind in [kind for kind, each in own.in_vain.items() if now > each.noted + REMEMBERED_SECONDS]:
        del own.in_vain[kind]
