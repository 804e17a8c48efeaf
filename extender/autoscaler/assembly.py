"""Makes the autoscaler's service and its catalog from the settings."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from extender.autoscaler.catalog import Catalog
from extender.autoscaler.daemon_set_reader import DaemonSetReader
from extender.autoscaler.expectation import Expectations
from extender.autoscaler.negotiating import Negotiating
from extender.autoscaler.peer_connection import PeerConnection
from extender.autoscaler.peers import Peers
from extender.autoscaler.service import Autoscaler
from extender.autoscaler.sessions import SessionLimits, Sessions
from extender.autoscaler.templates import TemplateError, load_templates
from extender.config.settings import Settings
from extender.config.text_file import UnreadableError, read_text
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.kube.api import Api, ObjectKey
from extender.negotiation.known import KnownController
from extender.offload import Offload, in_thread
from extender.state.state import ClusterState


def read_catalog(settings: Settings) -> Catalog:
    """The catalog of nodes to come; reads the file with their templates.

    Raises:
        TemplateError: the file can't be read, or is invalid.
    """
    wanted = settings.autoscaler
    path = wanted.node_templates
    try:
        text = read_text(Path(path)) if path else ""
    except UnreadableError as error:
        raise TemplateError((f"autoscaler.nodeTemplates: {path}: {error}",)) from error
    return Catalog(load_templates(text, file=path), wanted.learn_from_label)


def make_autoscaler(
    api: Api,
    state: ClusterState,
    solver: Solver,
    settings: Settings,
    catalog: Catalog,
    controllers: Mapping[str, KnownController],
    off_loop: Offload = in_thread,
) -> Autoscaler:
    """The autoscaler's service. Ids of sessions can't be guessed.

    Args:
        api: the API server.
        state: the cluster.
        solver: the allocator.
        settings: for sessions, and for other replicas.
        catalog: what new nodes bring.
        controllers: of negotiated claims, by name. Without any, nobody is asked.
        off_loop: where the work is done.
    """
    wanted = settings.autoscaler
    limits = SessionLimits(wanted.sessions, wanted.session_seconds, wanted.session_bytes)
    peers = _peers(api, settings)

    def new_id() -> str:
        secret = secrets.token_urlsafe(32)
        return secret if peers is None else peers.named(secret)

    sessions = Sessions(limits, clock=time.monotonic, new_id=new_id)
    decider, catalog = Decider(solver, state.changes_since), replace(catalog, features=solver.features)
    daemon_sets, patience = DaemonSetReader(api, wanted.daemon_set_drivers, time.monotonic), wanted.publish_seconds

    async def expectations() -> Expectations:
        return Expectations(await daemon_sets.latest(), datetime.now(UTC), timedelta(seconds=patience))

    negotiating, seconds = Negotiating(controllers, api), wanted.deadline_seconds
    return Autoscaler(
        state, decider, catalog, sessions, seconds, expectations, negotiating, peers=peers, off_loop=off_loop
    )


def _peers(api: Api, settings: Settings) -> Peers | None:
    """The other replicas; None if they cannot be called."""
    wanted = settings.peers
    if not wanted.server_name:
        return None
    namespace, _, name = wanted.pod.partition("/")
    deadline = settings.autoscaler.deadline_seconds
    connection = PeerConnection(
        wanted.server_name, settings.api.port, Path(wanted.ca), Path(wanted.token), deadline_seconds=deadline
    )
    return Peers(api, ObjectKey(namespace, name), connection, time.monotonic)
