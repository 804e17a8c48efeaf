"""Pictures of runs, as PNG."""

from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from math import ceil
from statistics import median
from typing import Final, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.endtoend.figures import Group
from loadtest.endtoend.workload import IDLE, IN_TREE, ORDER, OURS, SubjectName

_COLOURS: Final[dict[SubjectName, str]] = {IN_TREE: "#8a8f98", OURS: "#1769aa", IDLE: "#e0a030"}
_PROCESSES: Final = {
    "etcd": "#c9ced6",
    "kube-apiserver": "#8a8f98",
    "kube-controller-manager": "#b9a3d0",
    "kube-scheduler": "#e0a030",
    "extender": "#1769aa",
}
_COLUMNS: Final = 3
_BESIDE: Final = 2
"""Names of the legend that fit below one diagram, side by side."""
_WIDTH, _HEIGHT, _LEGEND_HEIGHT = 4.6, 3.2, 0.4
_DOTS_PER_INCH: Final = 110

Shown = TypeVar("Shown")


def pictures(groups: Sequence[Group]) -> dict[str, bytes]:
    """Each picture by its name; none of runs that don't count."""
    counting = [group for group in groups if group.subjects]
    if not counting:
        return {}
    workloads = {name: [each for each in counting if each.workload == name] for name in _names(counting)}
    return {
        "rates": _png(list(workloads.values()), _rates),
        "bound": _png(counting, _bound),
        "processor": _png(counting, _processor),
    }


def _names(groups: Iterable[Group]) -> dict[str, None]:
    return dict.fromkeys(group.workload for group in groups)


def _png(parts: Sequence[Shown], draw: Callable[[Axes, Shown], None]) -> bytes:
    """One picture with a diagram for each part, and one legend for all."""
    columns = min(_COLUMNS, len(parts))
    rows = ceil(len(parts) / columns)
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, part in zip(grid.flat, parts, strict=False):
        draw(axes, part)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    for unused in grid.flat[len(parts) :]:
        unused.set_visible(False)
    named = [axes.get_legend_handles_labels() for axes in grid.flat]
    handles = {label: handle for found, labels in named for handle, label in zip(found, labels, strict=True)}
    beside = min(_BESIDE * columns, len(handles))
    figure.set_figheight(_HEIGHT * rows + _LEGEND_HEIGHT * ceil(len(handles) / beside))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=beside, frameon=False)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)
    return file.getvalue()


def _rates(axes: Axes, groups: Sequence[Group]) -> None:
    """Medians as bars, from the lowest run to the highest as lines, for each size of the cluster."""
    width = 0.8 / len(ORDER)
    for number, subject in enumerate(ORDER):
        measured = [(place, rates) for place, group in enumerate(groups) if (rates := group.rates(subject))]
        places = [place + (number - 1) * width for place, _ in measured]
        medians = [median(rates) for _, rates in measured]
        down = [middle - min(rates) for middle, (_, rates) in zip(medians, measured, strict=True)]
        up = [max(rates) - middle for middle, (_, rates) in zip(medians, measured, strict=True)]
        if measured:
            bars = axes.bar(places, medians, width, yerr=[down, up], capsize=3, color=_COLOURS[subject], label=subject)
            axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=7)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xticks(range(len(groups)), [f"{group.nodes:,} nodes\n{group.pods:,} pods{group.mark}" for group in groups])
    axes.set_title(groups[0].workload, fontsize=9)
    axes.set_ylabel("pods per second")


def _bound(axes: Axes, group: Group) -> None:
    """Pods with a node against time: a line for each run."""
    for subject in group.subjects:
        for run in group.sound(subject):
            seconds = [each - run.bound_at[0] for each in run.bound_at]
            bound = range(1, len(seconds) + 1)
            axes.step(seconds, bound, where="post", color=_COLOURS[subject], label=subject, linewidth=1.2)
    axes.set_title(str(group), fontsize=9)
    axes.set_xlabel("seconds since the first")
    axes.set_ylabel("pods with a node")


def _processor(axes: Axes, group: Group) -> None:
    """Medians of processor time for a pod, process on process."""
    parts = [group.processor_parts(subject) for subject in group.subjects]
    places = range(len(parts))
    bottoms = [0.0] * len(parts)
    for process, colour in _PROCESSES.items():
        heights = [each.get(process, 0.0) for each in parts]
        axes.bar(places, heights, 0.6, bottom=bottoms, color=colour, label=process)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_xlim(-0.6, len(ORDER) - 0.4)
    axes.set_xticks(places, group.subjects)
    axes.set_title(str(group), fontsize=9)
    axes.set_ylabel("ms for a pod")
