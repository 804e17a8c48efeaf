"""Makes the service and what it needs from the settings."""

import importlib
import secrets
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from allocator import Clock, Limits, Selectors
from allocator.policies import POLICIES, Shape
from extender.answers.defragmentation.defragment import SuggestedMoves
from extender.answers.defragmentation.in_pieces import PiecesKeeper
from extender.answers.explain.explanation_service import Explanations, UnaskedPods
from extender.answers.explain.pod_claims import advice
from extender.answers.metrics import ClusterMetrics
from extender.answers.observe.device_history import DeviceHistory
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.overview import ClaimCounts, Overview, PendingPods
from extender.answers.observe.pool_sizes import PoolSizes
from extender.answers.observe.problems import (
    OfClaims,
    OfPods,
    OfSchedulers,
    Problems,
    UnmatchedClasses,
    of_pools,
    of_selectors,
    unmarked,
    unreadable,
)
from extender.answers.observe.scheduler_settings import OfSchedulerFile
from extender.answers.usage.past import Ask, PastReader
from extender.answers.usage.usage import Usage, UsageMetrics
from extender.autoscaler.scale_up.new_nodes import SuggestedNodes
from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations
from extender.cluster.objects.pods import Pod
from extender.cluster.whole_pods import WholePods
from extender.cluster.writes.events import Recorder
from extender.cluster.writes.writer import Writer
from extender.config.settings import Settings, ShapeSettings, UsageSettings
from extender.framework.asked import Asked
from extender.framework.background_runner import BackgroundRunner
from extender.framework.bind.bind import Binder
from extender.framework.bind.plan import BindTimes, Reports
from extender.framework.cluster_with_kept import ClusterWithKept
from extender.framework.decision_log import DecisionLog
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.shapes import Shapes
from extender.framework.decisions.solver import Solver
from extender.framework.handle import Handle
from extender.framework.metrics import Metrics
from extender.framework.problem import Find
from extender.framework.service import Service
from extender.framework.task import BackgroundTask
from extender.kube.api import Api
from extender.planning.changes import Suggest
from extender.planning.templates import Catalog
from extender.plugins import (
    abandoned_claims,
    binding_conditions,
    deallocate,
    immediate_claims,
    lost_claims,
    orphans,
    pinned_claims,
    pool_requests,
    unknown_writes,
)
from extender.plugins.admission_checks import task as admission_checks
from extender.plugins.gangs import plugin as gang_problems
from extender.plugins.gangs import task as gangs
from extender.plugins.immediate_claims import ImmediateClaims
from extender.plugins.negotiation.known_controller import Reach
from extender.plugins.negotiation.negotiation import Negotiation
from extender.plugins.negotiation.protocol import Controller
from extender.plugins.negotiation.tasks import NegotiatedClaims, negotiated_claims
from extender.plugins.pinned_claims import PinnedClaims
from extender.plugins.preemption import preemptor as preemption
from extender.plugins.quota import limit_use
from extender.plugins.quota import limit_use as quota_status
from extender.plugins.requeue import requeue, rescan, unserved
from extender.plugins.resource_classes import task as resource_classes
from extender.plugins.scheduling_gates import task as scheduling_gates
from extender.plugins.second_opinion import task as second_opinion
from extender.plugins.second_opinion.task import Disagreements
from extender.plugins.table import PLUGINS
from extender.tools.intake import Budget
from extender.tools.offload import Offload, in_thread
from extender.tools.verb_priority import VerbPriority

if TYPE_CHECKING:  # a cluster in memory needs no client of an API server, and the client is slow to import
    from extender.cluster.live import LiveCluster


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a service besides its API server.

    Attributes:
        live: follows the API server; None for a cluster in this process.
        controllers: reach controllers of the settings in another way than by HTTP; by name.
        simulation: controllers are told to allocate nothing.
        now: the time.
        budget: of memory for what comes from outside.
        catalog: what nodes of a group bring that do not exist yet.
        has_schedulers: schedulers follow the cluster, so a pod that is woken is tried again. Otherwise none is woken.
        verb_priority: knows when verbs run.
        in_background: where searches of background tasks run; None: where all searches run.
        whole_pods: lists all pods for answers; None: the state has them, or nobody has.
        read_scheduler_file: reads the file that `scheduling.schedulerFile` names; None: it names none.
        prometheus: reaches the Prometheus of the settings in another way than by HTTP.
    """

    live: "LiveCluster | None" = None
    controllers: Mapping[str, Controller] = field(default_factory=dict)
    simulation: bool = False
    now: Callable[[], datetime] = field(default=partial(datetime.now, UTC))
    budget: Budget = field(default_factory=Budget)
    catalog: Catalog = field(default_factory=Catalog)
    has_schedulers: bool = True
    verb_priority: VerbPriority = field(default_factory=VerbPriority)
    in_background: Offload | None = None
    whole_pods: WholePods | None = None
    read_scheduler_file: Callable[[], str] | None = None
    prometheus: Ask | None = None


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
    """All that answers about one cluster: schedulers ask the service, people the overview and the explanations.

    Attributes:
        negotiation: with the controllers of negotiated claims.
        pinned: serves pods that have a node already.
        immediate: allocates claims that no pod needs yet.
    """

    service: Service
    overview: Overview
    explanations: Explanations
    negotiation: Negotiation
    pinned: PinnedClaims
    immediate: ImmediateClaims


def make_extender(
    api: Api,
    state: ClusterState,
    solver: Solver,
    settings: Settings,
    *,
    around: Surroundings = ALONE,
    off_loop: Offload = in_thread,
) -> Extender:
    """Make the service of a cluster from its API server, the known state, the surroundings, and where searches run."""
    writer, decider, metrics = Writer(api, state, now=around.now), Decider(solver, state), Metrics(CollectorRegistry())
    reach = Reach(around.budget, around.controllers, around.simulation)
    negotiated = negotiated_claims(writer, decider, settings, reach, metrics.registry, off_loop)
    tell = Recorder(api, writer.now, instance=socket.gethostname(), has_claim=state.has_claim).record
    reports = Reports(DoubleAllocations(metrics.binds.clashed, tell), _waiting_times(metrics, writer.now), tell)
    negotiation, times = negotiated.negotiation, _bind_times(settings)
    binder = Binder(state, writer, solver, reports, plugins=(negotiation,), times=times, off_loop=off_loop)
    handle = Handle(
        writer=writer,
        kept=ClusterWithKept(decider, state),
        binder=binder,
        background=BackgroundRunner(state, Asked(solver.clock, settings.scheduling.scheduler_names), solver.faults),
        double_allocations=reports.double_allocations,
        tell=tell,
        registry=metrics.registry,
        settings=settings,
        off_loop=off_loop,
        in_background=around.in_background or off_loop,
        replica=f"{socket.gethostname()}_{secrets.token_hex(8)}",
        has_schedulers=around.has_schedulers,
    )
    asked = handle.background.asked
    disagreements = Disagreements()
    finds = partial(_finds, asked, disagreements, settings, around)
    overview = make_overview(api, state, decider, settings, finds, around=around, off_loop=off_loop)
    suggest = suggestions(around.catalog, settings)
    explanations = Explanations(overview, negotiation, settings.scheduling, suggest, handle.in_background)
    for tasks in _tasks(negotiated, explanations, disagreements):
        handle.background.tasks.extend(tasks(handle))
    handle.background.tasks.extend(overview.keepers(tell, asked, handle.in_background))
    handle.background.tasks.append(_pieces_keeper(overview, asked, handle.in_background))
    handle.background.tasks.extend(_past_readers(overview.usage, settings.usage, around.prometheus))
    metrics.registry.register(ClusterMetrics(overview))
    metrics.registry.register(UsageMetrics(overview.usage))
    service = Service(handle, metrics, overview.verb_priority, off_loop)
    pinned, immediate = PinnedClaims(binder.claims, off_loop), ImmediateClaims(state, decider, binder, off_loop)
    return Extender(service, overview, explanations, negotiation, pinned, immediate)


def _pieces_keeper(overview: Overview, asked: Asked, in_background: Offload) -> PiecesKeeper:
    """The task that tells usage of devices in pieces. It waits for no search, so the clock is a plain one."""
    tell, solver = overview.usage.found_in_pieces, overview.decider.solver
    return PiecesKeeper(overview.state, tell, solver, overview.decision_log, asked, time.monotonic, in_background)


def _past_readers(usage: Usage, settings: UsageSettings, ask: Ask | None) -> Iterator[BackgroundTask]:
    """The task that reads usage from Prometheus, if the settings name one."""
    if settings.prometheus:
        # the client is slow to import
        client = ask or importlib.import_module("extender.answers.usage.prometheus").Prometheus(settings)
        yield PastReader(usage, client, settings.selector)


def _tasks(
    negotiated: NegotiatedClaims, explanations: Explanations, disagreements: Disagreements
) -> Sequence[Callable[[Handle], Iterable[BackgroundTask]]]:
    """The functions that make the background tasks of each feature, in the order of their turns.

    A task comes before those that it may help. So the first ones give devices back; then come those that ask
    controllers, that plan gangs and evictions, that wake pods, that lift their gates, that answer about jobs, and that
    allocate what no scheduler asks about. The last one only judges.
    """
    told = explanations.overview.told
    return (
        rescan.tasks,
        binding_conditions.tasks,
        orphans.tasks,
        unknown_writes.tasks,
        abandoned_claims.tasks,
        partial(unserved.tasks, find_cause=explanations.cause, told=told),
        lost_claims.tasks,
        quota_status.tasks,
        resource_classes.tasks,
        pool_requests.tasks,
        deallocate.tasks,
        negotiated.tasks,
        gangs.tasks,
        preemption.tasks,
        requeue.tasks,
        scheduling_gates.tasks,
        admission_checks.tasks,
        pinned_claims.tasks,
        immediate_claims.tasks,
        partial(second_opinion.tasks, disagreements),
    )


def _finds(
    asked: Asked, disagreements: Disagreements, settings: Settings, around: Surroundings, states: DeviceStates
) -> Sequence[Find]:
    """The finders of problems of each feature, in the order in which problems are forgotten for want of room."""
    return (
        unreadable,
        of_pools,
        UnmatchedClasses(),
        OfPods(advice),
        of_selectors,
        disagreements.problems,
        OfClaims(states),
        OfSchedulers(asked),
        OfSchedulerFile(around.read_scheduler_file, settings),
        gang_problems.problems,
        limit_use.problems,
        resource_classes.problems,
        scheduling_gates.problems(settings),
        admission_checks.problems(settings),
        *([unmarked] if settings.scheduling.marked_pods_only else []),
    )


def _bind_times(settings: Settings) -> BindTimes:
    """The times that calls of bind may take, and that claims may wait."""
    scheduling = settings.scheduling
    return BindTimes(scheduling.deadline_seconds, timedelta(seconds=scheduling.binding_timeout_seconds))


def suggestions(catalog: Catalog, settings: Settings) -> Sequence[Suggest]:
    """The finders of further changes for a pod that fits nowhere: moves of other pods, and new nodes of a group."""
    return SuggestedMoves(settings.scheduling.scheduler_names), SuggestedNodes(catalog)


def _waiting_times(metrics: Metrics, now: Callable[[], datetime]) -> Callable[[Pod], None]:
    """Tells metrics how long each pod has waited until its claims were allocated."""

    def allocated(pod: Pod) -> None:
        if pod.created:
            metrics.binds.allocated((now() - datetime.fromisoformat(pod.created)).total_seconds())

    return allocated


def make_overview(
    api: Api,
    state: ClusterState,
    decider: Decider,
    settings: Settings,
    finds: Callable[[DeviceStates], Sequence[Find]],
    *,
    around: Surroundings = ALONE,
    off_loop: Offload = in_thread,
) -> Overview:
    """The overview that people and metrics see of a service; ``finds`` makes the finders of problems."""
    features, schedulers = decider.solver.features, settings.scheduling.scheduler_names
    kept = settings.server.decisions
    decision_log = DecisionLog(
        kept,
        now=around.now,
        clock=time.perf_counter,
        new_id=lambda: secrets.token_hex(4),
        has_pod=lambda uid: uid in state.snapshot.pod_keys,
    )
    states = DeviceStates(features)
    problems = Problems(finds(states), decider.solver, decision_log, around.now)
    marked_only = settings.scheduling.marked_pods_only
    unasked = UnaskedPods(decider, around.verb_priority.turn, schedulers, marked_only=marked_only)
    return Overview(
        api,
        state,
        features,
        decision_log,
        states,
        ClaimCounts(state),
        PendingPods(state, decision_log, schedulers),
        DeviceHistory(state, around.now, pause=decider.solver.clock),
        PoolSizes(state),
        Usage(state, around.now, decider.solver.clock),
        decider,
        problems,
        around.now,
        around.live,
        schedulers,
        off_loop,
        verb_priority=around.verb_priority,
        whole_pods=around.whole_pods,
        unasked=None if around.has_schedulers else unasked,
    )
