"""Does random operations on clusters in this process, with the audit after each, and prints what does not hold.

``python -m tests.operations --operations 100000 --first 4000`` does them in runs of 500, each on a cluster of its own;
the first one has the seed 4000. ``--show 4711`` does the operations of one seed, and prints them. A run in which
something does not hold is made small.

The exit code is 1 if something does not hold. A run depends on nothing but its seed and the revision.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.kit.seeded import SHRINKING, add_arguments, fix_hashes, play_all
from tests.kit.shrinking import smallest
from tests.operations.play import EACH, Outcome, Plan, capabilities, play, play_seed

_TOLD_EVERY: Final = 20_000


def main() -> int:
    """Do what the arguments say; returns the exit code."""
    fix_hashes("tests.operations")
    parser = argparse.ArgumentParser(
        prog="python -m tests.operations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operations", type=int, default=20_000, help="how many; 20,000")
    add_arguments(parser)
    given = parser.parse_args()
    if given.show is not None:
        return _show(given.show)
    clusters = -(-given.operations // EACH)
    return _all(range(given.first, given.first + clusters), given.jobs)


def _show(seed: int) -> int:
    print(f"cluster {seed}: {', '.join(sorted(capabilities(seed)))}")
    outcome = play_seed(seed)
    print(*outcome.told, _told(outcome), sep="\n")
    return int(outcome.violation is not None)


def _all(seeds: range, jobs: int) -> int:
    began, done = time.perf_counter(), Counter[str]()
    passed: Counter[str] = Counter()

    def count(outcome: Outcome) -> None:
        before = done.total()
        done.update(outcome.done)
        passed.update({"bound": outcome.bound, "judged": outcome.judged, "ms": int(1000 * outcome.cpu)})
        if done.total() // _TOLD_EVERY > before // _TOLD_EVERY:
            print(f"{done.total():,} operations, {passed['ms'] / 1000:.0f} s of a processor", flush=True)

    broken, cpu = play_all(play_seed, seeds, jobs, _told, _smallest, count)
    print(", ".join(f"{what}: {times:,}" for what, times in sorted(done.items())))
    took = time.perf_counter() - began
    print(
        f"seeds {seeds.start} to {seeds.stop - 1}: {done.total():,} operations, {broken} clusters broken;"
        f" {passed['bound']:,} pods bound, {passed['judged']:,} allocations judged; {took:.0f} s,"
        f" {done.total() / cpu:.0f} operations in a second of a processor"
    )
    return int(bool(broken))


def _smallest(outcome: Outcome) -> str:
    """The operations of a broken run without those that it does not need."""
    law = outcome.violation.law if outcome.violation else ""
    seed = outcome.plan.seed

    def breaks(numbers: Sequence[int]) -> bool:
        found = play(Plan(seed, tuple(numbers))).violation
        return found is not None and found.law == law

    small = play(Plan(seed, tuple(smallest(outcome.plan.numbers, breaks, SHRINKING))))
    return "\n".join([f"cluster {seed}: {', '.join(sorted(capabilities(seed)))}", *small.told, _told(small)])


def _told(outcome: Outcome) -> str:
    found = outcome.violation or f"all holds, {outcome.bound} pods bound"
    return f"cluster {outcome.plan.seed}: {found}"


if __name__ == "__main__":
    sys.exit(main())
