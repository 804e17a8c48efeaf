"""What claims hold, in parts of devices, and what is published: by namespace, device class, model and driver.

A device counts as one. A partition counts as much as it draws at most of a counter of each hardware that it is a part
of, and a share of a device as much as it takes at most of a capacity. So two halves of a GPU are one GPU.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from allocator import Device, DeviceId, DeviceResult, PoolId, Quantity
from allocator.pools import Pool
from extender.answers.device_models import model_of
from extender.cluster.kinds import Topic
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach, Timeline, View
from extender.kube.api import ObjectKey

UNIT: Final = 1_000_000
"""A whole device."""

_MOST_SHARED: Final = 4096
"""Different holdings of claims, and kinds of pools, that share one object."""


class Kind(NamedTuple):
    """The model of a device, empty if none is published, and how much of a device it is."""

    model: str = ""
    amount: int = UNIT


class Holding(NamedTuple):
    """What a claim holds of devices of one class and one model."""

    namespace: str
    device_class: str
    model: str
    driver: str
    amount: int


_Holdings: TypeAlias = tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class PoolKinds:
    """What a pool publishes.

    Attributes:
        published: model to its devices, in `UNIT`; partitions count only if the hardware itself is not published.
        only: the kind of all devices, if they are of one kind.
        kinds: the kind of each device by name, otherwise.
    """

    published: Mapping[str, int]
    only: Kind | None
    kinds: Mapping[str, Kind]

    @classmethod
    def of(cls, pool: Pool) -> "PoolKinds":
        """The kinds of the newest generation."""
        full = {name: counters for origin in pool.newest for name, counters in origin.counter_sets}
        devices = [device for origin in pool.newest for device in origin.devices]
        parts = pool.partitions
        kinds: dict[str, Kind] = {}
        published: Counter[str] = Counter()
        whole: set[str] = set()
        for each in devices:
            is_part = each.id.device in parts
            kinds[each.id.device] = Kind(model_of(each), _drawn(each, full) if is_part else UNIT)
            if not is_part:
                published[model_of(each)] += UNIT
                whole.update(drawn.counter_set for drawn in each.consumes_counters)
        for each in devices if parts else ():
            for drawn in each.consumes_counters:
                if drawn.counter_set not in whole:
                    whole.add(drawn.counter_set)
                    published[model_of(each)] += UNIT
        different = set(kinds.values())
        only = next(iter(different)) if len(different) == 1 else None
        return cls(dict(published), only, {} if only else kinds)

    @property
    def alike(self) -> Hashable:
        """Equal for pools that publish the same, if their devices are of one kind; else None."""
        return None if self.only is None else (self.only, tuple(sorted(self.published.items())))

    def kind(self, device: str) -> Kind:
        """The kind of a device; of one that is not published any more, no model is known."""
        return self.only or self.kinds.get(device, Kind())


def _drawn(device: Device, full: Mapping[str, Mapping[str, Quantity]]) -> int:
    """How much of its hardware a partition is."""
    return sum(_largest_share(each.counters, full.get(each.counter_set, {})) for each in device.consumes_counters)


def _largest_share(taken: Mapping[str, Quantity], whole: Mapping[str, Quantity]) -> int:
    shares = (UNIT * amount.nano // whole[name].nano for name, amount in taken.items() if _is_some(whole.get(name)))
    return min(UNIT, max(shares, default=UNIT))


def _is_some(amount: Quantity | None) -> bool:
    return amount is not None and amount.nano > 0


Change: TypeAlias = Callable[[Holding, int], None]
"""Hears of what a claim holds, and by how much it changes."""


class Holdings(View[Mapping[ObjectKey, _Holdings]]):
    """Follows claims and pools, and tells of each change.

    Args:
        timeline: of the cluster.
        held: hears of what claims hold.
        published: hears of the model and the driver of what is published.
        pause: lets others go on, between claims and between pools.
    """

    topics = frozenset({Topic.CLAIM, Topic.POOL})
    bound = "what each claim holds, and the kinds of devices of each pool"

    def __init__(
        self,
        timeline: Timeline,
        held: Change,
        published: Callable[[str, str, int], None],
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(timeline)
        self._pause = pause
        self._held = held
        self._published = published
        self._holdings: dict[ObjectKey, _Holdings] = {}
        self._pools: dict[PoolId, tuple[Pool, PoolKinds]] = {}
        """A pool is the same object as long as its slices are."""
        self._alike: dict[Hashable, PoolKinds] = {}
        self._shared: dict[_Holdings, _Holdings] = {}

    def is_near(self, snapshot: Snapshot, most: int) -> bool:
        """Whether few claims and devices have changed since the last look."""
        reach = None if self._known is None else self._since(self._known.version).among(self.topics)
        if reach is None or not reach.is_within(most):
            return False
        pools = [snapshot.inventory.pools.get(each) for each in reach.keys(Topic.POOL) or ()]
        return sum(pool.size for pool in pools if pool is not None and not self._is_known(pool)) <= most

    def build(self, snapshot: Snapshot) -> Mapping[ObjectKey, _Holdings]:
        """Read all claims and pools."""
        pools, claims = {**self._pools, **snapshot.inventory.pools}, {**self._holdings, **snapshot.claims}
        return self.apply({}, Reach({Topic.POOL: pools.keys(), Topic.CLAIM: claims.keys()}), snapshot)

    def apply(
        self, value: Mapping[ObjectKey, _Holdings], reach: Reach, snapshot: Snapshot
    ) -> Mapping[ObjectKey, _Holdings]:
        """Read the claims that have changed, and those that hold devices of pools whose slices have."""
        del value
        claims = dict.fromkeys(reach.keys(Topic.CLAIM) or ())
        for pool_id in reach.keys(Topic.POOL) or ():
            self._pause()
            pool = snapshot.inventory.pools.get(pool_id)
            if pool is None or not self._is_known(pool):
                self._read_pool(pool_id, pool)
                claims |= dict.fromkeys(_users(pool_id, snapshot))
        for key in claims:
            self._pause()
            self._read_claim(key, snapshot.claims.get(key), snapshot)
        return self._holdings

    def _is_known(self, pool: Pool) -> bool:
        known = self._pools.get(pool.id)
        return known is not None and known[0] is pool

    def _read_pool(self, pool_id: PoolId, pool: Pool | None) -> None:
        before = self._pools.pop(pool_id, None)
        changed: Counter[str] = Counter()
        if pool is not None:
            after = self._shared_kinds(PoolKinds.of(pool))
            self._pools[pool_id] = pool, after
            changed.update(after.published)
        changed.subtract({} if before is None else before[1].published)
        for model, amount in changed.items():
            if amount:
                self._published(model, pool_id.driver, amount)

    def _shared_kinds(self, kinds: PoolKinds) -> PoolKinds:
        """One object for pools that publish the same, as most nodes of a kind do."""
        if len(self._alike) >= _MOST_SHARED:
            self._alike.clear()
        return kinds if kinds.alike is None else self._alike.setdefault(kinds.alike, kinds)

    def _read_claim(self, key: ObjectKey, claim: ClaimObject | None, snapshot: Snapshot) -> None:
        before = self._holdings.pop(key, ())
        after = () if claim is None else self._of(claim, snapshot)
        if after:
            self._holdings[key] = after
        if after is before:
            return
        for sign, holdings in ((-1, before), (1, after)):
            for each in holdings:
                self._held(each, sign * each.amount)

    def _of(self, claim: ClaimObject, snapshot: Snapshot) -> _Holdings:
        allocation = claim.claim.allocation
        if allocation is None:
            return ()
        classes = {
            request.label(way): way.device_class
            for request in claim.claim.spec.requests
            for way in request.alternatives
        }
        amounts: Counter[tuple[str, str, str]] = Counter()
        for each in allocation.results:
            if not each.admin_access:
                kind = self._kind(each.device)
                of = classes.get(each.request, ""), kind.model, each.device.driver
                amounts[of] += kind.amount * _share(each, snapshot) // UNIT
        namespace = claim.claim.namespace
        found = tuple(Holding(namespace, *of, amount) for of, amount in sorted(amounts.items()) if amount)
        if len(self._shared) >= _MOST_SHARED:
            self._shared.clear()
        return self._shared.setdefault(found, found)

    def _kind(self, device: DeviceId) -> Kind:
        known = self._pools.get(device.pool_id)
        return Kind() if known is None else known[1].kind(device.device)


def _users(pool_id: PoolId, snapshot: Snapshot) -> Iterable[ObjectKey]:
    """The claims that hold something of a pool."""
    found = (snapshot.claim_keys.get(uid) for uid in snapshot.holders.get(pool_id, ()))
    return (key for key in found if key is not None)


def _share(result: DeviceResult, snapshot: Snapshot) -> int:
    """How much a claim has of a device, which others may share."""
    if result.consumed_capacity is None:
        return UNIT
    device = snapshot.inventory.published({result.device}).get(result.device)
    whole = {} if device is None else {name: each.value for name, each in device.capacity.items()}
    return _largest_share(result.consumed_capacity, whole)
