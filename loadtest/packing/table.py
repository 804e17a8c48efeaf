"""Runs as a table: for each trace and policy the median over the seeds, and published results below."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from extender.observe.tables.terminal import Table
from loadtest.packing.published import Published
from loadtest.packing.run import CHECKPOINTS, Run

_HEADINGS = ("trace", "policy", "seeds", *(f"at {load} %" for load in CHECKPOINTS), "placed", "seconds")


def results_table(runs: Sequence[Run], published: Published) -> Table:
    """Percent of all GPUs allocated at each checkpoint; pods placed, and seconds for one run."""
    rows: list[Sequence[str]] = []
    for trace in dict.fromkeys(run.trace for run in runs):
        of_trace = [run for run in runs if run.trace == trace]
        policies = dict.fromkeys(run.policy for run in of_trace)
        rows += [_measured([run for run in of_trace if run.policy == policy]) for policy in policies]
        rows += _published(trace, published.get(trace, {}))
    return Table(_HEADINGS, rows, "percent of all GPUs allocated, median of the seeds, by percent asked for")


def _measured(runs: Sequence[Run]) -> Sequence[str]:
    seeds = ",".join(str(run.seed) for run in runs)
    placed = f"{median(run.placed for run in runs):.0f} of {median(run.pods for run in runs):.0f}"
    seconds = f"{median(run.seconds for run in runs):.1f}"
    return (runs[0].trace, runs[0].policy, seeds, *_loads(run.allocated for run in runs), placed, seconds)


def _loads(allocated: Iterable[Mapping[int, float]]) -> Iterator[str]:
    each = list(allocated)
    for load in CHECKPOINTS:
        known = [percents[load] for percents in each if load in percents]
        yield f"{median(known):.1f}" if known else "-"


def _published(trace: str, policies: Mapping[str, Mapping[int, float]]) -> Iterator[Sequence[str]]:
    for policy, allocated in policies.items():
        yield (trace, f"{policy} (published)", "-", *_loads([allocated]), "-", "-")
