"""Tools to make metrics: the prefix of all names, buckets for times, and families that are computed at a scrape."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

CALL_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Buckets for times of calls."""

WAITING_SECONDS: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
"""Buckets for times that pods wait. Times of creation are whole seconds, and pods may wait for days."""


Values: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and the value."""


def full_name(name: str) -> str:
    """The name of a metric with the prefix of all."""
    return f"dra_extender_{name}"


def gauge(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    """A gauge, its name without the prefix of all."""
    family = GaugeMetricFamily(full_name(name), text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def counter(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    """A counter, its name without the prefix of all."""
    family = CounterMetricFamily(full_name(name), text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def histogram(
    name: str,
    text: str,
    labels: Sequence[str],
    bounds: Sequence[float],
    values: Iterable[tuple[tuple[str, ...], Sequence[int]]],
) -> Metric:
    """A histogram without the sum of what was observed, its name without the prefix of all.

    Args:
        name: of the metric.
        text: what it is.
        labels: their names.
        bounds: the upper bound of each bucket; the last one is infinite.
        values: values of labels, and how many were in each bucket.
    """
    family = HistogramMetricFamily(full_name(name), text, labels=labels)
    names = ["+Inf" if math.isinf(bound) else str(bound) for bound in bounds]
    for key, counts in values:
        family.add_metric(key, list(zip(names, accumulate(counts), strict=True)), sum_value=None)
    return family
