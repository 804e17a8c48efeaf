"""Runs as a table: for each trace and policy the median over the seeds, and published results below."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from extender.tools.table import TextTable
from loadtest.packing.results import Published
from loadtest.packing.run import Run
from loadtest.packing.series import series

CHECKPOINTS: Final = (90, 95, 100, 110, 120, 130)
"""The loads that the table shows, in percent."""

_NONE: Final = "-"


def results_table(runs: Sequence[Run], published: Published) -> TextTable:
    """Percent of the cluster allocated at each checkpoint; pods placed, and seconds for one run."""
    loads = [load for load in CHECKPOINTS if any(load in run.allocated for run in runs)]
    more: dict[str, Callable[[Run], float | None]] = {
        "in use": lambda run: run.in_use,
        "bound": lambda run: run.bound,
        "% of bound": lambda run: run.reached,
    }
    shown = {name: value for name, value in more.items() if any(value(run) is not None for run in runs)}
    headings = ("trace", "policy", "seeds", *(f"at {load} %" for load in loads), "placed", *shown, "seconds")
    rows: list[Sequence[str]] = []
    for trace in dict.fromkeys(run.trace for run in runs):
        of_trace = [run for run in runs if run.trace == trace]
        rows += [_measured(name, each, loads, shown.values()) for name, each in series(of_trace).items()]
        rows += _published(trace, published.get(trace, {}), loads, len(shown))
    strategies = sorted({run.strategy for run in runs if run.strategy})
    title = "medians of the seeds; percent of the cluster allocated when so much is asked for"
    return TextTable(headings, rows, f"{title}; of equal nodes: {', '.join(strategies)}" if strategies else title)


def _measured(
    name: str, runs: Sequence[Run], loads: Sequence[int], more: Iterable[Callable[[Run], float | None]]
) -> Sequence[str]:
    seeds = ",".join(str(run.seed) for run in runs)
    placed = f"{median(run.placed for run in runs):.0f} of {median(run.pods for run in runs):.0f}"
    known = [_median(value(run) for run in runs) for value in more]
    seconds = f"{median(run.seconds for run in runs):.1f}"
    allocated = _loads([run.allocated for run in runs], loads)
    return (runs[0].trace, name, seeds, *allocated, placed, *known, seconds)


def _loads(allocated: Sequence[Mapping[int, float]], loads: Sequence[int]) -> Iterator[str]:
    for load in loads:
        yield _median(each.get(load) for each in allocated)


def _median(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.1f}" if known else _NONE


def _published(
    trace: str, policies: Mapping[str, Mapping[int, float]], loads: Sequence[int], more: int
) -> Iterator[Sequence[str]]:
    for policy, allocated in policies.items():
        yield (trace, f"{policy} (published)", _NONE, *_loads([allocated], loads), *[_NONE] * (more + 2))
