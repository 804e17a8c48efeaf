"""The amounts that claims take of a limit of a DeviceQuota: with an allocation, and at least without one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from allocator import (
    AllocationMode,
    AllocationResult,
    ClaimSpec,
    ClassMembers,
    Device,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    Inventory,
    Quantity,
    Request,
)
from allocator.model.optional import required
from allocator.search import TimedSelectors
from extender.cluster.objects.device_quotas import DEVICES, Amounts, DeviceLimit, capacity_key
from extender.cluster.snapshot import Snapshot

Measure: TypeAlias = Callable[[DeviceLimit], Amounts]
"""What something takes of a limit."""

_MOST_DEVICES: Final = 32
"""The most devices of a claim."""

_ONE: Final = Quantity.from_int(1)
_ZERO: Final = Quantity(0)


class Taken(NamedTuple):
    """The devices that a claim holds, and its spec, which names the device classes."""

    spec: ClaimSpec
    allocation: AllocationResult

    @property
    def unlisted(self) -> Sequence[Request]:
        """The required requests without results: a controller serves them, and need not name devices."""
        served = {each.request.partition("/")[0] for each in self.allocation.results}
        return [each for each in required(self.spec).requests if each.name not in served]


def total(all_amounts: Iterable[Amounts]) -> Amounts:
    """The sum."""
    found: dict[str, Quantity] = {}
    for amounts in all_amounts:
        for name, amount in amounts.items():
            found[name] = found.get(name, _ZERO) + amount
    return found


@dataclass(frozen=True, slots=True)
class LimitMeter:
    """Measures what allocations take of limits.

    Attributes:
        inventory: has the capacities of devices. A device that is not published any more matches no selector, and
            only its consumed capacity is known.
        selectors: evaluates the selectors of limits. A device on which a selector fails does not match.
    """

    inventory: Inventory
    selectors: TimedSelectors

    def allocated(self, limit: DeviceLimit, taken: Sequence[Taken]) -> Amounts:
        """What allocated claims take of a limit: their devices, and of a request without devices what it asks for.

        Raises:
            SearchLimitError: time is up.
        """
        unlisted = [request for each in taken for request in each.unlisted]
        measured = self.measured(limit, taken)
        return total((measured, least_of(limit, unlisted))) if unlisted else measured

    def measured(self, limit: DeviceLimit, taken: Iterable[Taken]) -> Amounts:
        """What the devices of some claims take of a limit. Raises SearchLimitError: time is up."""
        members = ClassMembers(DeviceClass(limit.name, limit.selectors), self.selectors)
        return total(
            self._amounts(limit, result, device)
            for result, device in self._counted(limit, taken)
            if not limit.selectors or (device is not None and members.has(device))
        )

    def _counted(self, limit: DeviceLimit, taken: Iterable[Taken]) -> Iterator[tuple[DeviceResult, Device | None]]:
        """The devices of the limit's class, and how they are published. Administrative access takes nothing."""
        for spec, allocation in taken:
            classes = _classes(spec) if limit.device_class else {}
            of_class = (each for each in allocation.results if classes.get(each.request, "") == limit.device_class)
            counted = [each for each in of_class if not each.admin_access]
            devices = self.inventory.published({each.device for each in counted})
            yield from ((each, devices.get(each.device)) for each in counted)

    def _amounts(self, limit: DeviceLimit, result: DeviceResult, device: Device | None) -> Amounts:
        found = {DEVICES: _ONE} if DEVICES in limit.hard else {}
        consumed = result.consumed_capacity
        whole = {} if device is None else {name: each.value for name, each in device.capacity.items()}
        amounts = _qualified(whole if consumed is None else consumed, result.device.driver)
        for name in limit.capacities:
            found[capacity_key(name)] = amounts.get(qualified(name, result.device.driver), _ZERO)
        return found


def in_flight(namespace: str, snapshot: Snapshot) -> Iterator[tuple[str, Taken]]:
    """The assumed allocations of a namespace that the watch has not shown, each with the uid of its pod."""
    for uid, assumed in snapshot.assumed.items():
        claim, pod = snapshot.claim(uid), snapshot.pod(assumed.pod_uid)
        if claim is not None and claim.claim.allocation is not None:
            continue
        of = claim.key.namespace if claim is not None else "" if pod is None else pod.namespace
        if of == namespace:
            yield assumed.pod_uid, Taken(assumed.spec, assumed.allocation)


def least(limit: DeviceLimit, specs: Iterable[ClaimSpec]) -> Amounts:
    """The least that claims take of a limit, with any devices, without their optional requests."""
    return least_of(limit, (request for spec in specs for request in required(spec).requests))


def least_of(limit: DeviceLimit, requests: Iterable[Request]) -> Amounts:
    """The least that requests take of a limit, with any devices. A limit with selectors depends on the devices."""
    return {} if limit.selectors else total(_least(limit, request) for request in requests)


def _least(limit: DeviceLimit, request: Request) -> Amounts:
    """The smallest amount of each resource among the alternatives."""
    ways = [_asked_amounts(limit, way) for way in request.alternatives]
    return {name: min(way.get(name, _ZERO) for way in ways) for name in (ways[0] if ways else ())}


def _asked_amounts(limit: DeviceLimit, way: DeviceRequest) -> Amounts:
    """The amounts that a request asks for. A whole device may have more capacity."""
    if way.device_class != limit.device_class or way.admin_access:
        return {}
    count = 1 if way.mode is AllocationMode.ALL else way.count
    found = {DEVICES: Quantity.from_int(count)} if DEVICES in limit.hard else {}
    wanted = dict(way.capacity or ())
    for name in limit.capacities:
        if name in wanted:
            found[capacity_key(name)] = Quantity(wanted[name].nano * count, wanted[name].format)
    return found


def most(limit: DeviceLimit, specs: Iterable[ClaimSpec], largest: Callable[[], Mapping[str, int]]) -> Amounts:
    """The most that claims can take of a limit, whatever devices they get.

    Args:
        limit: the limit.
        specs: of the claims.
        largest: tells the largest capacities of devices (`largest_capacities`); called if the limit needs them.
    """
    requests = (request for spec in specs for request in spec.requests)
    devices = sum(max((_most_devices(limit, way) for way in each.alternatives), default=0) for each in requests)
    found = {DEVICES: Quantity.from_int(devices)} if DEVICES in limit.hard else {}
    for name in limit.capacities:
        of_drivers = (nano for full, nano in largest().items() if name in (full, full.partition("/")[2]))
        found[capacity_key(name)] = Quantity(devices * max(of_drivers, default=0))
    return found


def _most_devices(limit: DeviceLimit, way: DeviceRequest) -> int:
    """The most devices of a request that count in a limit."""
    if way.admin_access or (limit.device_class and way.device_class != limit.device_class):
        return 0
    return _MOST_DEVICES if way.mode is AllocationMode.ALL else way.count


def _classes(spec: ClaimSpec) -> Mapping[str, str]:
    """The device class of each alternative, by the alternative's name in results."""
    return {request.label(way): way.device_class for request in spec.requests for way in request.alternatives}


def _qualified(amounts: Mapping[str, Quantity], driver: str) -> Mapping[str, Quantity]:
    return {qualified(name, driver): amount for name, amount in amounts.items()}


def qualified(name: str, driver: str) -> str:
    """The name of a capacity with a domain: by default the domain of the driver."""
    return name if "/" in name else f"{driver}/{name}"
