"""Metrics of what the service reads from the API server, and of its requests."""

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import HistogramMetricFamily, Metric

from extender.kube.connection.request_counts import SECONDS
from extender.metrics.families import counter, full_name

if TYPE_CHECKING:  # a cluster in memory needs no client of an API server, and the client is slow to import
    from extender.cluster.live.live_cluster import LiveCluster

_ENDS: Final = (*map(str, SECONDS), "+Inf")


def watch_metrics(live: "LiveCluster") -> Iterator[Metric]:
    """Metrics of lists and watches."""
    labels = ("kind",)
    followers = [((follower.resource.plural,), follower) for follower in live.followers]
    text = "Lists read: one at the start, and one each time that a watch cannot continue."
    yield counter("lists", text, labels, ((key, follower.lists) for key, follower in followers))
    text = "Watch events read, without events of pods that need no devices."
    yield counter("watch_events", text, labels, ((key, follower.events) for key, follower in followers))
    text = "Lists and watches that failed and were tried again."
    yield counter("watch_failures", text, labels, ((key, follower.failures) for key, follower in followers))


def request_metrics(live: "LiveCluster") -> Iterator[Metric]:
    """Metrics of requests."""
    request_counts = live.api.request_counts
    text = 'Requests to the API server by HTTP status ("<error>": no answer). Conflicts are those with 409.'
    answers = (((asked.verb, asked.resource, code), number) for (asked, code), number in request_counts.answers.items())
    yield counter("api_requests", text, ("verb", "resource", "code"), answers)
    text = "Reads of the API server that were tried again."
    yield counter("api_read_retries", text, (), [((), live.api.repeats)])
    text = "Time until the API server's answer; of watches, until its head."
    family = HistogramMetricFamily(full_name("api_request_duration_seconds"), text, labels=("verb",))
    for verb, durations in request_counts.durations.items():
        cumulated = [float(number) for number in accumulate(durations.buckets)]
        family.add_metric((verb,), list(zip(_ENDS, cumulated, strict=True)), durations.total)
    yield family
