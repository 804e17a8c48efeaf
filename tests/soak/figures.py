"""What a soak has measured, in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

from tests.kit.measure import MEGABYTE, percentile
from tests.soak.plan import Plan

MOST_GROWTH: Final = 1.25
"""Memory in the end, as a ratio to that after the warm-up: more is no longer flat.

An extender of 150 MB has 20 MB for the latest answers about pods, which fill up during a soak (docs/performance.md).
"""

WARM_SECONDS: Final = 60.0
"""After the start of a process, until its memory counts."""

END_SECONDS: Final = 30.0
"""Memory at both ends is the median of this time."""


@dataclass(slots=True)
class Memory:
    """The memory of the extender since its last start.

    Attributes:
        samples: seconds since the start, and bytes.
    """

    pid: int = 0
    samples: list[tuple[float, int]] = field(default_factory=list)

    @property
    def ends(self) -> tuple[int, int] | None:
        """Bytes after the warm-up and in the end; None if the time was too short."""
        warm = [each for each in self.samples if each[0] >= WARM_SECONDS]
        if not warm or warm[-1][0] - warm[0][0] < 2 * END_SECONDS:
            return None
        first = [size for second, size in warm if second < warm[0][0] + END_SECONDS]
        last = [size for second, size in warm if second > warm[-1][0] - END_SECONDS]
        return median_low(first), median_low(last)


@dataclass(slots=True)
class Figures:
    """Of one soak.

    Attributes:
        machine: how busy it was, and how fast.
        done: how often what has happened.
        waits: seconds, of each pod that has got a node.
        wrong: everything that is wrong in the end.
        seconds: of all of it.
    """

    plan: Plan
    machine: str = ""
    done: Mapping[str, int] = field(default_factory=dict)
    waits: Sequence[float] = ()
    ended: int = 0
    most_pods: int = 0
    memory: Memory = field(default_factory=Memory)
    peak: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def judge(self) -> None:
        """Memory that has grown is wrong."""
        if (ends := self.memory.ends) and ends[1] > ends[0] * MOST_GROWTH:
            self.wrong.append(f"memory has grown to {ends[1] / ends[0]:.2f} of what it was after the warm-up")

    def lines(self) -> Iterator[str]:
        """For people."""
        plan = self.plan
        yield f"{plan.nodes} nodes with {plan.devices} devices each, seed {plan.seed}; {self.seconds:.0f} s in all"
        yield self.machine
        yield ", ".join(f"{number} x {name}" for name, number in sorted(self.done.items()))
        yield f"pods: {len(self.waits):,} got a node, {self.ended:,} of them ended; {self.most_pods:,} at most at once"
        if self.waits:
            p50, p99 = (percentile(self.waits, each) for each in (50, 99))
            yield f"until a node: p50 {p50:.1f} s, p99 {p99:.1f} s, longest {max(self.waits):.1f} s"
        yield f"memory of the extender: {self._memory()}, {self.peak / MEGABYTE:.0f} MB at most"
        yield from (f"WRONG: {each}" for each in self.wrong)
        yield "nothing is lost, held twice or left" if not self.wrong else f"{len(self.wrong)} findings"

    def _memory(self) -> str:
        ends = self.memory.ends
        if ends is None:
            return "not followed long enough"
        first, last = ends
        span = self.memory.samples[-1][0] - WARM_SECONDS
        return (
            f"{first / MEGABYTE:.1f} MB {WARM_SECONDS:.0f} s after its last start, {last / MEGABYTE:.1f} MB "
            f"{span:.0f} s later (x {last / first:.3f})"
        )
