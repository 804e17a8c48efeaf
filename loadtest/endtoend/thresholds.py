"""What dra-extender is to reach, as ratios, and whether it did."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from extender.tools.table import TextTable
from loadtest.endtoend.figures import Group, share, times
from loadtest.endtoend.files import Record
from loadtest.endtoend.workload import IN_TREE, Positive, Text

SHIPPED: Final = Path(__file__).parents[1] / "thresholds.yaml"


class Threshold(Record):
    """One ratio.

    Attributes:
        workload: its name.
        nodes: in clusters of this size; None: of any.
        to: what our rate is compared with: another subject's, or our own with the workload that nothing disturbs.
        at_least: our rate divided by that.
    """

    workload: Text
    nodes: Positive | None = None
    to: Literal["in-tree", "idle", "undisturbed"]
    at_least: Annotated[float, Field(gt=0)]

    def applies(self, group: Group) -> bool:
        """Is this what the group has measured?"""
        return self.workload == group.workload and self.nodes in (None, group.nodes)


class Thresholds(Record):
    """All of them."""

    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A threshold, and what was measured.

    Attributes:
        ratio: None if one side of it was not measured.
    """

    threshold: Threshold
    group: Group
    ratio: float | None

    @property
    def is_missed(self) -> bool:
        """Measured, and too low."""
        return self.ratio is not None and self.ratio < self.threshold.at_least

    @property
    def word(self) -> str:
        """For people."""
        if self.ratio is None:
            return "not measured"
        return "MISSED" if self.is_missed else "met"


def verdicts(thresholds: Thresholds, groups: Sequence[Group]) -> Iterator[Verdict]:
    """One for each threshold of each group."""
    for group in groups:
        for threshold in thresholds.thresholds:
            if threshold.applies(group):
                yield Verdict(threshold, group, _measured(threshold, group, groups))


def verdict_table(found: Iterable[Verdict]) -> TextTable:
    """A row for each."""
    rows = []
    for verdict in found:
        threshold, group = verdict.threshold, verdict.group
        form = times if threshold.to == IN_TREE else share
        against = f"{group.undisturbed}, undisturbed" if threshold.to == "undisturbed" else threshold.to
        wanted = form(threshold.at_least)
        rows.append((str(group), against, form(verdict.ratio), wanted, verdict.word))
    return TextTable(("workload", "compared with", "measured", "at least", "verdict"), rows, "Thresholds")


def _measured(threshold: Threshold, group: Group, groups: Iterable[Group]) -> float | None:
    if threshold.to == "undisturbed":
        return group.ratio_undisturbed(groups)
    return group.ratio_to(threshold.to)
