"""Negotiation with the controllers of the settings, and the background tasks for it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.other_kinds import ContextWrites
from extender.cluster.writes.writer import Writer
from extender.config.settings import Settings
from extender.framework.cycle import refreshed
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import Bounds, FilterResult, filter_nodes
from extender.framework.handle import Handle
from extender.framework.pods.claims import Blocked, claims_of
from extender.framework.pods.negotiated_claims import NegotiatedClaim, ready_to_bind
from extender.framework.task import BackgroundTask
from extender.kube.api import ObjectKey
from extender.plugins.negotiation.allocating import Allocating
from extender.plugins.negotiation.known_controller import ControllerMetrics, Reach, known_controllers
from extender.plugins.negotiation.negotiation import Negotiation
from extender.plugins.negotiation.protocol import PodName
from extender.plugins.negotiation.releases import ControllerReleases, SchedulingContexts
from extender.plugins.negotiation.scheduling_contexts import Contexts
from extender.plugins.negotiation.waits import ControllerWaits
from extender.tools.offload import Offload

_SEARCH_SECONDS: Final = 0.5
"""The longest search, by the solver's clock. Filter waits for it."""


@dataclass(frozen=True, slots=True)
class OtherwiseSuitable:
    """Judges nodes as if some controllers accepted all of them: the others are worth no question.

    Source: KEP-3063, ``potentialNodes``: nodes that the scheduler has found suitable otherwise.

    Attributes:
        state: the cluster.
        decider: remembers verdicts.
        controllers: that are taken to accept all nodes. What others have answered counts.
        off_loop: where nodes are judged.
    """

    state: ClusterState
    decider: Decider
    controllers: Collection[str]
    off_loop: Offload

    async def __call__(self, pod: PodName, names: Collection[str]) -> Collection[str]:
        """The nodes that suit; all of them if none does, or if that is not found out in time."""
        snapshot = self.state.snapshot
        known = snapshot.pods.get(ObjectKey(pod.namespace, pod.name))
        if known is None or known.uid != pod.uid:
            return names
        known = refreshed(known, snapshot)
        claims = claims_of(known, snapshot)
        if isinstance(claims, Blocked):
            return names
        open_ = [each for each in claims.negotiated if each.controller in self.controllers]
        asked = [name for name in sorted(names) if name in snapshot.nodes]
        try:
            return (await self.off_loop(partial(self._judged, known, asked, snapshot, open_))).passed or names
        except TimeoutError:
            return names

    def _judged(
        self, pod: Pod, names: Sequence[str], snapshot: Snapshot, accepted: Sequence[NegotiatedClaim]
    ) -> FilterResult:
        """Filter, as if the controllers of some claims accepted all nodes."""
        solver = self.decider.solver
        until = solver.clock() + _SEARCH_SECONDS
        self.decider.follow(snapshot)
        world = ready_to_bind(accepted, snapshot)
        return filter_nodes(pod, names, world, solver.within(until), decider=self.decider, bounds=Bounds(until))


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
