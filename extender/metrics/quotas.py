"""Metrics of the limits of DeviceQuotas."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from extender.metrics.families import gauge
from extender.observe.quota_use import LimitUse


def quota_metrics(used: Sequence[LimitUse]) -> Iterator[Metric]:
    """Metrics of all limits."""
    # The label is not "namespace": Prometheus gives this label to the pod that it scrapes.
    labels = ("quota_namespace", "quota", "limit", "counts")
    text = "Limits of DeviceQuotas, in devices or in the unit of a capacity."
    yield gauge("quota_limit", text, labels, ((each[:4], each.hard) for each in used))
    text = "What is in use of the limits of DeviceQuotas: allocated to claims, or kept for pods."
    yield gauge("quota_used", text, labels, ((each[:4], each.used) for each in used))
    text = "What is kept of the limits of DeviceQuotas, for nominated pods and gangs; it is in use, too."
    yield gauge("quota_kept", text, labels, ((each[:4], each.kept) for each in used))
