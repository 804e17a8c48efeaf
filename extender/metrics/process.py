"""Metrics of this process, computed at each scrape: the memory for what comes from outside, and the log."""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extender.metrics.families import counter, gauge
from extender.tools.intake import Budget


class IntakeMetrics(Collector):
    """The limit, and by source what is taken and how often something was refused."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        budget, by_source = self._budget, ("source",)
        text = "Memory for what comes from outside while it is worked on, all sources together, about."
        yield gauge("intake_limit_bytes", text, (), [((), budget.limit)])
        taken = [((source.label,), size) for source, size in budget.taken.items()]
        yield gauge("intake_bytes", "Memory that input takes while it is worked on, about.", by_source, taken)
        refused = [((source.label,), number) for source, number in budget.refused.items()]
        yield counter("intake_refused", "Inputs that were refused for want of memory.", by_source, refused)


class LogMetrics(Collector):
    """Metrics of the log; ``dropped`` returns the number of dropped lines."""

    def __init__(self, dropped: Callable[[], int]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        text = "Lines of the log that were dropped, because standard error was not read or could not be written."
        yield counter("log_lines_dropped", text, (), [((), self._dropped())])
