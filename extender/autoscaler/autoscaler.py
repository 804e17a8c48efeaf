"""The autoscaler's verbs: what is asked is answered within a session, or for itself over the latest snapshot.

Work leaves the event loop, and calls of one session follow each other. A call that fails or runs out of time has
changed nothing: what a session has come to is kept when the answer is there. The cluster is only read.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from immutables import Map

from extender.autoscaler.driver_scope import Scope
from extender.autoscaler.negotiating import Negotiating
from extender.autoscaler.readiness.expected_drivers import Expectations
from extender.autoscaler.readiness.node_readiness import Readiness, node_readiness
from extender.autoscaler.scale_up.estimate import estimate
from extender.autoscaler.scale_up.expanders import EXPANDERS
from extender.autoscaler.scale_up.next_group import Expansion, expand
from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod, Plan
from extender.autoscaler.sessions.peers import Peers
from extender.autoscaler.sessions.sessions import Planned, Sessions
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.templates.catalog import Catalog, Supply
from extender.autoscaler.wire import EstimateArgs, SelectedArgs, SimulatedArgs
from extender.decisions.evaluate import Decider
from extender.decisions.solver import No, Solver
from extender.offload import Offload, in_thread
from extender.pods.policy import policy_of
from extender.refused import RefusedError
from extender.state.cluster_state import ClusterState
from extender.verbs.filter import FilterResult
from extender.verbs.prioritize import score_nodes

_T = TypeVar("_T")

_SOLVING_SHARE = 0.9
"""The share of a verb's time for the search; the rest is for reading and writing."""


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """Answers what a Cluster Autoscaler asks about a cluster.

    Attributes:
        decider: remembers decisions on the cluster; what holds in a session's world as well is not found out again.
        deadline_seconds: for one verb, everything included.
        expectations: finds out what tells of the drivers of nodes, as things are now.
        negotiating: asks the controllers of negotiated claims.
        peers: the other replicas; None: nothing is known of any.
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
    off_loop: Offload = in_thread

    @property
    def solver(self) -> Solver:
        """The decider's."""
        return self.decider.solver

    def start(self, drivers: frozenset[str] | None = None, caller: str = "") -> str:
        """The id of a new session on the cluster as it is now.

        Args:
            drivers: those that the session judges; None: all.
            caller: who starts it, for people.

        Raises:
            RefusedError: the cluster is not known well enough.
        """
        world = self._latest()
        scope = None if drivers is None else Scope(drivers, world.supply)
        return self.sessions.start(replace(world, scope=scope), caller).id

    async def filter(self, args: SimulatedArgs, session_id: str | None) -> FilterResult:
        """Which nodes, real or made up, will do for a pod.

        Raises:
            RefusedError: there is no such session, or the cluster is not known well enough.
            TimeoutError: time was up before any node was found.
        """
        work = partial(_filtered, args, self.decider, self._for_call().until)

        async def ask(world: World) -> World:
            known = {each.name: each for each in args.nodes}
            nodes = [known.get(name) or world.snapshot.nodes.get(name) for name in args.asked.names]
            there = [each for each in nodes if each is not None]
            return await self.negotiating.about_nodes(world, args.asked.pod, there)

        return await self._within(session_id, work, ask)

    async def prioritize(self, args: SimulatedArgs, session_id: str | None) -> Sequence[int]:
        """A score for every node, in the order asked.

        Raises:
            RefusedError, TimeoutError: as `filter`.
        """
        found = await self.filter(args, session_id)
        policy = policy_of(args.asked.pod, self.solver.policy)
        return score_nodes(args.asked.names, found.merits, policy or self.solver.policy)

    async def select(self, args: SelectedArgs, session_id: str | None) -> None:
        """Book a pod on a node: it holds its devices there from now on, in this session.

        Raises:
            RefusedError: there is no such session, or no room for the pod; nothing is booked.
            TimeoutError: time was up; nothing is booked.
        """
        if session_id is None:
            raise RefusedError("NodeSelected books in a session: send the header session, with the id that start gave")
        ask = partial(self.negotiating.about_booking, pod=args.pod, node=args.node)
        booked = await self._within(session_id, partial(_selected, args, self._for_call()), ask)
        if isinstance(booked, No):
            raise RefusedError(f"pod {args.pod} can't be booked on node {args.node.name}: {booked.reason}")

    async def node_ready(self, name: str, session_id: str | None) -> Readiness:
        """Whether a node's slices are all there.

        Raises:
            RefusedError: there is no such session, or the cluster is not known well enough.
        """
        expectations = await self.expectations()
        return await self._within(session_id, lambda world: (world, node_readiness(name, world, expectations)))

    async def estimate(self, args: EstimateArgs, session_id: str | None) -> Plan:
        """A plan of nodes to add; nothing is booked.

        Raises:
            RefusedError: there is no such session, or the cluster is not known well enough.
            TimeoutError: time was up.
        """
        choose = EXPANDERS[args.expander]
        solver = self._for_call()

        def plan(world: World) -> tuple[World, Plan]:
            return world, estimate(world, args.pods, args.groups, choose, solver)

        ask = partial(self.negotiating.about_groups, pods=args.pods, groups=args.groups)
        found = await self._within(session_id, plan, ask)
        if session_id is not None:
            self.sessions.note(session_id, Planned(found, args.groups), self.state.snapshot)
        return found

    async def expand(self, pods: Sequence[PendingPod], groups: Sequence[NodeGroup], seconds: float) -> Expansion:
        """The group that a Cluster Autoscaler had best expand next.

        Args:
            pods: each with the groups that may take it.
            groups: with different names.
            seconds: that the caller waits.

        Raises:
            RefusedError: the cluster is not known well enough.
            TimeoutError: time was up.
        """
        solver = self._for_call(seconds)

        def choose(world: World) -> tuple[World, Expansion]:
            return world, expand(world, pods, groups, solver)

        return await self._within(None, choose, partial(self.negotiating.about_groups, pods=pods, groups=groups))

    async def _within(
        self,
        session_id: str | None,
        work: Callable[[World], tuple[World, _T]],
        ask: Callable[[World], Awaitable[World]] | None = None,
    ) -> _T:
        """Do something in the world of a session, which is then what the work leaves; or in one for itself.

        Args:
            session_id: None: no session.
            work: is done off the loop.
            ask: asks controllers first, and returns the world with their answers.
        """
        if session_id is None:
            _, answer = await self.off_loop(partial(work, await self._asked(self._latest(), ask)))
            return answer
        session = self.sessions.find(session_id)
        async with session.turn:
            world, answer = await self.off_loop(partial(work, await self._asked(session.world, ask)))
            if world is not session.world:
                self.sessions.keep(session, world, self.state.snapshot)
        return answer

    async def _asked(self, world: World, ask: Callable[[World], Awaitable[World]] | None) -> World:
        if ask is None:
            return world
        async with asyncio.timeout(self.deadline_seconds * _SOLVING_SHARE):
            return await ask(world)

    def _latest(self) -> World:
        snapshot = self.state.known()
        self.decider.follow(snapshot)
        return World(snapshot, Supply(self.catalog, snapshot))

    def _for_call(self, seconds: float = math.inf) -> Solver:
        """The allocator for one call that begins now; waiting for others of the session is part of the call."""
        return self.solver.within(self.solver.clock() + min(seconds, self.deadline_seconds) * _SOLVING_SHARE)


def _filtered(args: SimulatedArgs, decider: Decider, until: float, world: World) -> tuple[World, FilterResult]:
    world = world.with_nodes(args.nodes)
    return world, world.filter(args.asked.pod, args.asked.names, decider, sent=args.nodes, until=until)


def _selected(args: SelectedArgs, solver: Solver, world: World) -> tuple[World, World | No]:
    after = world.with_nodes((args.node,)).with_pod(args.pod, args.node, solver)
    return (replace(world, granted=Map()) if isinstance(after, No) else after), after
