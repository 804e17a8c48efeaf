"""Metrics that are computed at each scrape: the known cluster, its watches, and this process."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.kube.connection.transport import SECONDS
from extender.tools.intake import Budget
from extender.tools.metrics import counter, full_name, gauge

if TYPE_CHECKING:  # a cluster in memory needs no client of an API server, and the client is slow to import
    from extender.cluster.live import LiveCluster
from collections import Counter

from extender.answers.observe.overview import Overview
from extender.tools.version import __version__


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


class ClusterMetrics(Collector):
    """The metrics of an overview, worked out at each scrape."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def collect(self) -> Iterator[Metric]:
        """All metrics; metrics of watches and requests only for a live cluster."""
        yield gauge("build_info", "The running version; always 1.", ("version",), [((__version__,), 1)])
        yield from self._kinds()
        snapshot = self._overview.state.snapshot
        devices = self._overview.devices.count(snapshot)
        yield gauge(
            "devices",
            "Devices of the newest generations, by state, and by whether they are hardware of their own or partitions. "
            "Only those that are free or shared can be handed out.",
            ("driver", "kind", "state"),
            (((driver, kind.value, state.value), number) for (driver, kind, state), number in devices.items()),
        )
        text = "Pools, and nodes, with more devices than a search has time for."
        large = Counter(each.kind for each in self._overview.sizes.too_large(snapshot))
        yield gauge("too_many_devices", text, ("scope",), [((kind,), large[kind]) for kind in ("pool", "node")])
        text = "Claims by state, as in the table of claims, and by what they were made from."
        claims = self._overview.claims.count(snapshot)
        values = (((state.value, source.value), number) for (state, source), number in claims.items())
        yield gauge("claims", text, ("state", "source"), values)
        text = "Pods with devices that have no node yet, by what the latest answer about them says."
        pending = self._overview.pending.count(snapshot)
        yield gauge("pending_pods", text, ("reason",), (((each.value,), number) for each, number in pending.items()))
        text = "Problems that the latest look has found, as in the table of problems."
        problems = self._overview.problems.counts().items()
        yield gauge("problems", text, ("cause",), (((cause,), number) for cause, number in problems))
        decider = self._overview.decider
        verdicts = [(("memory",), decider.asked - decider.solved), (("search",), decider.solved)]
        text = "Nodes that were decided from memory (of the node, or of equal nodes) or by search."
        yield counter("node_verdicts", text, ("source",), verdicts)
        text = "Allocations that are decided but not seen on the API server yet."
        yield gauge("allocations_in_flight", text, (), [((), len(snapshot.assumed))])
        if self._overview.live is not None:
            yield from watch_metrics(self._overview.live)
            yield from request_metrics(self._overview.live)

    def _kinds(self) -> Iterator[Metric]:
        kinds = self._overview.kinds()
        labels = ("kind",)
        text = "Objects in memory; only pods that may need devices are kept."
        yield gauge("objects", text, labels, (((each.kind,), each.objects) for each in kinds))
        text = "Objects that cannot be read and count as absent."
        yield gauge("unreadable_objects", text, labels, (((each.kind,), each.unreadable) for each in kinds))
        text = "1 if the state of a kind is reliable; 0 before it is synced and if it is too old."
        yield gauge("kind_ready", text, labels, (((each.kind,), not each.problem) for each in kinds))
        text = "Seconds since the last message of a kind's watch."
        ages = (((each.kind,), each.age) for each in kinds if each.age is not None)
        yield gauge("watch_age_seconds", text, labels, ages)
