"""Negotiation with the controllers of the settings, and the background tasks for it."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.scheduling_contexts import ContextWrites
from extender.cluster.writes.writer import Writer
from extender.config.settings import Settings
from extender.framework.decisions.evaluate import Decider
from extender.framework.handle import Handle
from extender.framework.task import BackgroundTask
from extender.plugins.negotiation.allocating import Allocating
from extender.plugins.negotiation.context_upkeep import SchedulingContexts
from extender.plugins.negotiation.known_controllers import Reach, known_controllers
from extender.plugins.negotiation.metrics import ControllerMetrics
from extender.plugins.negotiation.negotiation import Negotiation
from extender.plugins.negotiation.otherwise_suitable import OtherwiseSuitable
from extender.plugins.negotiation.releases import ControllerReleases
from extender.plugins.negotiation.scheduling_contexts import Contexts
from extender.plugins.negotiation.waits import ControllerWaits
from extender.tools.offload import Offload


@dataclass(frozen=True, slots=True)
class NegotiatedClaims:
    """All that serves negotiated claims.

    Attributes:
        negotiation: with the controllers of the settings.
        contexts: the PodSchedulingContexts of the controllers that are asked by them.
        metrics: count what controllers answer.
    """

    negotiation: Negotiation
    contexts: Contexts
    metrics: ControllerMetrics

    def tasks(self, handle: Handle) -> Iterator[BackgroundTask]:
        """The background tasks. What they may help is tried by tasks that come after them."""
        state, clock, faults, background = handle.state, handle.clock, handle.faults, handle.background
        claims, controllers = ClaimWrites(handle.api, state), self.negotiation.controllers
        yield ControllerReleases(state, claims, self.negotiation, clock, faults, background.note_released)
        waits = ControllerWaits(state, self.negotiation, clock, faults, background.judge_anew)
        self.metrics.watch(waits.waiting, controllers)
        yield waits
        if any(each.writes_claims for each in controllers.values()):
            yield SchedulingContexts(self.contexts, self.negotiation.deallocation, clock)


def negotiated_claims(
    writer: Writer, decider: Decider, settings: Settings, reach: Reach, registry: CollectorRegistry, off_loop: Offload
) -> NegotiatedClaims:
    """Make what serves negotiated claims."""
    api, state, clock = writer.api, writer.state, decider.solver.clock
    by_context = frozenset(each.name for each in settings.controllers if each.transport != "Http")
    suitable = OtherwiseSuitable(state, decider, by_context, off_loop)
    contexts = Contexts(ContextWrites(api), state, clock, suitable)
    claims, metrics = ClaimWrites(api, state), ControllerMetrics(registry)
    controllers = known_controllers(settings.controllers, reach, clock, writer.now, metrics, contexts, claims)
    allocating = Allocating(controllers, claims, writer.now, reach.simulation)
    return NegotiatedClaims(Negotiation(state, allocating, clock), contexts, metrics)
