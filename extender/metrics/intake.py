"""Metrics of the memory for what comes from outside, computed at each scrape."""

from collections.abc import Iterator

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
