"""One HTML page of all that results have: tables, verdicts, and the pictures inside."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from extender.tools.table import TextTable
from loadtest.endtoend.figures import Group, findings, grouped, processor_table, rates_table
from loadtest.endtoend.plots import pictures
from loadtest.endtoend.results import CALIBRATION_LOOPS, Results
from loadtest.endtoend.thresholds import Thresholds, Verdict, verdict_table, verdicts

_CAPTIONS: Final = {
    "rates": "Pods per second: medians; lines from the slowest run to the fastest",
    "bound": "Pods with a node against time: a line for each run",
    "processor": "Processor time for a pod by process: medians",
}
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c2024; background: #fff }
body { max-width: 75em; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.1em; margin: 2em 0 .5em }
table { border-collapse: collapse }
td, th { padding: .25em .9em .25em 0; text-align: left; border-bottom: 1px solid #dde1e6 }
th { font-weight: 600 } td { font-variant-numeric: tabular-nums }
.missed { color: #b3261e; font-weight: 600 } .met { color: #1b7a3d }
figure { margin: 2em 0 } figcaption { font-weight: 600 } img { max-width: 100%; height: auto }
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What results come to.

    Attributes:
        results: in the order in which they were given.
        groups: their runs.
        verdicts: on the thresholds that apply.
        findings: all that was wrong.
    """

    results: tuple[Results, ...]
    groups: tuple[Group, ...]
    verdicts: tuple[Verdict, ...]
    findings: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[Results], thresholds: Thresholds) -> "Report":
        """Of some results, judged by thresholds."""
        groups = grouped(results)
        return cls(tuple(results), tuple(groups), tuple(verdicts(thresholds, groups)), tuple(findings(groups)))

    @property
    def is_good(self) -> bool:
        """Is nothing missed, and nothing wrong?"""
        return not self.findings and not any(verdict.is_missed for verdict in self.verdicts)

    @property
    def tables(self) -> list[TextTable]:
        """For people."""
        shown = [rates_table(self.groups), processor_table(self.groups)]
        if self.verdicts:
            shown.append(verdict_table(self.verdicts))
        return [*shown, machine_table(self.results)]

    def pictures(self) -> dict[str, bytes]:
        """PNGs by their names."""
        return pictures(self.groups)

    def page(self, drawn: Mapping[str, bytes]) -> str:
        """The page.

        Args:
            drawn: the pictures.
        """
        return "\n".join(_page(self, drawn))


def machine_table(results: Sequence[Results]) -> TextTable:
    """On what, when and how busy: a column for each results."""
    facts = [_facts(each) for each in results]
    rows = [(name, *(each[name] for each in facts)) for name in facts[0]] if facts else []
    return TextTable(("", *(f"[{number}]" for number in range(1, len(facts) + 1))), rows, "Measured on")


def _facts(results: Results) -> dict[str, str]:
    machine = results.machine
    moods = [run.before for run in results.runs]
    return {
        "began": f"{results.began:%Y-%m-%d %H:%M} UTC",
        "commit": results.commit,
        "machine": f"{machine.cores} cores, {machine.processor}, {machine.memory_gib:g} GiB",
        "system": machine.system,
        "Python": machine.python,
        "Go": machine.go,
        "Kubernetes": machine.kubernetes,
        "load before a run": _range([mood.load for mood in moods], "{:.1f}"),
        f"ms for {CALIBRATION_LOOPS:,} empty loops": _range([1000 * mood.calibration for mood in moods], "{:.0f}"),
    }


def _range(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    return f"{form.format(min(values))} to {form.format(max(values))}"


def _page(report: Report, drawn: Mapping[str, bytes]) -> Iterator[str]:
    yield "<!doctype html>"
    yield f'<html lang="en"><meta charset="utf-8"><title>Load test</title><style>{_STYLE}</style>'
    yield "<h1>Load test: pods per second on a real control plane</h1>"
    yield (
        "<p>Medians, with the range of all runs. A run with anything wrong does not count. Subjects took turns on one "
        "control plane, all on one machine: kube-scheduler with its own plugin (in-tree), dra-extender, and an "
        "extender that decides nothing (idle).</p>"
    )
    for table in report.tables:
        yield from _table(table)
    if report.findings:
        yield "<h2>What was wrong</h2><ul>"
        yield from (f'<li class="missed">{escape(finding)}</li>' for finding in report.findings)
        yield "</ul>"
    yield "<h2>Workloads</h2><ul>"
    abouts = {group.workload: group.about for group in report.groups}
    yield from (f"<li>{escape(name)}: {escape(about)}</li>" for name, about in abouts.items())
    yield "</ul>"
    for name, png in drawn.items():
        yield f"<figure><figcaption>{escape(_CAPTIONS[name])}</figcaption>"
        yield f'<img alt="{escape(_CAPTIONS[name])}" src="data:image/png;base64,{b64encode(png).decode()}"></figure>'
    yield "</html>"


def _table(table: TextTable) -> Iterator[str]:
    yield f"<h2>{escape(table.title)}</h2><table>"
    yield f"<tr>{''.join(f'<th>{escape(column)}</th>' for column in table.columns)}</tr>"
    for row in table.rows:
        yield f"<tr>{''.join(map(_cell, row))}</tr>"
    yield "</table>"


def _cell(text: str) -> str:
    kind = f' class="{text.lower()}"' if text in {"met", "MISSED"} else ""
    return f"<td{kind}>{escape(text)}</td>"
