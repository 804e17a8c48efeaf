"""Pools and devices, and who holds what of them."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from allocator import (
    FREE,
    JSON,
    NOTHING_USED,
    Device,
    DeviceId,
    Features,
    Pool,
    PoolId,
    PoolUsage,
    Slice,
    TaintRules,
    blocking_taint,
    taint_text,
)
from extender.observe.tables.table import Item, Row, View, matches
from extender.state.snapshot import Snapshot


class DeviceState(Enum):
    """What can be said of a device without a claim in mind."""

    ALLOCATED = "allocated"
    """A claim holds all of it."""
    SHARED = "shared"
    """Claims hold parts of it; there may be room for more."""
    UNUSABLE = "unusable"
    """Nothing holds it, but its pool is incomplete or contradicts itself."""
    TAINTED = "tainted"
    """Nothing holds it, but a taint keeps off who does not tolerate it."""
    FREE = "free"
    """Nothing holds it. Partitions of one device may be in each other's way all the same."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """What was counted in a pool, by the order of the states, and in which state of it."""

    pool: Pool
    used: PoolUsage
    rules: TaintRules
    counts: tuple[int, ...]


class DeviceCounts:
    """Counts devices again and again: only in pools that have changed since the last time."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._known: Mapping[PoolId, _Counted] = {}

    def count(self, snapshot: Snapshot) -> Mapping[tuple[str, DeviceState], int]:
        """How many devices each driver has in each state."""
        known, usage = self._known, snapshot.usage.pools
        found = {
            pool_id: self._counted(known.get(pool_id), pool, usage.get(pool_id, NOTHING_USED), snapshot.taint_rules)
            for pool_id, pool in snapshot.inventory.pools.items()
        }
        self._known = found
        totals: dict[str, list[int]] = {}
        for pool_id, counted in found.items():
            total = totals.setdefault(pool_id.driver, [0] * len(DeviceState))
            for index, number in enumerate(counted.counts):
                total[index] += number
        return {
            (driver, state): number
            for driver, total in totals.items()
            for state, number in zip(DeviceState, total, strict=True)
        }

    def _counted(self, known: _Counted | None, pool: Pool, used: PoolUsage, rules: TaintRules) -> _Counted:
        if known is not None and known.pool is pool and known.used is used and known.rules is rules:
            return known
        counts = Counter(state for _, _, state in _states(pool, used, rules, self._features))
        return _Counted(pool, used, rules, tuple(counts[state] for state in DeviceState))


def pools(snapshot: Snapshot, features: Features, *, driver: str = "", node: str = "") -> View:
    """The pools, of one driver, or with devices for one node alone."""
    columns = ("driver", "pool", "generation", "slices", "node", "devices", "free", "problem")
    local: Collection[PoolId] = snapshot.inventory.local.get(node, ()) if node else ()

    def rows() -> Iterator[Row]:
        for pool_id in sorted(snapshot.inventory.pools):
            if matches(driver, pool_id.driver) and (not node or pool_id in local):
                yield Row(pool_id, partial(_pool, snapshot.inventory.pools[pool_id], snapshot, features))

    return View(columns, rows())


def devices(
    snapshot: Snapshot,
    features: Features,
    *,
    driver: str = "",
    pool: str = "",
    node: str = "",
    state: str = "",
    free: bool | None = None,
) -> View:
    """The devices: of one driver, pool or node, in one state, those that are free or those that are not."""
    columns = ("driver", "pool", "device", "node", "state", "claims", "taints")

    def rows() -> Iterator[Row]:
        for pool_id in sorted(snapshot.inventory.pools):
            if not (matches(driver, pool_id.driver) and matches(pool, pool_id.pool)):
                continue
            found = _states_in(snapshot, snapshot.inventory.pools[pool_id], features)
            for origin, device, its_state in sorted(found, key=lambda each: each[1].id):
                where, is_free = _node_of(device, origin), its_state is DeviceState.FREE
                wanted = matches(node, where) and matches(state, its_state.value) and free in (None, is_free)
                if wanted:
                    yield Row(device.id, partial(_device, device, where, its_state, snapshot))

    return View(columns, rows())


def _holders(device: DeviceId, snapshot: Snapshot) -> Iterator[str]:
    """The claims that hold something of a device, those included whose allocation is in flight."""
    for uid in snapshot.holders.get(device.pool_id, ()):
        held = (result.device for allocation in snapshot.held_by(uid) for result in allocation.results)
        if device in held:
            claim = snapshot.claim(uid)
            yield str(claim.key) if claim else f"uid {uid}"


def _states(
    pool: Pool, used: PoolUsage, rules: TaintRules, features: Features
) -> Iterator[tuple[Slice, Device, DeviceState]]:
    """The devices of the newest generation."""
    at_rest = DeviceState.UNUSABLE if pool.problem(features) else DeviceState.FREE
    for origin in pool.newest:
        for device in origin.devices:
            usage = used.get(device.id.device, FREE) if used else FREE
            if usage is not FREE:
                state = DeviceState.ALLOCATED if usage.holders else DeviceState.SHARED
            elif at_rest is DeviceState.FREE and (device.taints or rules.rules) and blocking_taint(device, (), rules):
                state = DeviceState.TAINTED
            else:
                state = at_rest
            yield origin, device, state


def _states_in(snapshot: Snapshot, pool: Pool, features: Features) -> Iterator[tuple[Slice, Device, DeviceState]]:
    used = snapshot.usage.pools.get(pool.id, NOTHING_USED)
    return _states(pool, used, snapshot.taint_rules, features)


def _pool(pool: Pool, snapshot: Snapshot, features: Features) -> Item:
    newest = pool.newest
    states = [state for _, _, state in _states_in(snapshot, pool, features)]
    nodes = sorted({_node_of(device, origin) for origin in newest for device in origin.devices})
    return {
        "driver": pool.id.driver,
        "pool": pool.id.pool,
        "generation": newest[0].generation,
        "slices": f"{len(newest)}/{newest[0].slice_count}",
        "node": nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else "",
        "devices": len(states),
        "free": states.count(DeviceState.FREE),
        "problem": pool.problem(features),
    }


def _device(device: Device, node: str, state: DeviceState, snapshot: Snapshot) -> Item:
    taints = (*device.taints, *snapshot.taint_rules.taints_of(device.id))
    claims: list[JSON] = [*sorted(_holders(device.id, snapshot))]
    return {
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
        "node": node,
        "state": state.value,
        "claims": claims,
        "taints": [taint_text(each) for each in taints],
    }


def _node_of(device: Device, origin: Slice) -> str:
    """The one node that reaches the device; else how its nodes are chosen."""
    placement = origin.placement or device.placement
    if placement is None:
        return ""
    return placement.node_name or ("all nodes" if placement.all_nodes else "by selector")
