"""Second looks at the claims of a cluster, in fair turns of their namespaces."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from allocator import Selectors
from allocator.audit import Finding, SecondEngine, SecondLook, SecondOpinion
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.tools.fairness import Turns

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

    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
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
