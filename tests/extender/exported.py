"""Every metric that service and node part export, with its labels: found by letting everything happen once."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extender.answers.metrics.groups import Metrics
from extender.answers.metrics.scraped import ClusterMetrics, IntakeMetrics, LogMetrics
from extender.assembly import make_overview
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.framework.decisions.evaluate import Decider
from extender.kube.raw import Event, EventType
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, SLICES
from extender.node.cci.admissions import CciMetrics
from extender.tools.intake import Budget
from tests.extender.kube.live_scenes import following, make_claim
from tests.kit.clusters import NOW, local_slice, solver
from tests.kit.objects.parts import api_object
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


def exported() -> Mapping[str, Exported]:
    """The metrics by name."""
    families = text_string_to_metric_families(run(_scraped()))
    found = {}
    for family in families:
        if family.name.endswith("_created"):
            continue
        samples = family.samples
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in samples for label in sample.labels) - {"le"}
        found[name] = Exported(name, frozenset(sample.name for sample in samples), labels)
    return found


async def _scraped() -> str:
    metrics = Metrics(CollectorRegistry())
    metrics.verbs.answered("filter", "ok", 0.1)
    metrics.preemption.refused("pause")
    metrics.verbs.filtered(passed=1, failed=1, unresolvable=1, steps=1)
    metrics.controllers.asked("licenses.example.com", "allocate", "ok", 0.1)
    metrics.controllers.watch(dict, {"licenses.example.com": SimpleNamespace(problem="")})
    fake, state = FakeApi(), ClusterState()
    fake.put(CLAIMS, make_claim("a"))
    fake.put(SLICES, local_slice("a"))
    async with following(fake, state) as live:
        await elapse(1)
        limits = [{"name": "gpu", "deviceClassName": "gpu", "devices": 1}]
        quota = api_object("DeviceQuota", "gold", namespace="ns", spec={"limits": limits})
        state.apply(Event(EventType.ADDED, DEVICE_QUOTAS, quota))
        decider = Decider(solver(), state)
        overview = make_overview(live.api, state, decider, Settings(), now=lambda: NOW, live=live)
        metrics.registry.register(ClusterMetrics(overview))
        metrics.registry.register(LogMetrics(lambda: 0))
        metrics.registry.register(IntakeMetrics(Budget()))
        manager = CciMetrics(metrics.registry)
        manager.requested("")
        manager.drivers({"one.example.com"}, ())
        ProcessCollector(registry=metrics.registry)
        return generate_latest(metrics.registry).decode()
