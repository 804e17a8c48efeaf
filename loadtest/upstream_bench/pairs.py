"""Pairs of turns, and what is kept of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import orjson

from loadtest.upstream_bench.turn import Turn
from tests.kit.suites.running import SUBJECTS, Subject

Turns = Mapping[Subject, Sequence[Turn]]


@dataclass(frozen=True, slots=True)
class Figures:
    """The medians of a workload's turns with one subject.

    Attributes:
        turns: how many there were.
        rate: pods a second.
        seconds: that scheduler_perf measured.
        processor: milliseconds for a pod, by part; of the whole turn if the workload has no pods.
        loads: of the machine before each turn.
    """

    turns: int
    rate: float
    seconds: float
    processor: Mapping[str, float]
    loads: Sequence[float]


def order(pair: int) -> tuple[Subject, ...]:
    """The subjects of a pair in the order of their turns: each goes first in every second pair."""
    return SUBJECTS if pair % 2 == 0 else SUBJECTS[::-1]


def figures(turns: Sequence[Turn]) -> Figures:
    """Medians of each figure by itself."""
    names = dict.fromkeys(name for turn in turns for name in turn.processor)
    return Figures(
        len(turns),
        median(turn.rate for turn in turns),
        median(turn.seconds for turn in turns),
        {name: median(turn.processor.get(name, 0.0) * 1000 / max(turn.pods, 1) for turn in turns) for name in names},
        [turn.load for turn in turns],
    )


def keep(file: Path, turn: Turn) -> None:
    """Write a turn into a file."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(orjson.dumps(asdict(turn)))
    unfinished.rename(file)


def kept(file: Path) -> Turn:
    """Read a turn from a file."""
    return Turn(**orjson.loads(file.read_bytes()))
