"""Makes the autoscaler from the settings."""

import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from extender.autoscaler.autoscaler import Autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.autoscaler.readiness.daemon_sets import DaemonSetReader
from extender.autoscaler.readiness.node_readiness import Expectations
from extender.autoscaler.sessions.peer_connection import PeerConnection
from extender.autoscaler.sessions.peers import Peers
from extender.autoscaler.sessions.sessions import SessionLimits, Sessions
from extender.config.settings import Settings
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.kube.api import Api, ObjectKey
from extender.planning.templates.catalog import Catalog
from extender.service import Service
from extender.tools.intake import Budget
from extender.tools.offload import Offload, in_thread


def make_autoscaler(
    service: Service,
    solver: Solver,
    settings: Settings,
    catalog: Catalog,
    off_loop: Offload = in_thread,
    budget: Budget | None = None,
) -> Autoscaler:
    """The autoscaler over the cluster of a service, whose metrics count its sessions. Ids of sessions can't be guessed.

    Args:
        service: knows the API server, the cluster, and the controllers of negotiated claims.
        solver: the allocator.
        settings: for sessions, and for other replicas.
        catalog: what new nodes bring.
        off_loop: where the work is done.
        budget: of memory for what comes from outside.
    """
    wanted, api, state = settings.autoscaler, service.overview.api, service.overview.state
    budget = budget or Budget()
    # Sessions are kept beside the budget, and take no more than half as much.
    size = min(wanted.session_bytes, budget.limit // 2)
    limits = SessionLimits(wanted.sessions, wanted.session_seconds, size)
    peers = _peers(api, settings, budget)

    def new_id() -> str:
        secret = secrets.token_urlsafe(32)
        return secret if peers is None else peers.named(secret)

    sessions = Sessions(limits, clock=time.monotonic, new_id=new_id)
    service.metrics.sessions.watch(lambda: len(sessions))
    decider, catalog = Decider(solver, state.changes_since), replace(catalog, features=solver.features)
    daemon_sets, patience = DaemonSetReader(api, wanted.daemon_set_drivers, time.monotonic), wanted.publish_seconds

    async def expectations() -> Expectations:
        return Expectations(await daemon_sets.latest(), datetime.now(UTC), timedelta(seconds=patience))

    negotiating = Negotiating(service.binder.negotiation.controllers, api)
    return Autoscaler(
        state,
        decider,
        catalog,
        sessions,
        wanted.deadline_seconds,
        expectations,
        negotiating,
        peers=peers,
        off_loop=off_loop,
    )


def _peers(api: Api, settings: Settings, budget: Budget) -> Peers | None:
    """The other replicas; None if they cannot be called."""
    wanted = settings.peers
    if not wanted.server_name:
        return None
    namespace, _, name = wanted.pod.partition("/")
    deadline = settings.autoscaler.deadline_seconds
    files = Path(wanted.ca), Path(wanted.token)
    connection = PeerConnection(wanted.server_name, settings.api.port, *files, deadline_seconds=deadline, budget=budget)
    return Peers(api, ObjectKey(namespace, name), connection, time.monotonic)
