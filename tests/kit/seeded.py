"""Programs that play a world for each seed on several processors, and make some of the broken ones small."""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import Final, Protocol, TypeVar

_HASHES: Final = "PYTHONHASHSEED"
_SHOWN: Final = 3
"""Broken worlds that are made small and printed; of others, only the seeds are."""

SHRINKING: Final = 150
"""Tries to make a broken world smaller."""


class Played(Protocol):
    """A world that was played.

    Attributes:
        cpu: seconds of a processor that it took.
        violation: what has not held; None: all holds.
    """

    cpu: float

    @property
    def violation(self) -> BaseException | None: ...


_P = TypeVar("_P", bound=Played)


def fix_hashes(module: str) -> None:
    """Begin the program anew unless its sets have one order in all processes: a world depends on its seed alone."""
    if os.environ.get(_HASHES) != "0":
        again = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, _HASHES: "0"})  # noqa: S606 - our own program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that all such programs have: `first`, `jobs` and `show`."""
    parser.add_argument("--first", type=int, default=0, help="the first seed; 0")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--show", type=int, metavar="SEED", help="play one seed, and tell what happens")


def play_all(
    play: Callable[[int], _P],
    seeds: Sequence[int],
    jobs: int,
    tell: Callable[[_P], str],
    smallest: Callable[[_P], str],
    count: Callable[[_P], None],
) -> tuple[int, float]:
    """Play the seeds, print what is broken, and then the smallest worlds in which the first ones are.

    Args:
        play: plays a seed, in another process.
        seeds: in the order in which their outcomes are counted.
        jobs: processes.
        tell: says what has not held, and how to see it again.
        smallest: makes a broken world small, and tells it.
        count: adds up what there is to add.

    Returns:
        how many are broken, and the seconds of a processor that all took.
    """
    broken, cpu = list[_P](), 0.0
    for outcome in _played(play, seeds, jobs):
        cpu += outcome.cpu
        count(outcome)
        if outcome.violation is not None:
            broken.append(outcome)
            print(tell(outcome), flush=True)
    for outcome in broken[:_SHOWN]:
        print(f"\n{smallest(outcome)}")
    return len(broken), cpu


def _played(play: Callable[[int], _P], seeds: Sequence[int], jobs: int) -> Iterator[_P]:
    with get_context("spawn").Pool(jobs, _collect_rarely) as pool:
        yield from pool.imap(play, seeds)


def _collect_rarely() -> None:
    """A world is small and ends soon; what was imported stays. So there is little to collect."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
