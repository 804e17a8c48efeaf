"""From runs to what is shown of them: medians, ranges, ratios, tables."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from extender.tools.table import TextTable
from loadtest.endtoend.results import Results, Run
from loadtest.endtoend.workload import IDLE, IN_TREE, ORDER, OURS, SubjectName


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in subject and repetition only.

    Attributes:
        source: which results they are of, counted from 1; 0: there are no others.
        workload: its name.
        about: it, in words.
        undisturbed: name of the workload that it is compared with; empty: of none.
        runs: those with anything wrong as well.
    """

    source: int
    workload: str
    about: str
    undisturbed: str
    nodes: int
    pods: int
    runs: tuple[Run, ...]

    def __str__(self) -> str:
        return f"{self.workload}, {self.nodes:,} nodes, {self.pods:,} pods{self.mark}"

    @property
    def mark(self) -> str:
        """Which results, where there are several."""
        return f" [{self.source}]" if self.source else ""

    @property
    def subjects(self) -> tuple[SubjectName, ...]:
        """Those with runs that count."""
        return tuple(subject for subject in ORDER if self.sound(subject))

    def sound(self, subject: str) -> list[Run]:
        """The runs of a subject with which nothing is wrong: others don't count."""
        return [run for run in self.runs if run.subject == subject and not run.findings and run.rate]

    def rates(self, subject: str) -> list[float]:
        """Pods per second of each run."""
        return [run.rate for run in self.sound(subject)]

    def processor(self, subject: str) -> list[float]:
        """Milliseconds of processor time for a pod, of each run."""
        return [1000 * sum(run.processor.values()) / run.pods for run in self.sound(subject)]

    def processor_parts(self, subject: str) -> dict[str, float]:
        """The median for each process."""
        runs = self.sound(subject)
        return {
            name: statistics.median(1000 * run.processor.get(name, 0.0) / run.pods for run in runs)
            for name in dict.fromkeys(name for run in runs for name in run.processor)
        }

    def ratio_to(self, subject: str) -> float | None:
        """Our median rate to another subject's; None if one of them was not measured."""
        return _ratio(self.rates(OURS), self.rates(subject))

    def ratio_undisturbed(self, groups: Iterable["Group"]) -> float | None:
        """Our median rate to that of the workload that nothing disturbs, in the same results, with as many pods."""
        wanted = self.undisturbed, self.source, self.nodes, self.pods
        for base in groups:
            if (base.workload, base.source, base.nodes, base.pods) == wanted:
                return _ratio(self.rates(OURS), base.rates(OURS))
        return None


def grouped(results: Sequence[Results]) -> list[Group]:
    """The runs of all results; by workload in the order of the first, then by size. Results stay apart."""
    found: dict[tuple[str, int, int, int], list[Run]] = {}
    workloads: dict[str, None] = {}
    for number, each in enumerate(results, start=1):
        for run in each.runs:
            workloads.setdefault(run.workload)
            key = run.workload, run.nodes, run.pods, number if len(results) > 1 else 0
            found.setdefault(key, []).append(run)
    place = {name: index for index, name in enumerate(workloads)}
    return [
        Group(source, name, told.about, told.undisturbed, nodes, pods, tuple(runs))
        for (name, nodes, pods, source), runs in sorted(
            found.items(), key=lambda item: (place[item[0][0]], item[0][1:])
        )
        for told in [results[max(source - 1, 0)].workloads[name]]
    ]


def rates_table(groups: Iterable[Group]) -> TextTable:
    """A row for each group."""
    rows = [
        (
            *_heads(group),
            *(median_and_range(group.rates(subject)) for subject in ORDER),
            times(group.ratio_to(IN_TREE)),
            share(group.ratio_to(IDLE)),
        )
        for group in groups
    ]
    columns = ("workload", "nodes", "pods", *ORDER, "to in-tree", "of idle")
    return TextTable(columns, rows, "Pods per second, from the first binding to the last")


def processor_table(groups: Iterable[Group]) -> TextTable:
    """Processor time for a pod, which other work on the machine disturbs less."""
    rows = [(*_heads(group), *(median_and_range(group.processor(subject)) for subject in ORDER)) for group in groups]
    title = "Milliseconds of processor time for a pod: control plane, scheduler, extender, on all cores"
    return TextTable(("workload", "nodes", "pods", *ORDER), rows, title)


def findings(groups: Iterable[Group]) -> Iterator[str]:
    """All that was wrong, and with which run."""
    for group in groups:
        for run in group.runs:
            for finding in run.findings:
                yield f"{group}, {run.subject}, run {run.repetition}: {finding}"


def median_and_range(values: Sequence[float]) -> str:
    """``53.2 (35.3 to 71.2)``, or the one that there is."""
    if not values:
        return "-"
    among = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.1f}{among}"


def times(ratio: float | None) -> str:
    """``2.50x``."""
    return "-" if ratio is None else f"{ratio:.2f}x"


def share(ratio: float | None) -> str:
    """``85 %``."""
    return "-" if ratio is None else f"{100 * ratio:.0f} %"


def _heads(group: Group) -> tuple[str, str, str]:
    return f"{group.workload}{group.mark}", f"{group.nodes:,}", f"{group.pods:,}"


def _ratio(ours: Sequence[float], others: Sequence[float]) -> float | None:
    return statistics.median(ours) / statistics.median(others) if ours and others else None
