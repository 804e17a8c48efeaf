"""From what was seen to what is shown: rates, medians, ratios, goals."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from extender.cluster.api import RawObject
from loadtest.endtoend.subjects import IDLE, IN_TREE, OURS
from loadtest.endtoend.workloads import CLAIMS, WORKLOADS
from tests.cluster.harness.objects import is_bound

_ORDER = (IN_TREE, OURS, IDLE)


@dataclass(slots=True)
class Sightings:
    """When pods got a node, as a watch shows it.

    Attributes:
        expected: names of the pods that are to get one.
        at: seconds of a steady clock, by name, in the order of the events.
        moved: pods that were seen on two nodes.
    """

    expected: frozenset[str]
    at: dict[str, float] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    _node: dict[str, str] = field(default_factory=dict)

    def see(self, pod: RawObject, now: float) -> None:
        """A pod as it is at a time."""
        name = pod["metadata"]["name"]
        if name not in self.expected or not is_bound(pod):
            return
        node = pod["spec"]["nodeName"]
        before = self._node.setdefault(name, node)
        if before != node:
            self.moved.append(f"pod {name} was bound to node {before}, and then to node {node}")
        self.at.setdefault(name, now)

    @property
    def rate(self) -> float:
        """Pods per second from the first that got a node to the last; 0 if there are not two."""
        times = sorted(self.at.values())
        spent = times[-1] - times[0] if times else 0.0
        return (len(times) - 1) / spent if spent else 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run.

    Attributes:
        subject: its name.
        rate: pods per second; of no meaning if something is wrong.
        processor: seconds for a pod, on all cores, of the control plane, the scheduler and its extender.
        load: of the machine before, as ``uptime`` has it over a minute.
        wrong: pods that got no node, devices that two claims have, and the like.
    """

    subject: str
    rate: float
    processor: float
    load: float
    wrong: tuple[str, ...] = ()


def table(nodes: int, pods: int, runs: Mapping[str, Sequence[Run]]) -> Table:
    """A row for each workload.

    Args:
        nodes: how many there were.
        pods: how many were to get one.
        runs: by the workload's name.
    """
    title = f"{nodes:,} nodes, {pods:,} pods: pods per second from the first binding to the last"
    made = Table("workload", *_ORDER, "to in-tree", "of idle", title=title)
    for workload, rates in _rates(runs).items():
        made.add_row(
            workload,
            *(_with_range(rates.get(subject, ())) for subject in _ORDER),
            _shown(_ratio(rates, IN_TREE), "{:.2f}x"),
            _shown(_ratio(rates, IDLE), "{:.0%}"),
        )
    return made


def processor_table(runs: Mapping[str, Sequence[Run]]) -> Table:
    """Processor time for a pod, which other work on the machine disturbs less."""
    title = "milliseconds of processor time for a pod: control plane, scheduler, extender"
    made = Table("workload", *_ORDER, title=title)
    for workload, each in runs.items():
        spent = {name: [run.processor for run in each if run.subject == name and not run.wrong] for name in _ORDER}
        made.add_row(workload, *(_with_range([1000 * seconds for seconds in spent[name]]) for name in _ORDER))
    return made


def verdicts(nodes: int, runs: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """What was to be reached on so many nodes, and whether it was, as far as it was measured."""
    rates = _rates(runs)
    undisturbed = _median(rates.get(CLAIMS.name, {}).get(OURS, ()))
    for name, found in rates.items():
        goal, ours = WORKLOADS[name].goal, _median(found.get(OURS, ()))
        alone = ours / undisturbed if ours and undisturbed else None
        for what, wanted, form, ratio in (
            ("of the in-tree plugin", dict(goal.in_tree).get(nodes, 0.0), "{:.2f}x", _ratio(found, IN_TREE)),
            ("of the idle extender", goal.idle, "{:.0%}", _ratio(found, IDLE)),
            (f"of {CLAIMS.name}", goal.undisturbed, "{:.0%}", alone),
        ):
            if wanted and ratio is not None:
                verdict = "met" if ratio >= wanted else "MISSED"
                yield f"{name}: {form.format(ratio)} {what}, goal {form.format(wanted)}: {verdict}"


def _rates(runs: Mapping[str, Sequence[Run]]) -> dict[str, dict[str, list[float]]]:
    """By workload and subject; of runs with which nothing is wrong."""
    found: dict[str, dict[str, list[float]]] = {workload: {} for workload in runs}
    for workload, run in ((workload, run) for workload, each in runs.items() for run in each):
        if not run.wrong:
            found[workload].setdefault(run.subject, []).append(run.rate)
    return found


def _median(rates: Sequence[float]) -> float | None:
    return statistics.median(rates) if rates else None


def _ratio(rates: Mapping[str, Sequence[float]], other: str) -> float | None:
    """Our median to another subject's."""
    ours, theirs = (_median(rates.get(subject, ())) for subject in (OURS, other))
    return ours / theirs if ours and theirs else None


def _with_range(rates: Sequence[float]) -> str:
    """The median, and below it the range if there are several."""
    if not rates:
        return "-"
    below = f"\n{min(rates):.0f} to {max(rates):.0f}" if len(rates) > 1 else ""
    return f"{statistics.median(rates):.1f}{below}"


def _shown(ratio: float | None, form: str) -> str:
    return "-" if ratio is None else form.format(ratio)
