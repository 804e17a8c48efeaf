"""Answers ResourcePoolStatusRequests (KEP-5677) that nobody else answers: what is free in the pools of a driver.

Source: pkg/controller/resourcepoolstatusrequest of Kubernetes 1.37 (``views.go`` for divided and shared devices), whose
answer this one equals.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from allocator import Device, PoolId, Quantity, Slice
from allocator.checks import BLOCKING_EFFECTS
from allocator.pools import Pool
from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.other_kinds import write_pool_status
from extender.framework.handle import Handle
from extender.framework.task import BackgroundTask
from extender.kube.api import Api, ApiError, OutcomeUnknownError, RawObject
from extender.kube.discovery import NotServedError
from extender.kube.resources import POOL_REQUESTS
from extender.tools.offload import Offload

MOST_ENTRIES: Final = 32
"""The most entries of a summary: the API's limit."""

_Counters = Mapping[str, Mapping[str, Quantity]]
_Amounts = dict[tuple[str, str], Quantity]
"""Counter set and counter to an amount."""


class ViewError(Exception):
    """A summary cannot be made. The text begins with upstream's prefix for the error."""


@dataclass(frozen=True, slots=True)
class PoolContents:
    """A complete pool.

    Attributes:
        devices: each with the attribute that groups it; empty: none does.
        counter_sets: the counter sets of all slices.
        in_use: devices that claims hold.
        consumed: capacity name to what claims consume of it, on all devices.
    """

    id: PoolId
    devices: tuple[tuple[Device, str], ...]
    counter_sets: _Counters
    in_use: Collection[str]
    consumed: Mapping[str, Quantity]

    @property
    def name(self) -> str:
        """Driver and pool, as upstream writes them."""
        return f"{self.id.driver}/{self.id.pool}"


def partition_summary(contents: PoolContents) -> list[RawObject]:
    """The partitions by attribute and value, and how many more can be allocated.

    Raises:
        ViewError: partitions cannot be grouped, or there are too many groups.
    """
    if not any(attribute for _, attribute in contents.devices):
        return []
    if not contents.counter_sets:
        contradiction = "declares partitionTypeAttribute but publishes no sharedCounters"
        raise ViewError(f"PartitionTypeMissing: pool {contents.name} {contradiction}")
    groups: defaultdict[tuple[str, str], list[Device]] = defaultdict(list)
    for device, attribute in contents.devices:
        if device.consumes_counters and attribute:
            groups[attribute, _type_of(device, attribute, contents)].append(device)
    summary = [_group(*key, groups[key], contents) for key in sorted(groups)]
    if len(summary) > MOST_ENTRIES:
        count = f"{len(summary)} partition types, exceeding the maximum of {MOST_ENTRIES}"
        raise ViewError(f"PartitionSummaryOverCap: pool {contents.name} has {count}")
    return summary


def shareable_summary(contents: PoolContents) -> RawObject | None:
    """The number of shareable devices that are in use, and what is left of them; None if there are none.

    Raises:
        ViewError: there are too many capacities.
    """
    shareable = [device for device, _ in contents.devices if device.allow_multiple_allocations]
    if not shareable:
        return None
    totals: dict[str, Quantity] = {}
    for device in shareable:
        for name, capacity in device.capacity.items():
            totals[name] = totals[name] + capacity.value if name in totals else capacity.value
    if len(totals) > MOST_ENTRIES:
        count = f"{len(totals)} shareable capacity keys, exceeding the maximum of {MOST_ENTRIES}"
        raise ViewError(f"ShareableSummaryOverCap: pool {contents.name} has {count}")
    partly = sum(device.id.device in contents.in_use for device in shareable)
    summary: RawObject = {"fullyAvailableDevices": len(shareable) - partly, "partiallyAvailableDevices": partly}
    amounts = [_capacity(name, totals[name], contents.consumed.get(name)) for name in sorted(totals)]
    return summary | ({"capacity": amounts} if amounts else {})


def _capacity(name: str, total: Quantity, consumed: Quantity | None) -> RawObject:
    left = total - consumed if consumed else total
    return {
        "name": name,
        "total": str(total),
        "consumed": str(consumed or Quantity.from_int(0)),
        "available": str(left if left.nano > 0 else Quantity.from_int(0)),
    }


def _type_of(device: Device, attribute: str, contents: PoolContents) -> str:
    found = device.attributes.get(attribute)
    if isinstance(found, str):
        return found
    missing = f"does not carry partition type attribute {_quoted(attribute)}"
    raise ViewError(f"PartitionTypeMissing: device {_quoted(device.id.device)} in pool {contents.name} {missing}")


def _group(attribute: str, kind: str, devices: list[Device], contents: PoolContents) -> RawObject:
    """Partitions of one type need equal counters, so their order does not matter."""
    if any(_needs(device) != _needs(devices[0]) for device in devices):
        where = f"devices of partition type {_quoted(kind)} in pool {contents.name}"
        raise ViewError(f"PartitionCostMismatch: {where} consume different counters")
    left = _counters_left(contents)
    allocatable = 0
    for device in devices:
        needed = _needs(device)
        if device.id.device not in contents.in_use and all(key in left and left[key] >= needed[key] for key in needed):
            allocatable += 1
            _subtract_devices(left, (device,))
    return {"attribute": attribute, "type": kind, "total": len(devices), "allocatable": allocatable}


def _counters_left(contents: PoolContents) -> _Amounts:
    """What devices in use leave of each counter."""
    amounts = {(name, key): full for name, counters in contents.counter_sets.items() for key, full in counters.items()}
    _subtract_devices(amounts, (device for device, _ in contents.devices if device.id.device in contents.in_use))
    return amounts


def _subtract_devices(amounts: _Amounts, devices: Iterable[Device]) -> None:
    for device in devices:
        for key, amount in _needs(device).items():
            if key in amounts:
                amounts[key] = amounts[key] - amount


def _needs(device: Device) -> _Amounts:
    return {
        (each.counter_set, key): amount for each in device.consumes_counters for key, amount in each.counters.items()
    }


def _quoted(text: str) -> str:
    return f'"{text}"'


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
    """The part of a pool that claims hold, apart from admin access."""

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
    held = _devices_held_in(snapshot, frozenset(named))
    pools = [_pool(snapshot.inventory.pools[each], held[each], request, snapshot) for each in named]
    incomplete = sum("totalDevices" not in each for each in pools)
    invalid = sum("validationError" in each for each in pools)
    status: RawObject = {"poolCount": len(found)}
    return PoolAnswer(status | ({"pools": pools} if pools else {}), incomplete, invalid)


def _devices_held_in(snapshot: Snapshot, pools: frozenset[PoolId]) -> Mapping[PoolId, _Held]:
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


logger = structlog.get_logger()

PAUSE_SECONDS: Final = 5.0
"""Between two looks at the requests."""

PATIENCE_SECONDS: Final = 5.0
"""The time that kube-controller-manager has for its answer: its controller takes less than a second, if it runs."""

INCOMPLETE_SECONDS: Final = 60.0
"""The longest time that an answer waits for the slices that are missing in a pool."""

RETRY_SECONDS: Final = 60.0
"""The pause after requests could not be listed, or an answer was refused, as without the right to do so."""

MOST_ANSWERS: Final = 20
"""The most answers of one turn: the turns of other tasks wait, and each answer walks all claims."""


class PoolRequests(BackgroundTask):
    """Answers requests from the snapshot.

    Args:
        state: the cluster.
        api: has the requests.
        clock: measures durations, in seconds.
        now: the time, for the answer.
        off_loop: runs the sums in a thread.
    """

    def __init__(
        self,
        state: ClusterState,
        api: Api,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._api = api
        self._clock = clock
        self._now = now
        self._off_loop = off_loop
        self._again = 0.0
        self._since: dict[str, float] = {}
        """When each unanswered request was seen first, by its uid."""
        self._looked: dict[str, float] = {}
        """When each unanswered request was looked at last. So requests that wait for slices keep no other waiting."""

    @property
    def idle_seconds(self) -> float:
        """Until the next look."""
        return self._again - self._clock()

    async def tick(self) -> None:
        """Answer the requests that have waited for long enough."""
        now = self._clock()
        if now < self._again or self._state.not_ready:
            return
        self._again = now + PAUSE_SECONDS
        try:
            listed = (await self._api.list(POOL_REQUESTS)).items
        except NotServedError:
            return
        except (ApiError, OutcomeUnknownError) as error:
            self._again = now + RETRY_SECONDS
            logger.warning("pool status requests not listed", error=str(error))
            return
        waiting = {each["metadata"]["uid"]: each for each in listed if not each.get("status")}
        self._since = {uid: self._since.get(uid, now) for uid in waiting}
        self._looked = {uid: at for uid, at in self._looked.items() if uid in waiting}
        due = [uid for uid, since in self._since.items() if now - since >= PATIENCE_SECONDS]
        for uid in sorted(due, key=lambda uid: self._looked.get(uid, 0.0))[:MOST_ANSWERS]:
            self._looked[uid] = now
            if not await self._serve(waiting[uid], now - self._since[uid]):
                self._again = now + RETRY_SECONDS
                return

    async def _serve(self, request: RawObject, waited: float) -> bool:
        """Answer a request, or wait for missing slices; False if the answer was refused."""
        answer = await self._off_loop(partial(answer_to, parse_pool_request(request), self._state.snapshot))
        if answer.incomplete and waited < INCOMPLETE_SECONDS:
            return True
        status = answer.status | {"conditions": [_complete(answer, self._now())]}
        try:
            await write_pool_status(self._api, request, status)
        except (ApiError, OutcomeUnknownError) as error:
            logger.warning("pool status request not answered", request=request["metadata"]["name"], error=str(error))
            return False
        return True


def _complete(answer: PoolAnswer, now: datetime) -> RawObject:
    of_them = f" ({answer.invalid} incomplete)" if answer.invalid else ""
    return {
        "type": "Complete",
        "status": "True",
        "lastTransitionTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": "CalculationComplete",
        "message": f"Calculated status for {len(answer.status.get('pools', ()))} pools{of_them}",
    }


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task of ResourcePoolStatusRequests."""
    return [PoolRequests(handle.state, handle.api, handle.clock, handle.now, handle.in_background)]
