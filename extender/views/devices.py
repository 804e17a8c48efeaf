"""Pools and devices, and who holds what of them."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from allocator.features import Features
from allocator.model import Device, DeviceId, DeviceTaint, PoolId, Slice
from allocator.pools import Pool
from allocator.taints import TaintRules, blocking_taint
from allocator.usage import FREE, NOTHING_USED, PoolUsage
from extender.cluster.snapshot import Snapshot
from extender.views.table import Item, Row, View, matches


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
    """What was counted in a pool, and in which state of it."""

    pool: Pool
    used: PoolUsage
    rules: TaintRules
    counts: Counter[DeviceState]


class DeviceCounts:
    """Counts devices again and again: only in pools that have changed since the last time."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._known: dict[PoolId, _Counted] = {}

    def count(self, snapshot: Snapshot) -> Mapping[tuple[str, DeviceState], int]:
        """How many devices each driver has in each state."""
        self._known = {pool.id: self._counted(pool, snapshot) for pool in snapshot.inventory.pools.values()}
        totals: Counter[tuple[str, DeviceState]] = Counter()
        for pool_id, counted in self._known.items():
            for state in DeviceState:
                totals[pool_id.driver, state] += counted.counts[state]
        return totals

    def _counted(self, pool: Pool, snapshot: Snapshot) -> _Counted:
        known = self._known.get(pool.id)
        used, rules = snapshot.usage.pools.get(pool.id, NOTHING_USED), snapshot.taint_rules
        if known is not None and known.pool is pool and known.used is used and known.rules is rules:
            return known
        return _Counted(pool, used, rules, Counter(state for _, _, state in _states(pool, snapshot, self._features)))


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
            holders = holders_of(pool_id, snapshot)
            found = _states(snapshot.inventory.pools[pool_id], snapshot, features)
            for origin, device, its_state in sorted(found, key=lambda each: each[1].id):
                where, is_free = _node_of(device, origin), its_state is DeviceState.FREE
                wanted = matches(node, where) and matches(state, its_state.value) and free in (None, is_free)
                if wanted:
                    taints = (*device.taints, *snapshot.taint_rules.taints_of(device.id))
                    claims = holders.get(device.id, ())
                    yield Row(device.id, partial(_device, device.id, where, its_state, claims, taints))

    return View(columns, rows())


def holders_of(pool: PoolId, snapshot: Snapshot) -> dict[DeviceId, list[str]]:
    """Device to the claims that hold something of it, those included whose allocation is in flight."""
    found: dict[DeviceId, list[str]] = {}
    for uid in snapshot.holders.get(pool, ()):
        claim = snapshot.claim(uid)
        name = str(claim.key) if claim else f"uid {uid}"
        held = {result.device for allocation in snapshot.held_by(uid) for result in allocation.results}
        for device in held:
            if device.pool_id == pool:
                found.setdefault(device, []).append(name)
    return {device: sorted(names) for device, names in found.items()}


def _states(pool: Pool, snapshot: Snapshot, features: Features) -> Iterator[tuple[Slice, Device, DeviceState]]:
    """The devices of the newest generation."""
    used = snapshot.usage.pools.get(pool.id, NOTHING_USED)
    unusable = bool(pool.problem(features))
    for origin in pool.newest:
        for device in origin.devices:
            usage = used.get(device.id.device, FREE)
            if usage.holders:
                state = DeviceState.ALLOCATED
            elif not usage.is_free:
                state = DeviceState.SHARED
            elif unusable:
                state = DeviceState.UNUSABLE
            elif blocking_taint(device, (), snapshot.taint_rules):
                state = DeviceState.TAINTED
            else:
                state = DeviceState.FREE
            yield origin, device, state


def _pool(pool: Pool, snapshot: Snapshot, features: Features) -> Item:
    newest = pool.newest
    states = [state for _, _, state in _states(pool, snapshot, features)]
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


def _device(
    device: DeviceId, node: str, state: DeviceState, claims: Sequence[str], taints: Sequence[DeviceTaint]
) -> Item:
    return {
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "node": node,
        "state": state.value,
        "claims": list(claims),
        "taints": [f"{each.key}{'=' if each.value else ''}{each.value}:{each.effect}" for each in taints],
    }


def _node_of(device: Device, origin: Slice) -> str:
    """The one node that reaches the device; else how its nodes are chosen."""
    placement = origin.placement or device.placement
    if placement is None:
        return ""
    return placement.node_name or ("all nodes" if placement.all_nodes else "by selector")
