"""Running the service: connect a cluster, make the collaborators, and serve until a signal comes.

Messages about a start say what takes long, and what the first lists have brought.
"""

import asyncio
import contextlib
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
import uvloop
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, ProcessCollector

from allocator import DEFAULTS_OF
from extender.answers.metrics import IntakeMetrics, LogMetrics
from extender.answers.observe.scheduler_settings import scheduler_file_of
from extender.autoscaler.autoscaler import Autoscaler, make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import FollowTiming, LiveCluster, Timing, connect
from extender.cluster.whole_pods import WholePods
from extender.config.settings import Settings
from extender.faces.assembly import Extender, Surroundings, make_extender, make_solver
from extender.faces.grpc.opening import open_grpc
from extender.faces.http.app import Listener, create_app
from extender.faces.http.callers import CallerMetrics, Guard, Refusals
from extender.faces.http.connections import API, OPERATIONS, verbs_within
from extender.faces.serving.listeners import (
    FurtherServer,
    MainServer,
    Ports,
    allowed_descriptors,
    beside,
    following,
    open_ports,
    server_config,
)
from extender.faces.serving.memory import (
    MemoryLimit,
    give_back_early,
    heap_of_process,
    memory_limit,
    mind_memory,
    sparing_survivors,
    undisturbed_start,
)
from extender.faces.tracing import UNTRACED, Tracing
from extender.kube.access import REVIEWS, Clocks, Gate, Reviews
from extender.kube.api import Api
from extender.kube.connection.credentials import Origin
from extender.kube.discovery import server_gates
from extender.kube.permissions import ANSWERS_CHECKS, EVICTS, LIFTS_GATES, WRITES, Use
from extender.kube.remote import RemoteApi
from extender.kube.resources import OF_KUEUE, RESOURCES
from extender.lab.cluster import EmbeddedCluster
from extender.planning.templates import Catalog, read_catalog
from extender.tools import logs
from extender.tools.intake import BUDGET_SHARE, Budget
from extender.tools.offload import Searches, switching_soon

logger = structlog.get_logger()

PROGRESS_SECONDS: Final = 2.0
"""A start that takes longer says what it waits for, and again after each further time of this length."""

_LOOK_SECONDS: Final = 0.1

_MOST_NAMED: Final = 2
"""Kinds that a line on a terminal names."""

_EVERYWHERE: Final = re.compile(r"(?<=://)(?:0\.0\.0\.0|\[::\])(?=[:/]|$)")
"""The host of a service that listens on all addresses. Nobody can open it."""


async def tell_of_first_lists(state: ClusterState, draw: Callable[[str], None] | None = None) -> None:
    """Wait until every kind is listed; meanwhile say which ones are not, and at the end what there is.

    Args:
        state: of the cluster.
        draw: shows a line on a terminal in place of the one before, instead of lines in the log; empty: none.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    due = began + PROGRESS_SECONDS
    drawn = ""
    while state.not_ready:
        await asyncio.sleep(_LOOK_SECONDS)
        if not state.not_ready or clock() < due:
            continue
        if draw is None:
            due += PROGRESS_SECONDS
            objects = sum(state.count(resource) for resource in RESOURCES.values())
            seconds = round(clock() - began, 1)
            logger.info("reading the cluster", waiting_for=_missing(state), objects=objects, seconds=seconds)
        elif (line := _progress(state, clock() - began)) != drawn:
            draw(line)
            drawn = line
    if drawn and draw is not None:
        draw("")
    snapshot = state.snapshot
    pools = snapshot.inventory.pools
    logger.info(
        "cluster read",
        nodes=len(snapshot.nodes),
        pools=len(pools),
        devices=sum(pool.size for pool in pools.values()),
        claims=len(snapshot.claims),
        pods_with_devices=len(snapshot.pods),
        seconds=round(clock() - began, 1),
    )


def _missing(state: ClusterState) -> list[str]:
    return [resource.plural for resource in RESOURCES.values() if state.doubt_of(resource)]


def _progress(state: ClusterState, seconds: float) -> str:
    """What is not listed, then what is, which a narrow terminal may cut off: ``reading pods (3 s); nodes 5000``."""
    listed = [each for each in RESOURCES.values() if not state.doubt_of(each) and state.count(each)]
    counts = ", ".join(f"{each.plural} {state.count(each)}" for each in listed)
    missing = _missing(state)
    more = f" and {len(missing) - _MOST_NAMED} more kinds" if len(missing) > _MOST_NAMED else ""
    reading = f"reading {', '.join(missing[:_MOST_NAMED])}{more} ({seconds:.0f} s)"
    return f"{reading}; {counts}" if counts else reading


async def tell_where_to_look(url: str, is_serving: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Wait until the service answers, and say which page a person can open."""
    answers = False
    while not answers:
        await asyncio.sleep(_LOOK_SECONDS)  # at least once: the lines of the start come first
        answers = is_serving()
    say(f"open {_EVERYWHERE.sub('127.0.0.1', url)}")


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """A cluster: the API server that we write to, and the state that we know.

    Attributes:
        live: follows the API server; None for a cluster in this process.
        gates: the feature gates of the API server; empty: the defaults of `allocator.Features`.
        budget: of memory for what comes from outside.
        has_schedulers: schedulers follow the cluster, so a pod that is woken is tried again.
    """

    api: Api
    state: ClusterState
    live: LiveCluster | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    has_schedulers: bool = False


@contextlib.asynccontextmanager
async def embedded(
    cluster: EmbeddedCluster, settings: Settings, *, has_schedulers: bool = False
) -> AsyncIterator[ServedCluster]:
    """A cluster in this process; its controllers run."""
    async with cluster.running():
        budget = budget_of(settings)
        yield ServedCluster(cluster.api, cluster.state, budget=budget, has_schedulers=has_schedulers)


@contextlib.asynccontextmanager
async def live(origin: Origin, settings: Settings, tracing: Tracing = UNTRACED) -> AsyncIterator[ServedCluster]:
    """A cluster behind an API server, followed within the context. If following fails for good, the body is cancelled.

    Raises:
        ConnectError: there is no API server that we can work with.
    """
    timing = Timing(follow=FollowTiming(stale=settings.cluster.stale_seconds))
    scheduling = settings.scheduling
    evicts, reviews = scheduling.preemption, settings.api.port
    budget = budget_of(settings)
    lifts = settings.scheduling_gates.enabled
    checks = settings.admission_checks.enabled
    writes = (
        *WRITES,
        *((EVICTS,) if evicts else ()),
        *((LIFTS_GATES,) if lifts else ()),
        *(ANSWERS_CHECKS if checks else ()),
        *(REVIEWS if reviews else ()),
    )
    kinds = tuple(each for each in RESOURCES.values() if checks or each not in OF_KUEUE)
    around, use = tracing.transport, Use(kinds, writes)
    async with (
        connect(origin, random=random.random, timing=timing, around=around, use=use, budget=budget) as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        gates = await _gates(cluster.api, settings)
        features = settings.over(gates).features
        state = ClusterState(
            counts_cpu=scheduling.counts_cpu,
            cpu_of_all_pods=scheduling.cpu_of_all_pods,
            counts_resources=features.node_resources,
            has_group_claims=features.group_claims,
        )
        for other in RESOURCES.values():
            if other not in kinds:
                state.trust(other)
        following = tasks.create_task(cluster.run(state, kinds))
        yield ServedCluster(cluster.api, state, cluster, gates, budget, has_schedulers=True)
        following.cancel()


async def _gates(api: RemoteApi, settings: Settings) -> Mapping[str, bool]:
    """The feature gates of an API server, logged: what each is, and where that comes from."""
    told = await server_gates(api.transport)
    if told.problem:
        version = ".".join(map(str, DEFAULTS_OF))
        logger.warning(
            "feature gates not told",
            problem=told.problem,
            instead=f"the defaults of Kubernetes {version}",
            settings=settings.feature_gates,
        )
    else:
        logger.info("feature gates told", gates=told.gates, settings=settings.feature_gates)
    return told.gates


def run(opening: AbstractAsyncContextManager[ServedCluster], settings: Settings, tracing: Tracing = UNTRACED) -> None:
    """Serve over a cluster until SIGTERM or SIGINT.

    Raises:
        TemplateError: the node templates are invalid.
        ListenError: we cannot listen on a host and port, or not with its certificates.
        ConnectError: we cannot connect to the cluster.
        GrpcError: the settings ask for a gRPC server, and there can be none.
    """
    give_back_early()
    catalog = read_catalog(settings)
    with contextlib.ExitStack() as stack:
        dropped_lines = stack.enter_context(logs.unhindered(settings.log, tracing.processors))
        stack.enter_context(_minding_hangups())
        stack.callback(tracing.close)
        ports = stack.enter_context(open_ports(settings))
        stack.enter_context(sparing_survivors())
        stack.enter_context(switching_soon())
        uvloop.run(serve(opening, settings, catalog, ports, tracing=tracing, dropped_lines=dropped_lines))


def surroundings_of(cluster: ServedCluster, settings: Settings, catalog: Catalog) -> Surroundings:
    """The surroundings of a service over a cluster."""
    reader = None if cluster.live is None else cluster.live.api
    whole_pods = None if reader is None else WholePods(reader, settings.cluster.pods_for_answers)
    return Surroundings(
        cluster.live,
        budget=cluster.budget,
        catalog=catalog,
        has_schedulers=cluster.has_schedulers,
        whole_pods=whole_pods,
        read_scheduler_file=scheduler_file_of(settings),
    )


def _extender_over(
    cluster: ServedCluster, settings: Settings, catalog: Catalog, searches: Searches, tracing: Tracing = UNTRACED
) -> Extender:
    solver = make_solver(settings, searches.clock)
    off_loop, around = tracing.off_loop(searches.in_thread), surroundings_of(cluster, settings, catalog)
    around = replace(around, verb_priority=searches.verbs, in_background=searches.in_background)
    return make_extender(cluster.api, cluster.state, solver, settings, around=around, off_loop=off_loop)


def budget_of(settings: Settings) -> Budget:
    """The budget of memory for what comes from outside; the memory is logged with where its limit comes from."""
    found = memory_limit()
    if settings.memory.limit_bytes:
        found = MemoryLimit(settings.memory.limit_bytes, "memory.limitBytes")
    logger.debug("memory", limit=found.size, source=found.source)
    return Budget(found.size // BUDGET_SHARE)


async def serve(
    opening: AbstractAsyncContextManager[ServedCluster],
    settings: Settings,
    catalog: Catalog,
    ports: Ports,
    *,
    tracing: Tracing = UNTRACED,
    dropped_lines: Callable[[], int] = lambda: 0,
) -> None:
    """Serve until a signal comes. Then take no new requests, and finish the running ones.

    Args:
        opening: the cluster.
        settings: all of them.
        catalog: of nodes to come.
        ports: where to listen. The port for operations is served to the end.
        tracing: of calls and requests.
        dropped_lines: how many lines of the log were dropped because they were not read.

    Raises:
        ConnectError: we cannot connect to the cluster.
        GrpcError: the settings ask for a gRPC server, and there can be none.
    """
    async with (
        opening as cluster,
        open_grpc(settings, cluster.budget) as start_grpc,
        asyncio.TaskGroup() as tasks,
    ):
        settings, searches = settings.over(cluster.gates), Searches()
        service = (extender := _extender_over(cluster, settings, catalog, searches, tracing)).service
        solver, off_loop = make_solver(settings, searches.clock), tracing.off_loop(searches.in_thread)
        negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
        made = make_autoscaler(service, negotiating, solver, settings, catalog, off_loop, cluster.budget)
        autoscaler = replace(made, listed_pods=extender.overview.listed_pods)
        _count_also(service.metrics.registry, dropped_lines, cluster.budget)
        servers = _servers(cluster, extender, autoscaler, settings, ports, tracing)
        tasks.create_task(service.background.run())
        minding = tasks.create_task(mind_memory(heap_of_process()))
        telling = tasks.create_task(_tell_of_start(cluster, ports.server.url, lambda: servers.main.started))
        urls = {"api": ports.api.url} if servers.api and ports.api else {}
        logger.info("serving", url=f"{ports.server.url}{settings.server.prefix}", **urls, **service.summary())
        await start_grpc(autoscaler, service.metrics)
        async with beside(servers.operations, ports.operations):
            async with beside(servers.api, ports.api), following(servers.main, ports.server):
                await servers.main.serve(sockets=[ports.server.socket])
            unfinished = await service.finish(settings.server.stop_seconds)
            await service.close()
        minding.cancel()
        telling.cancel()
        logger.info("stopped", **unfinished)


def _count_also(registry: CollectorRegistry, dropped_lines: Callable[[], int], budget: Budget) -> None:
    """Metrics of the process."""
    registry.register(LogMetrics(dropped_lines))
    registry.register(IntakeMetrics(budget))
    ProcessCollector(registry=registry)


async def _tell_of_start(cluster: ServedCluster, url: str, is_serving: Callable[[], bool]) -> None:
    """Say what the first lists bring, which are read undisturbed; and on a terminal, where a person can look."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if cluster.live is not None:
        told = tell_of_first_lists(cluster.state, _draw if is_terminal else None)
        await asyncio.gather(undisturbed_start(lambda: not cluster.state.not_ready), told)
    if is_terminal:
        await tell_where_to_look(url, is_serving, _say)


def _say(line: str) -> None:
    _show(f"{line}\n")


def _draw(line: str) -> None:
    """Show a line in place of the one before. The cursor stays at its beginning, for lines of the log."""
    _show(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K\r")


def _show(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal has gone
        sys.stderr.write(text)
        sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class _Servers:
    """A server for each port."""

    main: MainServer
    operations: FurtherServer | None
    api: FurtherServer | None


def _servers(
    cluster: ServedCluster,
    extender: Extender,
    autoscaler: Autoscaler,
    settings: Settings,
    ports: Ports,
    tracing: Tracing,
) -> _Servers:
    """The servers. On a signal the service becomes unready, and two of the servers end at once."""

    def application(listener: Listener) -> FastAPI:
        return create_app(extender, autoscaler, settings, listener, tracing=tracing, budget=cluster.budget)

    refusals = Refusals(CallerMetrics(extender.service.metrics.registry).refused)
    operations = api = None
    if ports.operations:
        operations = FurtherServer(server_config(application(Listener.OPERATIONS), settings, OPERATIONS))
    if ports.api and cluster.live:  # a cluster in memory knows no users
        reviews = Reviews(cluster.live.api.transport, settings.api.audience)
        guard = Guard(application(Listener.API), Gate(reviews, Clocks(time.monotonic, time.time)), refusals)
        api = FurtherServer(server_config(guard, settings, API, ports.api.certificates, refusals))

    def stop() -> None:
        extender.service.stop()
        if api is not None:
            api.should_exit = True

    limits = verbs_within(allowed_descriptors())
    config = server_config(application(Listener.SERVER), settings, limits, ports.server.certificates, refusals)
    return _Servers(MainServer(config, stop), operations, api)


@contextlib.contextmanager
def _minding_hangups() -> Iterator[None]:
    """Within the context, SIGHUP is logged and changes nothing; unless there is a terminal, or nohup."""
    if any(map(os.isatty, range(3))) or signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        yield
        return
    text = "SIGHUP changes nothing: settings are read at the start"
    signal.signal(signal.SIGHUP, lambda *_: logger.warning(text))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
