"""Makes the service and what it needs from the settings."""

import secrets
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from allocator import Clock, Limits, Selectors
from allocator.policies import POLICIES, Shape
from extender.answers.defragmentation.defragment import SuggestedMoves
from extender.answers.explain.explanation_service import Explanations
from extender.answers.metrics.scraped import ClusterMetrics
from extender.answers.observe.counts import ClaimCounts, PendingPods
from extender.answers.observe.device_history import DeviceHistory
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.keepers import HistoryKeeper, SizesKeeper, StatesKeeper
from extender.answers.observe.overview import Overview
from extender.answers.observe.pool_sizes import PoolSizes
from extender.autoscaler.scale_up.suggested_nodes import SuggestedNodes
from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.claims.claim_writes import ClaimWrites
from extender.cluster.writes.events import Recorder
from extender.cluster.writes.lease import (
    ALL_LEASES,
    IMMEDIATE_CLAIMS,
    LONG,
    PINNED_PODS,
    QUOTA_STATUS,
    RESOURCE_CLASSES,
    SHORT,
    SharedLease,
)
from extender.cluster.writes.pods import Evictor, Nominator
from extender.cluster.writes.scheduling_contexts import ContextWrites
from extender.cluster.writes.writer import Writer
from extender.config.settings import Settings, ShapeSettings
from extender.framework.asked import Asked
from extender.framework.background_runner import BackgroundRunner
from extender.framework.bind.bind import Binder, Reports
from extender.framework.bind.plan import BindTimes
from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.shapes import Shapes
from extender.framework.decisions.solver import Solver
from extender.framework.kept_of_bound import KeptOfBound
from extender.framework.metrics import Metrics
from extender.framework.nominated.cluster_with_kept import ClusterWithKept
from extender.framework.service import Service
from extender.framework.task import BackgroundTask
from extender.kube.api import Api, ObjectKey
from extender.planning.changes import Suggest
from extender.planning.templates.catalog import Catalog
from extender.plugins.binding_conditions.timeout import BindingTimeout
from extender.plugins.claim_upkeep.lost_claims import LostClaims
from extender.plugins.claim_upkeep.orphans import OrphanCollector
from extender.plugins.gangs.in_part import GangsInPart
from extender.plugins.gangs.metrics import GangMetrics
from extender.plugins.gangs.task import Gangs
from extender.plugins.immediate_claims.allocating import ImmediateClaims
from extender.plugins.immediate_claims.task import ImmediateAllocation
from extender.plugins.negotiation.allocating import Allocating
from extender.plugins.negotiation.context_upkeep import SchedulingContexts
from extender.plugins.negotiation.controller import Controller
from extender.plugins.negotiation.deallocation import Deallocation
from extender.plugins.negotiation.deallocator import Deallocator
from extender.plugins.negotiation.known_controllers import Reach, known_controllers
from extender.plugins.negotiation.metrics import ControllerMetrics
from extender.plugins.negotiation.negotiation import Negotiation
from extender.plugins.negotiation.otherwise_suitable import OtherwiseSuitable
from extender.plugins.negotiation.releases import ControllerReleases
from extender.plugins.negotiation.scheduling_contexts import Contexts
from extender.plugins.negotiation.waits import ControllerWaits
from extender.plugins.pinned_claims.task import PinnedPods
from extender.plugins.pool_requests import PoolRequests
from extender.plugins.preemption.eviction_limits import EvictionCaps, EvictionLimits
from extender.plugins.preemption.metrics import PreemptionMetrics
from extender.plugins.preemption.preemptor import PreemptionWrites, Preemptor
from extender.plugins.preemption.scheduler_evictions import SchedulerEvictions
from extender.plugins.quota.status import QuotaStatus
from extender.plugins.requeue.requeue import Requeue
from extender.plugins.requeue.rescan import Rescan
from extender.plugins.requeue.unserved import Unserved
from extender.plugins.resource_classes.task import ResourceClasses
from extender.plugins.table import PLUGINS
from extender.tools.intake import Budget
from extender.tools.offload import Offload, in_thread

if TYPE_CHECKING:  # a cluster in memory needs no client of an API server, and the client is slow to import
    from extender.cluster.live import LiveCluster


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is around a service besides its API server.

    Attributes:
        live: follows the API server; None for a cluster in this process.
        controllers: reach controllers of the settings in another way than by HTTP; by name.
        simulation: controllers are told to allocate nothing.
        now: the time.
        budget: of memory for what comes from outside.
        catalog: what nodes of a group bring that do not exist yet.
        has_schedulers: schedulers follow the cluster, so a pod that is woken is tried again. Otherwise none is woken.
    """

    live: "LiveCluster | None" = None
    controllers: Mapping[str, Controller] = field(default_factory=dict)
    simulation: bool = False
    now: Callable[[], datetime] = field(default=partial(datetime.now, UTC))
    budget: Budget = field(default_factory=Budget)
    catalog: Catalog = field(default_factory=Catalog)
    has_schedulers: bool = True


ALONE: Final = Surroundings()


def make_solver(settings: Settings, clock: Clock = time.monotonic) -> Solver:
    """The allocator by the settings; `extender.tools.offload.Searches` may replace the clock."""
    scheduling = settings.scheduling
    selectors = Selectors()
    # The first expression also loads the parser. That can take longer than one node may, and no pod is to wait for it.
    selectors.reads("true")
    return Solver(
        selectors=selectors,
        clock=clock,
        new_share_id=lambda: str(uuid.uuid4()),
        plugins=PLUGINS,
        policy=POLICIES[scheduling.policy],
        limits=Limits(scheduling.max_steps, scheduling.max_seconds),
        features=settings.features,
        shapes=Shapes(selectors, settings.features, _weights(scheduling.shapes)),
    )


def _weights(shapes: Sequence[ShapeSettings]) -> Mapping[Shape, float] | None:
    """The weights of shapes that are set; None: none is."""
    weights: dict[Shape, float] = {}
    for each in shapes:
        weights[each.shape] = weights.get(each.shape, 0.0) + each.weight
    return weights or None


@dataclass(frozen=True, slots=True)
class Extender:
    """All that answers about one cluster: schedulers ask the service, people the overview and the explanations."""

    service: Service
    overview: Overview
    explanations: Explanations


def make_extender(
    api: Api,
    state: ClusterState,
    solver: Solver,
    settings: Settings,
    metrics: Metrics,
    *,
    around: Surroundings = ALONE,
    off_loop: Offload = in_thread,
) -> Extender:
    """What answers about a cluster: API server, known state, what else is around it, and where searches run."""
    writer, decider = Writer(api, state, now=around.now), Decider(solver, state)
    contexts = _contexts(api, state, decider, settings, off_loop)
    negotiation, counts = _negotiation(contexts, ClaimWrites(api, state), solver.clock, settings, metrics, around)
    deallocation = Deallocation(negotiation.controllers, ClaimWrites(api, state))
    tell = Recorder(api, writer.now, instance=socket.gethostname()).record
    reports = Reports(DoubleAllocations(metrics.claims.clashed, tell), _waiting_times(metrics, writer.now), tell)
    scheduling, now, faults, times = settings.scheduling, around.now, solver.faults, _bind_times(settings)
    binder = Binder(state, writer, solver, reports, negotiation=negotiation, times=times, off_loop=off_loop)
    kept, asked = ClusterWithKept(decider, state), Asked(solver.clock, scheduling.scheduler_names)
    leases, gang_counts = _leases(api, now, solver.clock), GangMetrics(metrics.registry)
    requeue = Requeue(state, kept, writer, metrics.pods.woken, off_loop)
    writes = PreemptionWrites(Nominator(api, now), Evictor(api, now, tell), binder.give_back)
    gangs = Gangs(state, decider, writes.nominator, writer, binder.is_binding, gang_counts, off_loop)
    allocating = ImmediateClaims(state, decider, binder.pinned, off_loop, negotiation)
    immediate = ImmediateAllocation(state, allocating, leases[IMMEDIATE_CLAIMS], solver, tell, now)
    overview = make_overview(api, state, decider, settings, now=now, live=around.live, off_loop=off_loop)
    tasks = (
        BindingTimeout(state, solver.features, binder, reports.double_allocations, now, tell, faults),
        OrphanCollector(state, binder, now, faults),
        Unserved(state, tell, now, faults),
        LostClaims(state, api, metrics.claims.lost, tell),
        *_status_tasks(api, state, solver, leases, now, off_loop),
        Deallocator(state, writer, deallocation, binder.is_binding, faults, _deallocated(requeue, metrics)),
        *_controller_tasks(negotiation, contexts, deallocation, solver, counts, _judging(requeue, gangs), immediate),
        gangs,
        GangsInPart(state, tell, gang_counts, asked, solver.clock),
        *_eviction_tasks(writer, decider, writes, binder, settings, metrics, off_loop),
        *([requeue] if around.has_schedulers else []),
        PinnedPods(state, binder.pinned, leases[PINNED_PODS], solver, asked, tell, now),
        immediate,
        *_keepers(overview, off_loop),
    )
    rescan = [Rescan(state, writer, tasks, asked, solver.clock, faults)] if around.has_schedulers else []
    runner = BackgroundRunner((*rescan, *tasks), asked, faults, tuple(leases.values()))
    verbs = overview.verb_priority.offload(off_loop)
    service = Service(state, kept, binder, runner, metrics, scheduling=scheduling, off_loop=verbs)
    suggest = suggestions(around.catalog, settings)
    metrics.registry.register(ClusterMetrics(overview))
    return Extender(service, overview, Explanations(overview, negotiation, scheduling, suggest))


def _bind_times(settings: Settings) -> BindTimes:
    """How long calls of bind may take, and how long claims may wait."""
    scheduling = settings.scheduling
    return BindTimes(scheduling.deadline_seconds, timedelta(seconds=scheduling.binding_timeout_seconds))


def suggestions(catalog: Catalog, settings: Settings) -> Sequence[Suggest]:
    """What finds further changes for a pod that fits nowhere: moves of other pods, and new nodes of a group."""
    return SuggestedMoves(settings.scheduling.scheduler_names), SuggestedNodes(catalog)


def _eviction_tasks(
    writer: Writer,
    decider: Decider,
    writes: PreemptionWrites,
    binder: Binder,
    settings: Settings,
    metrics: Metrics,
    off_loop: Offload,
) -> tuple[BackgroundTask, ...]:
    """The background tasks for both ways to evict pods, which share their limits."""
    state, solver, set_caps = writer.state, decider.solver, settings.evictions
    counts = PreemptionMetrics(metrics.registry)
    caps = EvictionCaps(set_caps.for_pod, set_caps.of_namespace, set_caps.for_namespace)
    limits = EvictionLimits(caps, solver.clock, counts.refused)
    others = (SchedulerEvictions(state, limits, solver, writer, off_loop), KeptOfBound(state, writes.nominator))
    if not settings.scheduling.preemption:
        return others
    preemptor = Preemptor(state, decider, writes, binder.is_binding, counts, limits, off_loop)
    return *others, preemptor


def _leases(api: Api, now: Callable[[], datetime], clock: Clock) -> Mapping[ObjectKey, SharedLease]:
    """All leases, which this replica takes when it has work."""
    replica = f"{socket.gethostname()}_{secrets.token_hex(8)}"
    times = {key: LONG if key == QUOTA_STATUS else SHORT for key in ALL_LEASES}
    return {key: SharedLease(api, key, replica, now, clock, lasting) for key, lasting in times.items()}


def _contexts(api: Api, state: ClusterState, decider: Decider, settings: Settings, off_loop: Offload) -> Contexts:
    """The PodSchedulingContexts of the controllers that are asked by them."""
    controllers = frozenset(each.name for each in settings.controllers if each.transport != "Http")
    suitable = OtherwiseSuitable(state, decider, controllers, off_loop)
    return Contexts(ContextWrites(api), state, decider.solver.clock, suitable)


def _negotiation(
    contexts: Contexts,
    claims: ClaimWrites,
    clock: Clock,
    settings: Settings,
    metrics: Metrics,
    around: Surroundings,
) -> tuple[Negotiation, ControllerMetrics]:
    """Negotiation with the controllers of the settings, and what counts their answers."""
    counts = ControllerMetrics(metrics.registry)
    by = (clock, around.now, counts, contexts, claims)
    controllers = known_controllers(settings.controllers, Reach(around.budget, around.controllers), *by)
    return Negotiation(claims.state, Allocating(controllers, claims, around.now, around.simulation), clock), counts


def _controller_tasks(
    negotiation: Negotiation,
    contexts: Contexts,
    deallocation: Deallocation,
    solver: Solver,
    metrics: ControllerMetrics,
    judge_anew: Callable[[Pod], None],
    immediate_claims: ImmediateAllocation,
) -> tuple[BackgroundTask, ...]:
    """The background tasks for negotiated claims; what they may help is tried by tasks that come after them."""
    clock, faults, claims = solver.clock, solver.faults, deallocation.claims
    waits = ControllerWaits(claims.state, negotiation, clock, faults, judge_anew)
    metrics.watch(waits.waiting, negotiation.controllers)

    def released(controller: str) -> None:
        waits.released(controller)
        immediate_claims.released(controller)

    releases = ControllerReleases(claims.state, claims, negotiation, clock, faults, released)
    if not any(each.writes_claims for each in negotiation.controllers.values()):
        return releases, waits
    return releases, waits, SchedulingContexts(contexts, deallocation, clock)


def _status_tasks(
    api: Api,
    state: ClusterState,
    solver: Solver,
    leases: Mapping[ObjectKey, SharedLease],
    now: Callable[[], datetime],
    off_loop: Offload,
) -> tuple[BackgroundTask, ...]:
    """The background tasks that keep statuses and objects up with the cluster."""
    return (
        QuotaStatus(state, api, leases[QUOTA_STATUS], solver, off_loop),
        ResourceClasses(state, api, leases[RESOURCE_CLASSES], solver.clock, now),
        PoolRequests(state, api, solver.clock, now, off_loop),
    )


def _keepers(overview: Overview, off_loop: Offload) -> tuple[BackgroundTask, ...]:
    """The background tasks that keep up what people look at. They wait for no search, so the clock is a plain one."""
    state = overview.state
    return (
        HistoryKeeper(state, overview.history),
        StatesKeeper(state, overview.devices, time.monotonic, off_loop),
        SizesKeeper(state, overview.sizes),
    )


def _deallocated(requeue: Requeue, metrics: Metrics) -> Callable[[Pod], None]:
    """Tells metrics of claims that are deallocated for a pod. The claim's update wakes the pod."""

    def deallocated(woken: Pod) -> None:
        requeue.forget(woken)
        metrics.claims.deallocated(1)

    return deallocated


def _judging(requeue: Requeue, gangs: Gangs) -> Callable[[Pod], None]:
    """Tells that a pod may fit now. The pods of gangs are woken with their gangs."""

    def judge_anew(pod: Pod) -> None:
        requeue.judge_anew(pod)
        gangs.judge_anew(pod)

    return judge_anew


def _waiting_times(metrics: Metrics, now: Callable[[], datetime]) -> Callable[[Pod], None]:
    """Tells metrics how long each pod has waited until its claims were allocated."""

    def allocated(pod: Pod) -> None:
        if pod.created:
            metrics.pods.allocated((now() - datetime.fromisoformat(pod.created)).total_seconds())

    return allocated


def make_overview(
    api: Api,
    state: ClusterState,
    decider: Decider,
    settings: Settings,
    *,
    now: Callable[[], datetime],
    live: "LiveCluster | None" = None,
    off_loop: Offload = in_thread,
) -> Overview:
    """What people and metrics see of a service."""
    features, schedulers = decider.solver.features, settings.scheduling.scheduler_names
    kept = settings.server.decisions
    decision_log = DecisionLog(kept, now=now, clock=time.perf_counter, new_id=lambda: secrets.token_hex(4))
    return Overview(
        api,
        state,
        features,
        decision_log,
        DeviceStates(features),
        ClaimCounts(state),
        PendingPods(state, decision_log, schedulers),
        DeviceHistory(state, now),
        PoolSizes(state),
        decider,
        now,
        live,
        schedulers,
        off_loop,
    )
