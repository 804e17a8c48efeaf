"""Second looks in the background: the second engine judges each allocation that appears, in a share of the time.

The claims of a cluster are looked at in fair turns of their namespaces.
"""

import collections
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import islice
from typing import Final, TypeAlias

import structlog
from prometheus_client import Counter

from allocator import AllocationResult, Selectors
from allocator.audit import Finding, SecondEngine, SecondLook, SecondOpinion
from allocator.tools import printable
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.framework.handle import Handle
from extender.framework.problem import Look, Problem
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.tools.fairness import FairMemory, Turns, one_of_each
from extender.tools.offload import Offload

EVALUATION_SECONDS: Final = 1.0
"""The longest evaluation by our own engine."""


@dataclass(slots=True)
class Tally:
    """The results of second looks.

    Attributes:
        results: devices by result, as `SecondLook` has it.
        reasons: why devices were not checked, with their numbers.
        findings: the selectors about which the engines disagree.
    """

    results: collections.Counter[str] = field(default_factory=collections.Counter)
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, look: SecondLook) -> None:
        """Count a look at one device."""
        self.results[look.result] += 1
        self.findings.extend(look.findings)
        if look.not_checked:
            self.reasons[look.not_checked] += 1

    def add_skipped(self, devices: int, why: str) -> None:
        """Count devices that the second engine did not get to."""
        if devices:
            self.results["not_checked"] += devices
            self.reasons[why] += devices


class SecondLooks:
    """Looks at the devices of claims.

    Args:
        selectors: our own engine.
        engine: the second engine.
        clock: measures durations, in seconds.
    """

    def __init__(self, selectors: Selectors, engine: SecondEngine, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = 0.0
        self._opinion = SecondOpinion(selectors, engine, lambda: clock() > self._until)
        self._turns = Turns(clock)

    def at(
        self, claims: Iterable[ClaimObject], snapshot: Snapshot, seconds: float
    ) -> Iterator[tuple[ClaimObject, list[SecondLook]]]:
        """Yield claims with the looks at their devices, in fair turns, until the time is up."""
        end = self._clock() + seconds
        for claim in self._turns.ordered(claims, lambda each: each.claim.namespace):
            if self._clock() > end:
                return
            with self._turns.of(claim.claim.namespace):
                self._until = self._clock() + EVALUATION_SECONDS
                allocation = claim.claim.allocation
                wanted = {each.device for each in allocation.results} if allocation is not None else set()
                devices = snapshot.inventory.published(wanted)
                looks = list(self._opinion.looks(claim.claim, snapshot.classes, devices.get))
            yield claim, looks


MOST_DISAGREEMENTS: Final = 256
"""The most claims with a disagreement that are kept, in shares of their namespaces."""


class Disagreements:
    """Disagreements of the engines, by claim: kept as long as the claim is there, and told as problems."""

    def __init__(self) -> None:
        self._findings: FairMemory[Sequence[Finding]] = FairMemory(MOST_DISAGREEMENTS)

    def note(self, claim: ClaimObject, findings: Sequence[Finding]) -> None:
        """Keep what the latest look at a claim has found, instead of what an earlier one has."""
        self._findings.pop(claim.claim.uid)
        if findings:
            self._findings.keep(claim.claim.namespace, claim.claim.uid, findings)

    def forget_gone(self, snapshot: Snapshot) -> None:
        """Forget the claims that are no more, or have no devices any more."""
        for uid in list(self._findings):
            claim = snapshot.claim(uid)
            if claim is None or claim.claim.allocation is None:
                self._findings.pop(uid)

    def problems(self, look: Look) -> Iterator[Problem]:
        """One for each selector of an allocated device about which the engines disagree."""
        cost = "the device may not be what the claim asks for"
        advice = "see whether the device suits; report the selector and the device's attributes to dra-extender"
        for uid, findings in self._findings.items():
            claim = look.snapshot.claim(uid)
            if claim is None:
                continue
            for finding in findings:
                text = f"{finding.device}: {finding.message}"
                yield Problem("engines-disagree", CLAIMS.kind, claim.key, text, cost, advice)


MOST: Final = 4_096
"""The most claims that wait for a look, and that are known to be looked at, in shares of their namespaces each."""

LOOK_SECONDS: Final = 0.02
"""How long a turn takes. A look at one claim that has begun is brought to its end."""

SHARE: Final = 0.02
"""The share of the time that looks take: after a turn, the next one waits 50 times as long."""

FIRST_SECONDS: Final = 30.0
"""After the start of a service, others have the time first: to make the second engine holds up each thread."""

logger = structlog.get_logger()

_Looked: TypeAlias = list[tuple[ClaimObject, list[SecondLook]]]


class _Waiting(FairMemory[int]):
    """The claims that wait for a look: uid to number of devices. Those that are forgotten are counted as skipped."""

    def __init__(self, skipped: Callable[[int], None]) -> None:
        super().__init__(MOST)
        self._skipped = skipped

    def forget(self, uid: str) -> None:
        """Forget a claim for want of room."""
        devices = self.get(uid) or 0
        super().forget(uid)
        self._skipped(devices)


_SORTED_AT_ONCE: Final = 1_000


class SecondOpinions(BackgroundTask):
    """Looks at the claims that were allocated since it looked last.

    Args:
        state: the cluster.
        selectors: our own engine.
        make_engine: makes the second engine, with the first look.
        clock: measures durations, in seconds. A long look waits in it for its turn.
        off_loop: where looks run.
        counted: counts devices by result: that of a look, or ``skipped`` for want of room.
        disagreements: what the engines disagree about; they are told as problems.
    """

    def __init__(
        self,
        state: ClusterState,
        selectors: Selectors,
        make_engine: Callable[[], SecondEngine],
        clock: Callable[[], float],
        off_loop: Offload,
        counted: Callable[[str, int], None],
        disagreements: Disagreements,
    ) -> None:
        self._state = state
        self._selectors = selectors
        self._make_engine = make_engine
        self._clock = clock
        self._off_loop = off_loop
        self._counted = counted
        self._disagreements = disagreements
        self._waiting = _Waiting(partial(counted, "skipped"))
        self._seen: FairMemory[AllocationResult] = FairMemory(MOST)
        self._version: int | None = None
        self._again = clock() + FIRST_SECONDS
        self._looks: SecondLooks | None = None
        self._latest = ""
        """The namespace of the latest look."""

    @property
    def idle_seconds(self) -> float:
        """Until claims change, or until the next look at those that wait."""
        is_idle = not self._waiting and self._version == self._state.snapshot.version
        return UNTIL_NEWS if is_idle else self._again - self._clock()

    async def tick(self) -> None:
        """Look at some of the allocations that have appeared, and at the rest later."""
        began = self._clock()
        if self._state.not_ready or began < self._again:
            return
        snapshot = self._state.snapshot
        keys = None if self._version is None else self._state.since(self._version).keys(Topic.CLAIM)
        self._version = snapshot.version
        self._disagreements.forget_gone(snapshot)
        if keys is not None and not keys and not self._waiting:
            return
        looked = await self._off_loop(partial(self._turn, keys, snapshot))
        self._record_looks(looked)
        self._again = self._clock() + max(1.0, (self._clock() - began) / SHARE if looked else 0.0)

    def _turn(self, keys: Iterable[ObjectKey] | None, snapshot: Snapshot) -> _Looked:
        """Find new allocations, and look at some of those that wait. At first, all claims are compared."""
        self._queue_allocated(keys, snapshot)
        for uid in [uid for uid in self._waiting if snapshot.claim(uid) is None]:
            self._waiting.pop(uid)
        claims = [claim for uid in self._in_turns() if (claim := snapshot.claim(uid)) is not None]
        return self._looked(claims, snapshot) if claims else []

    def _in_turns(self) -> Iterator[str]:
        """The uids of the claims that wait: one of each namespace, from the one after the latest on, and again."""
        names = sorted(self._waiting.namespaces)
        start = bisect_right(names, self._latest)
        queues = {each: [uid for uid, _ in self._waiting.of_namespace(each)] for each in names[start:] + names[:start]}
        return one_of_each(queues)

    def _queue_allocated(self, keys: Iterable[ObjectKey] | None, snapshot: Snapshot) -> None:
        """Let the claims wait whose allocations have appeared; ``keys``: those that have changed, None: not known."""
        for key in self._in_order(snapshot.claims) if keys is None else keys:
            self._clock()  # other work has its turns
            claim = snapshot.claims.get(key)
            if claim is not None and claim.claim.allocation is not None:
                uid = claim.claim.uid
                if self._seen.get(uid) != claim.claim.allocation and uid not in self._waiting:
                    self._waiting.keep(claim.claim.namespace, uid, len(claim.claim.allocation.results))

    def _in_order(self, keys: Iterable[ObjectKey]) -> Iterator[ObjectKey]:
        """The sorted keys. One sort of 20,000 keys would keep all other threads waiting for 50 to 100 ms."""
        left, pieces = iter(keys), list[list[ObjectKey]]()
        while piece := list(islice(left, _SORTED_AT_ONCE)):
            pieces.append(sorted(piece))
            self._clock()  # other work has its turns
        return merge(*pieces)

    def _looked(self, claims: Iterable[ClaimObject], snapshot: Snapshot) -> _Looked:
        """The claims that a turn has looked at, each with what came of it."""
        if self._looks is None:
            self._looks = SecondLooks(self._selectors, self._make_engine(), self._clock)
        return list(self._looks.at(claims, snapshot, LOOK_SECONDS))

    def _record_looks(self, looked: _Looked) -> None:
        for claim, looks in looked:
            self._waiting.pop(claim.claim.uid)
            self._latest = claim.claim.namespace
            if claim.claim.allocation is not None:
                self._seen.keep(claim.claim.namespace, claim.claim.uid, claim.claim.allocation)
            for look in looks:
                self._counted(look.result, 1)
            findings = [finding for look in looks for finding in look.findings]
            self._disagreements.note(claim, findings)
            for finding in findings:
                logger.warning("two engines disagree about a selector", problem=printable(str(finding)))


def tasks(disagreements: Disagreements, handle: Handle) -> Sequence[BackgroundTask]:
    """The background task of second looks, with its metrics; disagreements are noted."""
    devices = Counter(
        "dra_extender_second_opinion_devices",
        "Allocated devices whose selectors a second engine for CEL has judged, by result.",
        ("result",),
        registry=handle.registry,
    )
    for result in ("agree", "disagree", "not_checked", "skipped"):
        devices.labels(result)

    def counted(result: str, number: int) -> None:
        devices.labels(result).inc(number)

    make = partial(_cel_python, handle.clock)
    looks = (handle.state, handle.solver.selectors, make, handle.clock, handle.in_background)
    return [SecondOpinions(*looks, counted, disagreements)]


def _cel_python(clock: Callable[[], float]) -> SecondEngine:
    from extender.plugins.second_opinion.engine import CelPython  # noqa: PLC0415 - only who looks needs cel-python

    return CelPython(clock)
