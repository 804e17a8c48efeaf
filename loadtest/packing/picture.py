"""A picture of runs: what stays unallocated against what was asked for, a line for each policy, as SVG.

It shows what figure 7 of "Beware of Fragmentation" (USENIX ATC 2023) shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from math import ceil
from statistics import median
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.packing.results import Published
from loadtest.packing.run import Run
from loadtest.packing.series import series

_FROM: Final = 70
"""Percent asked for at which a diagram begins: below it, almost everything is placed."""

_COLUMNS: Final = 2
_WIDTH, _HEIGHT = 5.6, 4.0


def picture(runs: Sequence[Run], published: Published) -> bytes:
    """A diagram for each trace; each value is the median of the seeds. At least one run must have loads."""
    shown = [run for run in runs if run.allocated]
    traces = list(dict.fromkeys(run.trace for run in shown))
    columns = min(_COLUMNS, len(traces))
    rows = ceil(len(traces) / columns)
    # text stays text, and equal runs give equal files
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "packing"}):
        figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, trace in zip(grid.flat, traces, strict=False):
            _draw(axes, [run for run in shown if run.trace == trace], published.get(trace, {}))
        for unused in grid.flat[len(traces) :]:
            unused.set_visible(False)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw(axes: Axes, runs: Sequence[Run], published: Mapping[str, Mapping[int, float]]) -> None:
    for name, of_name in series(runs).items():
        _line(axes, name, _medians(run.allocated for run in of_name), "-")
    for policy, allocated in published.items():
        _line(axes, f"{policy} (published)", allocated, ":")
    last = max(load for run in runs for load in run.allocated)
    axes.plot([0, 100], [100, 0], color="#c9ced6", linewidth=0.8, zorder=0)
    axes.set_xlim(min(_FROM, last), last)
    axes.set_ylim(0, 100 - min(_FROM, last) + 5)
    axes.set_title(runs[0].trace, fontsize=9)
    axes.set_xlabel("asked for, percent of the cluster")
    axes.set_ylabel("unallocated, percent of the cluster")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)


def _line(axes: Axes, name: str, allocated: Mapping[int, float], style: str) -> None:
    loads = sorted(allocated)
    axes.plot(loads, [100 - allocated[load] for load in loads], style, label=name, linewidth=1.2)


def _medians(each: Iterable[Mapping[int, float]]) -> dict[int, float]:
    known = list(each)
    loads = sorted(set().union(*known))
    return {load: median(allocated[load] for allocated in known if load in allocated) for load in loads}
