"""A world for each verb of autoscalers: that of the session, or a new one over the latest snapshot.

Work leaves the event loop, and calls of one session follow each other. A call that fails or runs out of time has
changed nothing: what a session has come to is kept when the answer is there. The cluster is only read.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from prometheus_client import Gauge

from extender.autoscaler.negotiating import Negotiating
from extender.autoscaler.readiness import DaemonSetReader, Expectations
from extender.autoscaler.sessions import PeerConnection, Peers, SessionLimits, Sessions
from extender.autoscaler.simulated_cluster import PLACED_BYTES, World
from extender.cluster.cluster_state import ClusterState
from extender.cluster.whole_pods import NOT_LISTED, ListedPods
from extender.config.settings import Settings
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.service import Service
from extender.kube.api import Api, ObjectKey
from extender.planning.templates import Catalog, Supply
from extender.tools.faults import RefusedError
from extender.tools.intake import Budget
from extender.tools.offload import Offload, in_thread

_T = TypeVar("_T")

_SOLVING_SHARE = 0.9
"""The share of a verb's time for the search; the rest is for reading and writing."""


async def nothing_listed() -> ListedPods:
    """List no pods: all of them are in the state, or nowhere."""
    return NOT_LISTED


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """The parts that answers to a Cluster Autoscaler need; `extender.autoscaler.verbs` has the answers.

    Attributes:
        decider: remembers decisions on the cluster; what holds in a session's world as well is not found out again.
        deadline_seconds: for one verb, everything included.
        expectations: finds out what tells of the drivers of nodes, as things are now.
        negotiating: asks the controllers of negotiated claims.
        peers: the other replicas; None: nothing is known of any.
        listed_pods: lists all pods of a live cluster.
        off_loop: where the work is done.
    """

    state: ClusterState
    decider: Decider
    catalog: Catalog
    sessions: Sessions
    deadline_seconds: float
    expectations: Callable[[], Awaitable[Expectations]]
    negotiating: Negotiating
    peers: Peers | None = None
    listed_pods: Callable[[], Awaitable[ListedPods]] = nothing_listed
    off_loop: Offload = in_thread

    @property
    def solver(self) -> Solver:
        """The decider's."""
        return self.decider.solver

    def latest(self) -> World:
        """The cluster as it is now; kube-scheduler's own checks are left to the autoscaler.

        Raises:
            RefusedError: the cluster is not known well enough.
        """
        snapshot = self.state.known()
        self.decider.follow(snapshot)
        snapshot = snapshot if snapshot.placed is None else snapshot._replace(placed=None)
        return World(snapshot, Supply(self.catalog, snapshot))

    async def latest_whole(self) -> tuple[World, Sequence[str]]:
        """The cluster as it is now, with whole pods; and what of these is not known, in words.

        Raises:
            RefusedError: the cluster is not known well enough, or its pods are not.
        """
        listed = await self.listed_pods()
        snapshot = self.state.known()
        self.decider.follow(snapshot)
        snapshot = await self.off_loop(partial(listed.beside, snapshot))
        if snapshot.placed is None:
            why = "; ".join(listed.problems) or "no pods are listed: cluster.podsForAnswers is 0"
            raise RefusedError(f"WholePods: {why}")
        weight = PLACED_BYTES * len(snapshot.placed.pods)
        return World(snapshot, Supply(self.catalog, snapshot), weight=weight), listed.problems

    def for_call(self, seconds: float = math.inf) -> Solver:
        """The allocator for one call that begins now; waiting for others of the session is part of the call."""
        return self.solver.within(self.solver.clock() + min(seconds, self.deadline_seconds) * _SOLVING_SHARE)


@dataclass(frozen=True, slots=True)
class InSession:
    """The autoscaler in the session of a call.

    Attributes:
        session: the id that the call carries; None: the latest snapshot answers.
        caller: the user, or else the program, as it calls itself.
        owner: the user, or else the address: what a caller cannot choose.
    """

    autoscaler: Autoscaler
    session: str | None = None
    caller: str = ""
    owner: str = ""

    async def within(
        self,
        work: Callable[[World], tuple[World, _T]],
        ask: Callable[[World], Awaitable[World]] | None = None,
    ) -> _T:
        """Do something in the world of the session, which is then what the work leaves; or in a world for itself.

        Args:
            work: is done off the loop.
            ask: asks controllers first, and returns the world with their answers.

        Raises:
            RefusedError: there is no such session, or the cluster is not known well enough.
            TimeoutError: controllers have not answered in time, or the work raises it.
        """
        autoscaler = self.autoscaler
        if self.session is None:
            _, answer = await autoscaler.off_loop(partial(work, await self._after_asking(autoscaler.latest(), ask)))
            return answer
        session = autoscaler.sessions.find(self.session)
        async with session.turn:
            world, answer = await autoscaler.off_loop(partial(work, await self._after_asking(session.world, ask)))
            if world is not session.world:
                autoscaler.sessions.keep(session, world, autoscaler.state.snapshot)
        return answer

    async def _after_asking(self, world: World, ask: Callable[[World], Awaitable[World]] | None) -> World:
        if ask is None:
            return world
        async with asyncio.timeout(self.autoscaler.deadline_seconds * _SOLVING_SHARE):
            return await ask(world)


def make_autoscaler(
    service: Service,
    negotiating: Negotiating,
    solver: Solver,
    settings: Settings,
    catalog: Catalog,
    off_loop: Offload = in_thread,
    budget: Budget | None = None,
) -> Autoscaler:
    """The autoscaler over the cluster of a service, whose metrics count its sessions. Ids of sessions can't be guessed.

    Args:
        service: knows the cluster.
        negotiating: asks the controllers of negotiated claims. Its API server has the DaemonSets, too.
        solver: the allocator.
        settings: for sessions, and for other replicas.
        catalog: what new nodes bring.
        off_loop: where the work is done.
        budget: of memory for what comes from outside.
    """
    wanted, state, api, budget = settings.autoscaler, service.state, negotiating.api, budget or Budget()
    # Sessions are kept beside the budget, and take no more than half as much.
    size = min(wanted.session_bytes, budget.limit // 2)
    limits = SessionLimits(wanted.sessions, wanted.session_seconds, size)
    peers = _peers(api, settings, budget)

    def new_id() -> str:
        secret = secrets.token_urlsafe(32)
        return secret if peers is None else peers.named(secret)

    sessions = Sessions(limits, clock=time.monotonic, new_id=new_id)
    kept = Gauge("dra_extender_sessions", "Sessions of autoscalers that are kept.", registry=service.metrics.registry)
    kept.set_function(lambda: len(sessions))
    decider, catalog = Decider(solver, state), replace(catalog, features=solver.features)
    daemon_sets, patience = DaemonSetReader(api, wanted.daemon_set_drivers, time.monotonic), wanted.publish_seconds

    async def expectations() -> Expectations:
        return Expectations(await daemon_sets.latest(), datetime.now(UTC), timedelta(seconds=patience))

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
