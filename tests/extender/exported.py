"""Every metric that service and node part export, with its labels: a cluster is served, and each label used once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extender.answers.metrics import IntakeMetrics, LogMetrics
from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.faces.assembly import Surroundings, make_extender
from extender.faces.http.callers import CallerMetrics
from extender.framework.metrics import Metrics
from extender.kube.api import Event, EventType
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, PODS, SLICES
from extender.node.cci.admissions import CciMetrics
from extender.planning.templates import read_catalog
from extender.plugins.negotiation.known_controller import ControllerMetrics, KnownController
from extender.plugins.preemption.preemptor import PreemptionMetrics
from extender.tools.intake import Budget
from tests.extender.kube.live_scenes import following, make_claim
from tests.kit.clusters import DRIVER, claim, local_slice, pod, solver
from tests.kit.objects.quotas import limited, quota
from tests.kit.servers.transport import FakeApi
from tests.kit.virtualtime import elapse, run


@dataclass(frozen=True, slots=True)
class Exported:
    """A metric.

    Attributes:
        name: of its counter, gauge or histogram, as queries have it.
        samples: the names of its samples.
        labels: but those that only say which sample of a histogram it is.
    """

    name: str
    samples: frozenset[str]
    labels: frozenset[str]

    def joined(self, other: "Exported") -> "Exported":
        """The samples and the labels of both."""
        return Exported(self.name, self.samples | other.samples, self.labels | other.labels)


def exported() -> Mapping[str, Exported]:
    """The metrics by name."""
    found: dict[str, Exported] = {}
    for family in families():
        if family.name.endswith("_created"):
            continue
        samples = family.samples
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in samples for label in sample.labels) - {"le"}
        one = Exported(name, frozenset(sample.name for sample in samples), labels)
        found[name] = one if name not in found else found[name].joined(one)
    return found


def families() -> Iterator[Metric]:
    """The metrics with their samples; a metric may come twice, with other labels."""
    for text in scrapes():
        yield from text_string_to_metric_families(text)


def scrapes() -> Sequence[str]:
    """What two scrapes have in Prometheus' text format: of what has happened somewhere, and of a service."""
    return generate_latest(_with_labels()).decode(), run(_scraped())


async def _scraped() -> str:
    fake, state = FakeApi(), ClusterState()
    fake.put(CLAIMS, make_claim("a"))
    fake.put(CLAIMS, claim("held", allocated=["a/gpu-0"], at="a"))
    fake.put(SLICES, local_slice("a"))
    async with following(fake, state) as live:
        await elapse(1)
        state.apply(Event(EventType.ADDED, DEVICE_QUOTAS, quota(limited(devices=1))))
        settings = Settings()
        extender = make_extender(live.api, state, solver(), settings, around=Surroundings(live))
        state.apply(Event(EventType.ADDED, PODS, pod("waiting", "a")))
        extender.overview.usage.look(state.snapshot)
        extender.overview.usage.found_in_pieces({DRIVER: 1})
        registry = extender.service.metrics.registry
        negotiating = Negotiating(extender.negotiation.controllers, live.api)
        make_autoscaler(extender.service, negotiating, solver(), settings, read_catalog(settings))
        registry.register(LogMetrics(lambda: 0))
        registry.register(IntakeMetrics(Budget()))
        CallerMetrics(registry)
        ProcessCollector(registry=registry)
        return generate_latest(registry).decode()


def _with_labels() -> CollectorRegistry:
    """The metrics that have labels only once something has happened."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.verbs.answered("filter", "ok", 0.1)
    metrics.verbs.filtered(passed=1, failed=1, unresolvable=1, steps=1)
    PreemptionMetrics(registry).refused("pause")
    controllers = ControllerMetrics(registry)
    controllers.asked("licenses.example.com", "allocate", "ok", 0.1)
    controllers.watch(dict, {"licenses.example.com": cast("KnownController", SimpleNamespace(problem=""))})
    manager = CciMetrics(registry)
    manager.requested("")
    manager.drivers({"one.example.com"}, ())
    return registry
