"""Metrics of usage: device-seconds by namespace, class, model and driver, waits of pods, and what is in pieces."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extender.answers.usage.amounts import Named
from extender.answers.usage.holdings import UNIT
from extender.answers.usage.usage import By, Usage
from extender.answers.usage.waits import COARSE_BOUNDS
from extender.tools.metrics import Values, counter, histogram

HELD: Final = "usage_device_seconds"
PUBLISHED: Final = "usage_published_device_seconds"
WAITING: Final = "usage_waiting_pod_seconds"
PLACED: Final = "usage_pod_wait_seconds"
IN_PIECES: Final = "usage_device_in_pieces_seconds"
OBSERVED: Final = "usage_known_seconds"
JUDGED: Final = "usage_in_pieces_known_seconds"
LABELS: Final = ("by", "name", "driver")
NAME: Final = LABELS[1]
"""The label of a namespace: Prometheus puts one of its own in the place of ``namespace``."""


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
        text = "Seconds for which pods with devices waited for a node, times the pods, by namespace."
        yield counter(WAITING, text, (NAME,), (((of.name,), each / 1000) for of, each in found.waiting.items()))
        text = "Seconds from creation to node of pods with devices, by namespace."
        yield histogram(PLACED, text, (NAME,), COARSE_BOUNDS, (((name,), each) for name, each in found.placed.items()))
        text = "Seconds for which devices were free, but in pieces, times the devices."
        pieces = (((of.driver,), amount / UNIT / 1000) for of, amount in found.in_pieces.items())
        yield counter(IN_PIECES, text, ("driver",), pieces)
        text = "Seconds for which this replica knew the usage of the cluster."
        yield counter(OBSERVED, text, (), [((), found.observed / 1000)])
        text = "Seconds for which this replica knew which devices are in pieces."
        yield counter(JUDGED, text, (), [((), found.judged / 1000)])


def _values(sums: Mapping[By, Mapping[Named, int]]) -> Values:
    return (((by.value, *name), amount / UNIT / 1000) for by, found in sums.items() for name, amount in found.items())
