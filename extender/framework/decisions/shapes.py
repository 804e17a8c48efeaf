"""The shapes of pods: how often each is asked, and what a placement takes from them.

Each pod counts once, when it is first looked at. Old shapes fade. What is known is published as a value, which many
decisions use: a new value costs the usable room of every node anew.

Calls may come from several threads: a value is replaced in one assignment, and counts are copied in one step before
they are iterated; at worst a pod does not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import ceil
from operator import itemgetter
from typing import Final

from allocator import Claim, DeviceClass, Features, Request, SearchLimitError, Selectors
from allocator.cel import CompileError
from allocator.policies import NOTHING_LEFT, Merit, Needs, Policy, RoomByCpu, Shape, UsableRoom, fragmentation
from allocator.search import SearchBudget
from allocator.tools import Recent
from extender.cluster.objects.pods import Pod
from extender.framework.decisions.verdict import TOO_LATE, Verdict

_PODS: Final = 20_000
"""After this number of pods, all counts are halved."""

_SHAPES: Final = 500
"""The most shapes that are counted; those that are asked least often are dropped."""

_LONGEST_SELECTORS: Final = 500
"""The most characters of the selectors of a learned shape. The compiled selectors of all shapes are remembered."""

_LONGEST: Final = 5_000
"""The most characters that the requests of a learned shape have as text."""

_GROWTH: Final = 1.25
"""Counts are published when the number of pods has grown by this factor."""

_MOVED: Final = 0.05
"""A new value is published if the shares of the shapes have moved by this in sum."""

_WEIGHERS: Final = 32
"""The most amounts of CPU for which losses are remembered."""

_LOSSES: Final = 5_000
"""The most losses that are remembered for one amount of CPU."""

_LOSS_DIGITS: Final = 3
"""Losses are in thousandths of a device: coarser ones are equal on many nodes, where best-fit then decides."""

_FREE_DIGITS: Final = 2
"""What is free is in percent, so that thousands of nodes differ little."""

_REPLACED: Final = frozenset({"loss", "free", "before", "after"})
_OTHER_FACTS: Final = itemgetter(*(place for place, name in enumerate(Merit._fields) if name not in _REPLACED))
"""The facts of a merit that stay when a loss is added."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """The shapes that are known at one moment.

    Attributes:
        policy: reads the attributes that the shapes read.
        shares: the share of each shape; their sum is 1.
        classes: by name, as the selectors of the shapes were read.
        weighers: by CPU.
    """

    policy: Policy
    usable: UsableRoom
    shares: Mapping[Shape, float]
    classes: Mapping[str, DeviceClass]
    weighers: "Recent[Weigher]" = field(default_factory=lambda: Recent(_WEIGHERS))


class Shapes:
    """The shapes of pods, with how often each is asked for.

    Args:
        selectors: evaluates the selectors of the shapes.
        features: what may be allocated.
        weights: how often each shape is asked, in any unit; nothing is learned then. None: it is learned.
    """

    def __init__(self, selectors: Selectors, features: Features, weights: Mapping[Shape, float] | None = None) -> None:
        self._learns = weights is None
        self._counts = dict(weights or {})
        self._pods = sum(self._counts.values())
        self._next = 0.0
        self._selectors = selectors
        self._features = features
        self._seen: Recent[str] = Recent(2 * _PODS)
        self._known = _Known(fragmentation(), UsableRoom({}, Needs({}, selectors, features)), {}, {})

    @property
    def policy(self) -> Policy:
        """The policy that knows what the shapes read of devices."""
        return self._known.policy

    @property
    def shares(self) -> Mapping[Shape, float]:
        """The share of each shape in all pods that count."""
        return self._known.shares

    def still(self) -> "Shapes":
        """A copy that learns nothing more: for questions, which change no later score."""
        found = copy(self)
        found._counts = self._counts.copy()
        found._learns = False
        return found

    def still_but_for(self, pod: Pod) -> "Shapes":
        """A copy that learns of this pod alone, as filter would: an explanation says what filter would say."""
        found = self.still()
        if self._learns and self._seen.find(pod.uid) is None:
            found._learns, found._seen = True, Recent(1)
        return found

    def see(self, pod: Pod, claims: Sequence[Claim], classes: Mapping[str, DeviceClass]) -> None:
        """Count a pod that asks for devices, unless it was counted before.

        Args:
            pod: a pod that waits for a node.
            claims: the claims of the pod that must be allocated.
            classes: all device classes, by name.
        """
        requests = tuple([request for claim in claims for request in claim.spec.requests])
        is_new = self._is_new(pod, asks=bool(requests))
        is_due = self._pods + is_new >= self._next or self._known.classes is not classes
        if is_new:
            self._seen.keep(pod.uid, pod.uid)
            self._count(Shape(requests, pod.cpu))
        if is_due:
            self._publish(classes)

    def is_due(self, pod: Pod, classes: Mapping[str, DeviceClass], *, asks: bool) -> bool:
        """Whether `see` may publish a value for a pod, which may take long. Otherwise it only counts the pod.

        Args:
            pod: a pod that waits for a node.
            classes: all device classes, by name.
            asks: whether a claim of the pod may have to be allocated.
        """
        return self._pods + self._is_new(pod, asks=asks) >= self._next or self._known.classes is not classes

    def _is_new(self, pod: Pod, *, asks: bool) -> bool:
        """Whether a pod is to be counted."""
        return asks and self._learns and self._seen.find(pod.uid) is None

    def weighing(self, cpu: int, budget: SearchBudget) -> "Weighing":
        """Adds losses to the verdicts for pods that request this CPU.

        Args:
            cpu: in thousandths of a core.
            budget: the time for it.
        """
        known = self._known
        return Weighing(known.weighers.find(cpu) or known.weighers.keep(cpu, Weigher(known.usable, cpu)), budget)

    def _is_modest(self, requests: Sequence[Request]) -> bool:
        """Whether requests may be learned. All pods pay for what is learned, whoever has asked for it."""
        texts = {text for request in requests for way in request.alternatives for text in way.selectors}
        if sum(map(len, texts)) > _LONGEST_SELECTORS or len(repr(requests)) > _LONGEST:
            return False
        try:
            return not any(self._selectors.is_costly(text) for text in texts)
        except CompileError:
            return False

    def _count(self, shape: Shape) -> None:
        count = self._counts.get(shape, 0.0)
        if not count and not self._is_modest(shape.requests):
            return
        self._counts[shape] = count + 1
        self._pods += 1
        if self._pods > _PODS or len(self._counts) > _SHAPES:
            heaviest = sorted(self._counts.copy().items(), key=lambda each: each[1], reverse=True)[: _SHAPES // 2]
            self._counts = {each: count / 2 for each, count in heaviest}
            self._pods = sum(self._counts.values())
            self._next = 0.0

    def _publish(self, classes: Mapping[str, DeviceClass]) -> None:
        self._next = max(1.0, self._pods * _GROWTH)
        shares = {shape: count / self._pods for shape, count in self._counts.copy().items()}
        before = self._known.shares
        moved = sum(abs(shares.get(each, 0.0) - before.get(each, 0.0)) for each in {*shares, *before})
        if moved > _MOVED or self._known.classes is not classes:
            self._known = self._published(shares, classes)

    def _published(self, shares: Mapping[Shape, float], classes: Mapping[str, DeviceClass]) -> _Known:
        reads = {name for shape in shares for name in self._reads(shape.requests, classes)}
        usable = UsableRoom(shares, Needs(classes, self._selectors, self._features))
        return _Known(fragmentation(sorted(reads)), usable, shares, classes)

    def _reads(self, requests: Sequence[Request], classes: Mapping[str, DeviceClass]) -> set[str]:
        """The attributes that selectors of requests read."""
        found: set[str] = set()
        for way in (each for request in requests for each in request.alternatives):
            device_class = classes.get(way.device_class)
            for text in (*(device_class.selectors if device_class else ()), *way.selectors):
                try:
                    found.update(self._selectors.reads(text).attributes)
                except CompileError:
                    continue
        return found


class Weigher:
    """Adds losses to verdicts, and leaves out what the policy does not compare: so nodes have few distinct verdicts.

    Attributes:
        of_plenty: verdict to the CPU from which on all nodes with it have the same loss, and to it with that loss.

    Args:
        usable: for the shapes at one moment.
        cpu: the CPU that the pod requests, in thousandths of a core.
    """

    def __init__(self, usable: UsableRoom, cpu: int) -> None:
        self._usable = usable
        self._cpu = cpu
        self._by_cpu: Recent[Verdict] = Recent(_LOSSES)
        self._by_loss: Recent[Verdict] = Recent(_LOSSES)
        self.of_plenty: Recent[tuple[int, Verdict]] = Recent(_LOSSES)

    def of(self, verdict: Verdict, left: int | None, budget: SearchBudget) -> Verdict:
        """The verdict with the loss on a node where this CPU is left; None: shapes find as much as they can use.

        Args:
            verdict: without a loss.
            left: in thousandths of a core.
            budget: the time for it.

        Raises:
            SearchLimitError: the time is used up.
        """
        found, merit = self.known(verdict, left), verdict.merit
        if found is not None or merit is None:
            return found or verdict
        before, after = self._usable.table(merit.before, budget), self._usable.table(merit.after, budget)
        return self._compared(verdict, merit, left, before, after)

    def known(self, verdict: Verdict, left: int | None) -> Verdict | None:
        """Like `of`, if all that it needs is remembered: that takes a few microseconds at most."""
        merit = verdict.merit
        if merit is None:
            return verdict
        plenty = self.of_plenty.find(verdict)
        if plenty is not None and (left is None or left >= plenty[0]):
            return plenty[1]
        found = self._by_cpu.find((verdict, left))
        if found is not None:
            return found
        before, after = self._usable.known(merit.before), self._usable.known(merit.after)
        return None if before is None or after is None else self._compared(verdict, merit, left, before, after)

    def _compared(
        self, verdict: Verdict, merit: Merit, left: int | None, before: RoomByCpu, after: RoomByCpu
    ) -> Verdict:
        """The verdict with the loss between two leftovers, remembered."""
        if self.of_plenty.find(verdict) is None:
            enough = ceil(max(before.cpus[-1], after.cpus[-1] + self._cpu))
            plenty = self._shared(verdict, merit, self._loss(before, after, None))
            self.of_plenty.keep(verdict, (enough, plenty))
            if left is None or left >= enough:
                return plenty
        return self._by_cpu.keep((verdict, left), self._shared(verdict, merit, self._loss(before, after, left)))

    def _shared(self, verdict: Verdict, merit: Merit, loss: float) -> Verdict:
        """The verdict with a loss. Nodes that are equal in what the policy compares share it."""
        loss, free = round(loss, _LOSS_DIGITS), round(merit.free, _FREE_DIGITS)
        key = _OTHER_FACTS(merit), loss, free, verdict.lasting
        found = self._by_loss.find(key)
        if found is None:
            compared = merit._replace(loss=loss, free=free, before=NOTHING_LEFT, after=NOTHING_LEFT)
            found = self._by_loss.keep(key, Verdict(compared, lasting=verdict.lasting))
        return found

    def _loss(self, before: RoomByCpu, after: RoomByCpu, left: int | None) -> float:
        if left is not None and left < self._cpu:
            # kube-scheduler rejects this node. A simulation does not reject it, so it must look worse than others.
            return before.at(None) + 1.0
        return before.at(left) - after.at(None if left is None else left - self._cpu)


@dataclass(frozen=True, slots=True)
class Weighing:
    """Adds losses to verdicts, as long as there is time."""

    weigher: Weigher
    budget: SearchBudget

    def of_each(self, verdicts: Iterable[Verdict], left: Iterable[int | None]) -> list[Verdict]:
        """Each verdict with the loss on its node; ``left``: as `Weigher.of`. `TOO_LATE` if the time is used up.

        May take long.
        """
        known, of, of_plenty = self.weigher.known, self._of, self.weigher.of_plenty.get
        found: list[Verdict] = []
        for each, cpu in zip(verdicts, left, strict=True):
            plenty = of_plenty(each)
            if plenty is not None and (cpu is None or cpu >= plenty[0]):
                found.append(plenty[1])
            else:
                found.append(known(each, cpu) or of(each, cpu))
        return found

    def _of(self, verdict: Verdict, left: int | None) -> Verdict:
        try:
            return self.weigher.of(verdict, left, self.budget)
        except SearchLimitError:
            return TOO_LATE
