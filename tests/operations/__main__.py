"""Does random operations on clusters in this process, with the audit after each, and prints what does not hold.

``python -m tests.operations --operations 100000 --first 4000`` does them in runs of 500, each on a cluster of its own;
the first one has the seed 4000. ``--show 4711`` does the operations of one seed, and prints them. A run in which
something does not hold is made small.

The exit code is 1 if something does not hold. A run depends on nothing but its seed and the revision.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from typing import Final

from tests.kit.shrinking import smallest
from tests.operations.play import EACH, Outcome, Plan, capabilities, play, play_seed

_HASHES: Final = "PYTHONHASHSEED"
_SHRINKING: Final = 150
"""Tries to make a run smaller."""

_SHOWN: Final = 3
"""Runs that are made small and printed; of others, only the seeds are."""

_TOLD_EVERY: Final = 20_000


def main() -> int:
    """Do what the arguments say; returns the exit code."""
    if os.environ.get(_HASHES) != "0":  # sets have an order of their own otherwise
        again = [sys.executable, "-m", "tests.operations", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, _HASHES: "0"})
    parser = argparse.ArgumentParser(
        prog="python -m tests.operations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operations", type=int, default=20_000, help="how many; 20,000")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first cluster; 0")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--show", type=int, metavar="SEED", help="one cluster")
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
    bound, judged, cpu, broken = 0, 0, 0.0, list[Outcome]()
    for outcome in _played(seeds, jobs):
        before = done.total()
        done += outcome.done
        bound, judged, cpu = bound + outcome.bound, judged + outcome.judged, cpu + outcome.cpu
        if outcome.violation is not None:
            broken.append(outcome)
            print(_told(outcome), flush=True)
        if done.total() // _TOLD_EVERY > before // _TOLD_EVERY:
            print(f"{done.total():,} operations, {len(broken)} clusters broken, {cpu:.0f} s of a processor", flush=True)
    for outcome in broken[:_SHOWN]:
        print(f"\n{_smallest(outcome)}")
    print(", ".join(f"{what}: {times:,}" for what, times in sorted(done.items())))
    print(
        f"seeds {seeds.start} to {seeds.stop - 1}: {done.total():,} operations, {len(broken)} clusters broken;"
        f" {bound:,} pods bound, {judged:,} allocations judged; {time.perf_counter() - began:.0f} s,"
        f" {done.total() / cpu:.0f} operations in a second of a processor"
    )
    return int(bool(broken))


def _played(seeds: range, jobs: int) -> Iterator[Outcome]:
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(play_seed, seeds)


def _smallest(outcome: Outcome) -> str:
    """The operations of a broken run without those that it does not need."""
    law = outcome.violation.law if outcome.violation else ""
    seed = outcome.plan.seed

    def breaks(numbers: Sequence[int]) -> bool:
        found = play(Plan(seed, tuple(numbers))).violation
        return found is not None and found.law == law

    small = play(Plan(seed, tuple(smallest(outcome.plan.numbers, breaks, _SHRINKING))))
    return "\n".join([f"cluster {seed}: {', '.join(sorted(capabilities(seed)))}", *small.told, _told(small)])


def _told(outcome: Outcome) -> str:
    found = outcome.violation or f"all holds, {outcome.bound} pods bound"
    return f"cluster {outcome.plan.seed}: {found}"


if __name__ == "__main__":
    sys.exit(main())
