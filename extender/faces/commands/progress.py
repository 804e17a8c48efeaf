"""Progress of long work, on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_SECONDS: Final = 1.0
"""Shorter work shows nothing."""


class Bar:
    """A bar on standard error, which is gone when the work is done."""

    def __init__(self, first: str) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        self._task = self.progress.add_task(first, total=None)

    def advance(self, done: int, total: int, what: str = "scheduling pods") -> None:
        """Show how much of some work is done."""
        self.progress.update(self._task, description=what, completed=done, total=total)


@contextmanager
def shown_progress(first: str = "reading manifests") -> Iterator[Bar]:
    """Within the context, the bar is shown after a second, if standard error is a terminal; ``first`` is the work."""
    bar = Bar(first)
    if sys.stderr is None or not sys.stderr.isatty():
        yield bar
        return
    timer = Timer(_SECONDS, bar.progress.start)
    timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        timer.join()
        if bar.progress.live.is_started:
            bar.progress.stop()
