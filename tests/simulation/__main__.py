"""Plays histories, each from its seed, and prints what has not held, and what was covered.

``python -m tests.simulation --seeds 1000 --first 4000`` plays the histories 4000 to 4999 on all processors, and as many
narrow ones, whose seeds are 1000004000 to 1000004999.
``--show 4711`` plays one, and prints its plan, what has not held, and what the service has logged. ``--mutants`` breaks
the service on purpose, in one way after the other, and prints how many histories it takes until that is seen.

The exit code is 1 if something has not held. A history depends on nothing but its seed and the revision.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.kit.seeded import SHRINKING, add_arguments, fix_hashes, play_all
from tests.simulation.coverage import covered, report
from tests.simulation.history import Outcome, play, play_seed
from tests.simulation.mutants import MUTANTS, found_by
from tests.simulation.plan import Plan
from tests.simulation.seeds import NARROW, plan_of
from tests.simulation.shrink import shrunk


def main() -> int:
    """Play what the arguments say; returns the exit code."""
    fix_hashes("tests.simulation")
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many histories, and as many narrow ones; 100")
    add_arguments(parser)
    parser.add_argument("--mutants", action="store_true", help="break the service on purpose")
    given = parser.parse_args()
    if given.show is not None:
        return _show(plan_of(given.show))
    seeds = range(given.first, given.first + given.seeds)
    return _mutants([*seeds, *_narrow(seeds)], given.jobs) if given.mutants else _all(seeds, given.jobs)


def _narrow(seeds: range) -> range:
    """The narrow histories that are played beside wide ones."""
    return range(NARROW + seeds.start, NARROW + seeds.stop)


def _show(plan: Plan) -> int:
    print(plan)
    outcome = play(plan)
    print("\n".join(outcome.logged))
    print(_told(outcome))
    return int(outcome.violation is not None)


def _all(seeds: range, jobs: int) -> int:
    print(f"histories {seeds.start} to {seeds.stop - 1}", flush=True)
    began = time.perf_counter()
    counted: Counter[str] = Counter()
    passed: Counter[str] = Counter()

    def count(outcome: Outcome) -> None:
        counted.update(outcome.counted)
        passed.update({"ms": int(1000 * outcome.seconds), "bound": outcome.bound})

    broken, cpu = play_all(play_seed, [*seeds, *_narrow(seeds)], jobs, _told, _smallest, count)
    print(report(covered(map(plan_of, seeds))))
    print("checked: " + ", ".join(f"{law}: {times}" for law, times in sorted(counted.items())))
    hours, minutes, took = passed["ms"] / 3_600_000, cpu / 60, time.perf_counter() - began
    print(
        f"histories {seeds.start} to {seeds.stop - 1}, and as many narrow ones: {broken} broken;"
        f" {passed['bound']} pods bound; {hours:.1f}"
        f" virtual hours in {took:.0f} s, {hours / minutes:.1f} in a minute of one processor"
    )
    return int(bool(broken))


def _smallest(outcome: Outcome) -> str:
    """The plan of a broken history without what it does not need."""
    law = outcome.violation.law if outcome.violation else ""

    def breaks(plan: Plan) -> bool:
        found = play(plan).violation
        return found is not None and found.law == law

    small = shrunk(outcome.plan, breaks, SHRINKING)
    return f"{small}\n{_told(play(small))}"


def _told(outcome: Outcome) -> str:
    seed = outcome.plan.seed
    if outcome.violation is None:
        return f"history {seed}: all holds, {outcome.bound} pods bound"
    return f'history {seed}: {outcome.violation}\n  make simulate-faults SIMULATE="--show {seed}" plays it again'


def _mutants(seeds: Sequence[int], jobs: int) -> int:
    """Break the service in each way, and tell which history shows it first."""
    missed = 0
    for name in MUTANTS:
        number = found_by(name, seeds, jobs)
        missed += number is None
        print(f"{name}: {'not found' if number is None else f'found by history {number}'}", flush=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
