"""What is free in the pools of a driver: the answer to a ResourcePoolStatusRequest (KEP-5677).

Source: pkg/controller/resourcepoolstatusrequest of Kubernetes 1.37, whose answer this one equals.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from allocator import BLOCKING_EFFECTS, Device, Pool, PoolId, Quantity, Slice
from extender.cluster.snapshot import Snapshot
from extender.kube.api import RawObject
from extender.observe.pool_views import PoolContents, ViewError, partition_summary, shareable_summary

DEFAULT_LIMIT: Final = 100
"""The most pools of an answer, if the request does not say."""

_LONGEST_ERROR: Final = 256
"""Bytes of a ``validationError``: the API's limit."""


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """The spec of a ResourcePoolStatusRequest.

    Attributes:
        pool: None: all pools of the driver.
        limit: the most pools of the answer.
        partition_type: the attribute that groups partitions in pools whose slices name none.
    """

    driver: str
    pool: str | None = None
    limit: int = DEFAULT_LIMIT
    partition_type: str = ""


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """The answer without its conditions, as JSON; ``incomplete`` is the number of pools with missing slices."""

    status: RawObject
    incomplete: int = 0
    invalid: int = 0


@dataclass(slots=True)
class _Held:
    """What claims hold of a pool, apart from admin access."""

    devices: set[str] = field(default_factory=set)
    consumed: dict[str, Quantity] = field(default_factory=dict)


def parse_pool_request(raw: RawObject) -> PoolRequest:
    """The request as the API server has validated it."""
    spec = raw["spec"]
    limit = spec.get("limit", DEFAULT_LIMIT)
    return PoolRequest(spec["driver"], spec.get("poolName"), limit, spec.get("defaultPartitionTypeAttribute", ""))


def answer_to(request: PoolRequest, snapshot: Snapshot) -> PoolAnswer:
    """The pools by name. Allocations count that the watch has shown."""
    found = sorted(
        pool_id
        for pool_id in snapshot.inventory.pools
        if pool_id.driver == request.driver and request.pool in (None, pool_id.pool)
    )
    named = found[: request.limit]
    held = _held(snapshot, frozenset(named))
    pools = [_pool(snapshot.inventory.pools[each], held[each], request, snapshot) for each in named]
    incomplete = sum("totalDevices" not in each for each in pools)
    invalid = sum("validationError" in each for each in pools)
    status: RawObject = {"poolCount": len(found)}
    return PoolAnswer(status | ({"pools": pools} if pools else {}), incomplete, invalid)


def _held(snapshot: Snapshot, pools: frozenset[PoolId]) -> Mapping[PoolId, _Held]:
    found: defaultdict[PoolId, _Held] = defaultdict(_Held)
    for claim in snapshot.claims.values():
        for result in claim.claim.allocation.results if claim.claim.allocation else ():
            pool = result.device.pool_id
            if result.admin_access or pool not in pools:
                continue
            found[pool].devices.add(result.device.device)
            consumed = found[pool].consumed
            for name, amount in (result.consumed_capacity or {}).items():
                consumed[name] = consumed[name] + amount if name in consumed else amount
    return found


def _pool(pool: Pool, held: _Held, request: PoolRequest, snapshot: Snapshot) -> RawObject:
    newest = pool.newest
    first = newest[0]
    found: RawObject = {"driver": pool.id.driver, "poolName": pool.id.pool, "generation": first.generation}
    nodes = {each.placement.node_name if each.placement else None for each in newest}
    if len(nodes) == 1 and None not in nodes:
        found["nodeName"] = nodes.pop()
    if len(newest) < first.slice_count:
        name = f"{pool.id.driver}/{pool.id.pool}"
        seen = f"observed {len(newest)}/{first.slice_count} slices at generation {first.generation}"
        return found | {"validationError": _cut(f"PoolIncomplete: pool {name} is incomplete: {seen}")}
    devices = [device for each in newest for device in each.devices]
    unavailable = sum(_is_unavailable(device, snapshot) for device in devices)
    found |= {
        "resourceSliceCount": len(newest),
        "totalDevices": len(devices),
        "allocatedDevices": len(held.devices),
        "availableDevices": max(0, len(devices) - len(held.devices) - unavailable),
        "unavailableDevices": unavailable,
    }
    return found | _views(
        PoolContents(pool.id, _grouped(newest, request), _counters(newest), held.devices, held.consumed)
    )


def _views(contents: PoolContents) -> RawObject:
    """Partitions and shareable capacity; of several errors the first one. An error leaves its own summary out."""
    found: RawObject = {}
    error = ""
    try:
        partitions = partition_summary(contents)
    except ViewError as problem:
        partitions, error = [], str(problem)
    try:
        if shareable := shareable_summary(contents):
            found["shareableSummary"] = shareable
    except ViewError as problem:
        partitions, error = [], error or str(problem)
    if error:
        found["validationError"] = _cut(error)
    return found | ({"partitionSummary": partitions} if partitions else {})


def _grouped(newest: Sequence[Slice], request: PoolRequest) -> tuple[tuple[Device, str], ...]:
    """Each device, and the attribute that groups it: the request's only counts if no slice of the pool names one."""
    default = "" if any(each.partition_type for each in newest) else request.partition_type
    return tuple((device, each.partition_type or default) for each in newest for device in each.devices)


def _counters(newest: Iterable[Slice]) -> dict[str, dict[str, Quantity]]:
    return {name: dict(counters) for each in newest for name, counters in each.counter_sets}


def _is_unavailable(device: Device, snapshot: Snapshot) -> bool:
    taints = (*device.taints, *snapshot.taint_rules.taints_of(device.id))
    return any(taint.effect in BLOCKING_EFFECTS for taint in taints)


def _cut(error: str) -> str:
    return error.encode()[:_LONGEST_ERROR].decode(errors="ignore")
