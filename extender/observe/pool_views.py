"""What is left of divided and of shared devices in a pool: two parts of the answer to a ResourcePoolStatusRequest.

Source: views.go in pkg/controller/resourcepoolstatusrequest of Kubernetes 1.37.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from allocator import Device, PoolId, Quantity
from extender.kube.api import RawObject

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
    """For each attribute and each of its values: the partitions, and how many more can be allocated.

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
    """How many devices that several claims may share are in use, and what is left of them; None if there are none.

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
    left = _left(contents)
    allocatable = 0
    for device in devices:
        needed = _needs(device)
        if device.id.device not in contents.in_use and all(key in left and left[key] >= needed[key] for key in needed):
            allocatable += 1
            _take(left, (device,))
    return {"attribute": attribute, "type": kind, "total": len(devices), "allocatable": allocatable}


def _left(contents: PoolContents) -> _Amounts:
    """What devices in use leave of each counter."""
    amounts = {(name, key): full for name, counters in contents.counter_sets.items() for key, full in counters.items()}
    _take(amounts, (device for device, _ in contents.devices if device.id.device in contents.in_use))
    return amounts


def _take(amounts: _Amounts, devices: Iterable[Device]) -> None:
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
