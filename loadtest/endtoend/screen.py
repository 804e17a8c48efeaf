"""What is shown while runs are under way."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadtest.endtoend.plan import Site, Turn
from loadtest.endtoend.results import Run


class Screen:
    """A bar for all runs, one for the pods of the run under way, and a line for each that is done.

    Args:
        console: where; the bars need a terminal.
        runs: how many there will be.
    """

    def __init__(self, console: Console, runs: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._runs = self._progress.add_task("runs", total=runs)
        self._pods = self._progress.add_task("", total=None, visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, site: Site, turn: Turn) -> Callable[[int], None]:
        """Show a run; what it gives is told how many pods have a node by now."""
        what = escape(f"{site.nodes:,} nodes: {turn}")
        self._progress.reset(self._pods, description=what, total=turn.pods, visible=True)
        return lambda bound: self._progress.update(self._pods, completed=bound)

    def done(self, run: Run) -> None:
        """Tell what came of a run."""
        self._progress.advance(self._runs)
        self._progress.update(self._pods, visible=False)
        spent = 1000 * sum(run.processor.values()) / run.pods
        told = f"{run.rate:.1f} pods/s, {spent:.1f} ms of processor time each, load {run.before.load:.1f}"
        self._say(f"{run.nodes:,} nodes: {run.workload}, {run.subject}, run {run.repetition}: {told}")
        for finding in run.findings:
            self._say(f"  {finding}")

    def _say(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
