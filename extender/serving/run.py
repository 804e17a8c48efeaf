"""Running the service: connect a cluster, make the collaborators, and serve until a signal comes."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

import structlog
import uvicorn
import uvloop
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.types import ASGIApp

from allocator import DEFAULTS_OF
from extender.assembly import make_service, make_solver
from extender.autoscaler.assembly import make_autoscaler, read_catalog
from extender.autoscaler.catalog import Catalog
from extender.config.settings import Settings
from extender.fakekube.cluster import EmbeddedCluster
from extender.http.app import create_app, create_operations_app
from extender.http.connections import OPERATIONS, VERBS, BoundedConfig, BoundedServer, ListenerLimits
from extender.kube.api import Api
from extender.kube.credentials import Origin
from extender.kube.feature_gates import server_gates
from extender.kube.permissions import EVICTS, WRITES
from extender.kube.remote import RemoteApi
from extender.observe import logs
from extender.observe.gauges import LogGauges
from extender.observe.metrics import Metrics
from extender.offload import Searches, switching_soon
from extender.service import Service
from extender.serving.garbage import sparing_survivors
from extender.serving.heap import give_back_early
from extender.state.follow import FollowTiming
from extender.state.live import LiveCluster, Timing, connect
from extender.state.state import ClusterState
from extender.tracing.tracing import UNTRACED, Tracing

logger = structlog.get_logger()

_ENDS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end the service."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: the API server that we write to, and the state that we know.

    Attributes:
        live: follows the API server; None for a cluster in this process.
        gates: the feature gates of the API server; empty: the defaults of `allocator.Features`.
    """

    api: Api
    state: ClusterState
    live: LiveCluster | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)


class ListenError(Exception):
    """We cannot listen on the address."""


@contextlib.asynccontextmanager
async def embedded(cluster: EmbeddedCluster) -> AsyncIterator[Cluster]:
    """A cluster in this process; its controllers run."""
    async with cluster.running():
        yield Cluster(cluster.api, cluster.state)


@contextlib.asynccontextmanager
async def live(origin: Origin, settings: Settings, tracing: Tracing = UNTRACED) -> AsyncIterator[Cluster]:
    """A cluster behind an API server, followed within the context. If following fails for good, the body is cancelled.

    Raises:
        ConnectError: there is no API server that we can work with.
    """
    timing = Timing(follow=FollowTiming(stale=settings.cluster.stale_seconds))
    writes = (*WRITES, *((EVICTS,) if settings.scheduling.preemption else ()))
    async with (
        connect(origin, random=random.random, timing=timing, around=tracing.transport, writes=writes) as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        state = ClusterState(counts_cpu=settings.scheduling.counts_cpu)
        following = tasks.create_task(cluster.run(state))
        yield Cluster(cluster.api, state, cluster, await _gates(cluster.api, settings))
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


def run(opening: AbstractAsyncContextManager[Cluster], settings: Settings, tracing: Tracing = UNTRACED) -> None:
    """Serve over a cluster until SIGTERM or SIGINT.

    Raises:
        TemplateError: the node templates are invalid.
        ListenError: we cannot listen on host and port.
        ConnectError: we cannot connect to the cluster.
    """
    give_back_early()
    catalog = read_catalog(settings)
    with contextlib.ExitStack() as stack:
        dropped_lines = stack.enter_context(logs.unhindered(settings.log, tracing.processors))
        stack.enter_context(_minding_hangups())
        stack.callback(tracing.close)
        listener = stack.enter_context(_listen(settings.server.host, settings.server.port))
        wanted = settings.operations
        operations = stack.enter_context(_listen(wanted.host, wanted.port)) if wanted.port else None
        stack.enter_context(sparing_survivors(time.monotonic))
        stack.enter_context(switching_soon())
        uvloop.run(
            serve(opening, settings, catalog, listener, operations, tracing=tracing, dropped_lines=dropped_lines)
        )


def _service_over(cluster: Cluster, settings: Settings, searches: Searches, tracing: Tracing = UNTRACED) -> Service:
    metrics, solver = Metrics(CollectorRegistry()), make_solver(settings, searches.clock)
    off_loop = tracing.off_loop(searches.in_thread)
    return make_service(cluster.api, cluster.state, solver, settings, metrics, live=cluster.live, off_loop=off_loop)


async def serve(
    opening: AbstractAsyncContextManager[Cluster],
    settings: Settings,
    catalog: Catalog,
    listener: socket.socket,
    operations: socket.socket | None = None,
    *,
    tracing: Tracing = UNTRACED,
    dropped_lines: Callable[[], int] = lambda: 0,
) -> None:
    """Serve until a signal comes. Then take no new requests, and finish the running ones.

    Args:
        opening: the cluster.
        settings: all of them.
        catalog: of nodes to come.
        listener: for all endpoints.
        operations: for health and metrics alone; it is served to the end.
        tracing: of calls and requests.
        dropped_lines: how many lines of the log were dropped because they were not read.

    Raises:
        ConnectError: we cannot connect to the cluster.
    """
    async with opening as cluster, asyncio.TaskGroup() as tasks:
        settings = settings.over(cluster.gates)
        searches = Searches()
        service = _service_over(cluster, settings, searches, tracing)
        solver, off_loop = make_solver(settings, searches.clock), tracing.off_loop(searches.in_thread)
        autoscaler = make_autoscaler(cluster.api, cluster.state, solver, settings, catalog, off_loop)
        service.metrics.watch_sessions(lambda: len(autoscaler.sessions))
        service.metrics.registry.register(LogGauges(dropped_lines))
        ProcessCollector(registry=service.metrics.registry)
        config = server_config(create_app(service, autoscaler, settings, tracing=tracing), settings)
        host, port = listener.getsockname()[:2]
        logger.info("serving", url=f"http://{host}:{port}{settings.server.prefix}", **service.summary())
        caring = tasks.create_task(service.background.run())
        async with _operations(service, settings, operations):
            await _Server(config, service).serve(sockets=[listener])
            caring.cancel()
            unfinished = await service.finish(settings.server.stop_seconds)
        logger.info("stopped", unfinished_binds=unfinished)


@contextlib.asynccontextmanager
async def _operations(service: Service, settings: Settings, listener: socket.socket | None) -> AsyncIterator[None]:
    """Within the context, health and metrics are served on a socket of their own, if there is one."""
    if listener is None:
        yield
        return
    server = _Quiet(server_config(create_operations_app(service), settings, OPERATIONS))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


def server_config(app: ASGIApp, settings: Settings, limits: ListenerLimits = VERBS) -> BoundedConfig:
    """The configuration of uvicorn for an application on a listening socket."""
    return BoundedConfig(
        app,
        limits,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the client's address is not used
        timeout_keep_alive=settings.server.keep_alive_seconds,
        timeout_graceful_shutdown=settings.server.stop_seconds,
    )


class _Quiet(BoundedServer):
    """A server that does not handle signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server(BoundedServer):
    """A server that on a signal first becomes unready, and then ends with status 0."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # If SIGHUP has its usual meaning, it says that the terminal of the service is gone.
        ends = [number for number in _ENDS if number != signal.SIGHUP or signal.getsignal(number) is signal.SIG_DFL]
        before = {number: signal.signal(number, self._stop) for number in ends}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._service.stop()
        self.handle_exit(number, frame)


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


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except UnicodeError as error:
        raise ListenError(f"cannot listen on {host}:{port}: not the name of a host") from error
    except OSError as error:
        # For an unknown name Python adds to the text what it was doing.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror).partition(" (")[0]
        raise ListenError(f"cannot listen on {host}:{port}: {reason}") from error
