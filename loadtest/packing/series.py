"""Series: runs that differ only in their seeds, so that a median of them means something."""

from collections.abc import Mapping, Sequence

from loadtest.packing.run import Run


def series(runs: Sequence[Run]) -> Mapping[str, Sequence[Run]]:
    """The runs of one trace by what a table calls them: the policy, and the strategy if not all runs have the same."""
    is_mixed = len({run.strategy for run in runs}) > 1
    found: dict[str, list[Run]] = {}
    for run in runs:
        name = f"{run.policy}, {run.strategy}" if is_mixed and run.strategy else run.policy
        found.setdefault(name, []).append(run)
    return found
