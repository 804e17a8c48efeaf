"""Metrics with their values, for what is computed at a scrape."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

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
