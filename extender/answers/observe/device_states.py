"""The states of a cluster's devices, worked out again only for pools where something has changed."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final, TypeAlias

from immutables import Map

from allocator import Features, Node, PoolId
from allocator.checks import NO_RULES, DeviceState, TaintRules
from allocator.device_states import DeviceKind, PoolStates, Vantages
from allocator.pools import Pool
from allocator.usage import NOTHING_USED, PoolUsage
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.tools.offload import Offload

_Nodes: TypeAlias = Map[str, NodeObject]

Label: TypeAlias = tuple[str, DeviceKind, DeviceState]
"""Driver, kind and state of devices that are counted."""

_COUNTED: Final = tuple(product(DeviceKind, DeviceState))


@dataclass(slots=True)
class _Seen:
    """The part of a pool that nodes see.

    Attributes:
        nodes: all nodes of the cluster.
        named: the nodes that the pool names; None, if it does not name them all.
    """

    pool: Pool
    nodes: _Nodes
    named: tuple[Node, ...] | None
    vantages: Vantages


@dataclass(slots=True)
class _Judged:
    """The states of a pool's devices, and what they depend on."""

    seen: _Seen
    used: PoolUsage
    rules: TaintRules
    states: PoolStates
    _counts: tuple[int, ...] | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """How many devices of each kind are in each state, by the order of `_COUNTED`; only metrics need them."""
        if self._counts is None:
            numbers = self.states.numbers()
            self._counts = tuple([numbers[each] for each in _COUNTED])
        return self._counts


class DeviceStates:
    """Remembers the states of each pool. Threads may ask about different snapshots at the same time."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._known: dict[PoolId, _Judged] = {}
        self._nodes: tuple[_Nodes, _Nodes] = (Map(), Map())
        self._counted: tuple[tuple[object, ...], Mapping[Label, int]] = ((None,) * 4, {})
        """What the latest count depends on, and the count."""

    def at(self, snapshot: Snapshot) -> Callable[[PoolId], PoolStates]:
        """The states of the devices of each pool of a snapshot."""
        nodes = self._lasting(snapshot.nodes)

        def states_of(pool_id: PoolId) -> PoolStates:
            judged = self._known[pool_id] = self._judged(pool_id, snapshot, nodes)
            return judged.states

        return states_of

    def count(self, snapshot: Snapshot) -> Mapping[Label, int]:
        """The number of devices of each driver, kind and state."""
        nodes = self._lasting(snapshot.nodes)
        parts = (snapshot.inventory.pools, nodes, snapshot.usage.pools, snapshot.taint_rules)
        if all(map(operator.is_, parts, self._counted[0])):
            return self._counted[1]
        known = {pool_id: self._judged(pool_id, snapshot, nodes) for pool_id in snapshot.inventory.pools}
        self._known = known
        totals: dict[str, list[int]] = {}
        for pool_id, judged in known.items():
            total = totals.setdefault(pool_id.driver, [0] * len(_COUNTED))
            for index, number in enumerate(judged.counts):
                total[index] += number
        found = {
            (driver, kind, state): number
            for driver, total in totals.items()
            for (kind, state), number in zip(_COUNTED, total, strict=True)
        }
        self._counted = (parts, found)
        return found

    def _judged(self, pool_id: PoolId, snapshot: Snapshot, nodes: _Nodes) -> _Judged:
        known = self._known.get(pool_id)
        seen = self._refreshed_pool(snapshot.inventory.pools[pool_id], nodes, known.seen if known is not None else None)
        used = snapshot.usage.pools.get(pool_id, NOTHING_USED)
        rules = snapshot.taint_rules
        rules = rules if rules.rules and rules.concern(pool_id) else NO_RULES
        if known is not None and known.seen is seen and known.used is used and known.rules is rules:
            return known
        states = PoolStates(seen.pool, seen.vantages, used, rules, self._features)
        return _Judged(seen, used, rules, states)

    def _refreshed_pool(self, pool: Pool, nodes: _Nodes, known: _Seen | None) -> _Seen:
        if known is not None and known.pool is pool and known.nodes is nodes:
            return known
        named = _named(pool, nodes)
        if known is not None and known.pool is pool and named is not None and named == known.named:
            known.nodes = nodes
            return known
        reaching = (each.node for each in nodes.values()) if named is None else named
        return _Seen(pool, nodes, named, Vantages(pool, reaching, self._features))

    def _lasting(self, nodes: _Nodes) -> _Nodes:
        """Earlier nodes that look the same to the allocator: nodes change all the time, and mostly in other fields."""
        latest, lasting = self._nodes
        if nodes is not latest:
            lasting = lasting if _look_alike(nodes, lasting) else nodes
            self._nodes = (nodes, lasting)
        return lasting


def _named(pool: Pool, nodes: _Nodes) -> tuple[Node, ...] | None:
    names = pool.node_names
    return None if names is None else tuple([nodes[name].node for name in sorted(names) if name in nodes])


def _look_alike(nodes: _Nodes, others: _Nodes) -> bool:
    if len(nodes) != len(others):
        return False
    pairs = ((each, others.get(name)) for name, each in nodes.items())
    return all(each is other or (other is not None and each.node == other.node) for each, other in pairs)


TURN_SECONDS: Final = 0.05
"""The longest turn, but for the last pool. With four turns a second, the work takes a fifth of a core at most."""

PAUSE: Final = 3.0
"""The least pause after a turn, in times of its length: a pool may be so large that it alone takes many turns' time."""


class StatesKeeper(BackgroundTask):
    """Follows the pools: those that have changed are worked out again, a few in each turn.

    Args:
        state: has the pools. While they are not known, there is nothing to work out.
        states: remembers what is worked out.
        clock: seconds, from any point.
        off_loop: where the work is done.
    """

    def __init__(
        self, state: ClusterState, states: DeviceStates, clock: Callable[[], float], off_loop: Offload
    ) -> None:
        self._state = state
        self._states = states
        self._clock = clock
        self._off_loop = off_loop
        self._version = -1
        self._left: dict[PoolId, None] = {}
        self._next = -math.inf

    @property
    def idle_seconds(self) -> float:
        """Until pools change, if none is left."""
        return 0.0 if self._left else UNTIL_NEWS

    async def tick(self) -> None:
        """Work for a moment, if something is left to work out."""
        if self._state.not_ready:
            return
        snapshot = self._state.snapshot
        changed = self._state.since(self._version).pools(snapshot)
        self._left.update(dict.fromkeys(snapshot.inventory.pools if changed is None else changed))
        self._version = snapshot.version
        began = self._clock()
        if self._left and began >= self._next:
            await self._off_loop(partial(self._work, snapshot))
            now = self._clock()
            self._next = now + PAUSE * (now - began)

    def _work(self, snapshot: Snapshot) -> None:
        states_of, until = self._states.at(snapshot), self._clock() + TURN_SECONDS
        while self._left and self._clock() < until:
            pool, _ = self._left.popitem()
            if pool in snapshot.inventory.pools:
                states_of(pool)
