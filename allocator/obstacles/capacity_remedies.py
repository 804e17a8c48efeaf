"""Requests for amounts of a capacity: how to ask for less, or for another capacity."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from allocator.model.claims import DeviceRequest
from allocator.model.devices import Capacity
from allocator.model.quantity import Quantity
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import WHOLE, Remedy, RemedyKind


def naming(name: str, meant: str) -> Iterator[Remedy]:
    """Ask for the capacity that exists instead of the one that does not, or do not ask for it."""
    if meant:
        yield Remedy(
            RemedyKind.CORRECT,
            f"capacity {name}",
            f"write {meant} instead of {name} in the capacity of",
            f"capacity.requests: write {meant} instead of {name}",
            lambda request: _edited(request, lambda n, amount: (meant if n == name else n, amount)),
        )
    yield _without(name)


def asking_for_less(
    device: Device, rests: Mapping[str, int], needs: Mapping[str, Quantity], asked: Mapping[str, Quantity]
) -> Iterator[Remedy]:
    """Ask for what a device can still give.

    Args:
        device: has all the capacities.
        rests: capacity to what is left of it, in units of 10**-9.
        needs: capacity to the amount that is too large, or that may be.
        asked: the amounts that the request names. Of other capacities it takes a default amount.
    """
    for name, need in needs.items():
        most = _most(device.capacity[name], rests[name])
        if most is not None and 0 < most.nano < need.nano:
            yield _asking(name, most, asked.get(name, need))
        if name in asked:
            yield _without(name)


def _asking(name: str, less: Quantity, need: Quantity) -> Remedy:
    def edit(request: DeviceRequest) -> DeviceRequest:
        return replace(request, capacity=tuple(sorted({**dict(request.capacity or ()), name: less}.items())))

    return Remedy(
        RemedyKind.ASK_FOR_LESS,
        f"capacity {name}",
        f"ask for {less} of {name} instead of {need} in",
        f'capacity.requests: write {name}: "{less}"',
        edit,
        weight=WHOLE - less.nano * WHOLE // need.nano,
    )


def _most(capacity: Capacity, rest: int) -> Quantity | None:
    """The largest amount that the request policy allows, up to what is left; None: there is none."""
    policy, left = capacity.policy, Quantity.from_nano(rest, capacity.value.format)
    if policy is None or (policy.valid_range is None and not policy.valid_values):
        return left
    if policy.valid_range is None:
        return max((each for each in policy.valid_values if each <= left), default=None)
    least, most, step = policy.valid_range.min, policy.valid_range.max, policy.valid_range.step
    if most is not None and most < left:
        left = most
    if step is not None and step.nano > 0:
        left = left - Quantity.from_nano((left - least).nano % step.nano)
    return left if left >= least else None


def _without(name: str) -> Remedy:
    """Take any amount of a capacity."""
    return Remedy(
        RemedyKind.ASK_FOR_LESS,
        f"capacity {name}",
        f"do not ask for capacity {name} in",
        f"capacity.requests: remove {name}",
        lambda request: _edited(request, lambda n, amount: None if n == name else (n, amount)),
        weight=WHOLE,
    )


def _edited(request: DeviceRequest, edit: Callable[[str, Quantity], tuple[str, Quantity] | None]) -> DeviceRequest:
    kept = (edit(name, amount) for name, amount in request.capacity or ())
    return replace(request, capacity=tuple(each for each in kept if each is not None) or None)
