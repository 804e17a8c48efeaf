"""The metrics of a service, one group for each noun.

The groups here count what happens, when it happens. The metrics in `cluster` and `log` are computed at each scrape.
"""

from prometheus_client import CollectorRegistry

from extender.metrics.autoscaler_sessions import SessionMetrics
from extender.metrics.callers import CallerMetrics
from extender.metrics.claims import ClaimMetrics
from extender.metrics.controllers import ControllerMetrics
from extender.metrics.gangs import GangMetrics
from extender.metrics.pods import PodMetrics
from extender.metrics.preemption import PreemptionMetrics
from extender.metrics.verbs import VerbMetrics


class Metrics:
    """The metrics, named and bucketed as kube-scheduler's are.

    Args:
        registry: has all metrics. It is an argument, so that two services in one process do not share numbers.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.verbs = VerbMetrics(registry)
        self.claims = ClaimMetrics(registry)
        self.pods = PodMetrics(registry)
        self.preemption = PreemptionMetrics(registry)
        self.gangs = GangMetrics(registry)
        self.controllers = ControllerMetrics(registry)
        self.callers = CallerMetrics(registry)
        self.sessions = SessionMetrics(registry)
