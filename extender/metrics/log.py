"""Metrics of the log."""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extender.metrics.families import counter


class LogMetrics(Collector):
    """Metrics of the log; ``dropped`` returns the number of dropped lines."""

    def __init__(self, dropped: Callable[[], int]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        text = "Lines of the log that were dropped, because standard error was not read or could not be written."
        yield counter("log_lines_dropped", text, (), [((), self._dropped())])
