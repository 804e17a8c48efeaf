"""The disagreements of two engines for CEL about allocated devices: kept as long as their claims, told as problems."""

from collections.abc import Iterator, Sequence
from typing import Final

from allocator.audit import Finding
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.framework.problem import Look, Problem
from extender.kube.resources import CLAIMS
from extender.tools.fairness.fair_memory import FairMemory

MOST: Final = 256
"""The most claims with a disagreement that are kept, in shares of their namespaces."""


class Disagreements:
    """What the engines disagree about, by claim."""

    def __init__(self) -> None:
        self._findings: FairMemory[Sequence[Finding]] = FairMemory(MOST)

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
