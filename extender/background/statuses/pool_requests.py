"""Answers ResourcePoolStatusRequests (KEP-5677) that nobody else answers: what is free in the pools of a driver.

Source: pkg/controller/resourcepoolstatusrequest of Kubernetes 1.37, whose answer this one equals.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from allocator import BLOCKING_EFFECTS, Device, Pool, PoolId, Quantity, Slice
from extender.background.task import BackgroundTask
from extender.cluster.cluster_state import ClusterState
from extender.cluster.snapshot import Snapshot
from extender.kube.api import Api, RawObject
from extender.kube.discovery import NotServedError
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.resources import POOL_REQUESTS
from extender.observe.pool_views import PoolContents, ViewError, partition_summary, shareable_summary
from extender.tools.offload import Offload

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


async def write_pool_status(api: Api, request: RawObject, status: RawObject) -> None:
    """Write an answer, unless the request was answered meanwhile: an answer is final.

    Args:
        api: the API server.
        request: as it was read, without a status.
        status: the answer.

    Raises:
        ApiError, OutcomeUnknownError: as `Api.update_status`.
    """
    try:
        await api.update_status(POOL_REQUESTS, {**request, "status": status})
    except ApiError as error:
        if not (error.is_conflict or error.is_missing):
            raise


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
