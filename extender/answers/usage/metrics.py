"""Metrics of usage: device-seconds by namespace, class, model and driver."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extender.answers.usage.amounts import Named
from extender.answers.usage.holdings import UNIT
from extender.answers.usage.usage import By, Usage
from extender.tools.metrics import Values, counter

HELD: Final = "usage_device_seconds"
PUBLISHED: Final = "usage_published_device_seconds"
LABELS: Final = ("by", "name", "driver")


class UsageMetrics(Collector):
    """The metrics of usage, worked out at each scrape."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        found = self._usage.counters()
        text = "Seconds for which claims held devices, times the devices, by namespace, class, model or driver."
        yield counter(HELD, text, LABELS, _values(found.held))
        text = "Seconds for which devices were published, times the devices, by model or driver."
        yield counter(PUBLISHED, text, LABELS, _values(found.published))


def _values(sums: Mapping[By, Mapping[Named, int]]) -> Values:
    return (((by.value, *name), amount / UNIT / 1000) for by, found in sums.items() for name, amount in found.items())
