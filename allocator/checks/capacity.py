"""Consumable capacity (KEP-5075): how much a request takes of a device that several claims may share.

A request names a capacity exactly as the device publishes it, with or without the driver's domain (upstream 1.37).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from allocator.checks.check import Asked, Check, DeviceState, Refusal, Situation, Undo
from allocator.errors import CapacityError
from allocator.model.claims import AllocationMode, DeviceRequest
from allocator.model.devices import Capacity, DeviceId, RequestPolicy, ValidRange
from allocator.model.features import Features
from allocator.model.quantity import Quantity
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import WHOLE, Held, Obstacle, Remedy, RemedyKind, Seen
from allocator.pools import Candidate
from allocator.reason import Cause
from allocator.tools.spelling import did_you_mean, meant_by
from allocator.usage import DeviceUsage, Usage

_INT64_MAX = 2**63 - 1
_NANO = 10**9
_MILLI = 10**6

_CAUSE: Final = Cause("capacity", "not enough device capacity for {request}", rank=60, of_choice=True)

Requests = tuple[tuple[str, Quantity], ...]


class CapacityArithmeticError(ValueError):
    """An amount that the device's range can't express."""


def consumption(device: Device, requests: Requests | None, *, fractional: bool) -> dict[str, Quantity] | None:
    """What a request consumes of each capacity of a device, by the published names.

    None: the device lacks a requested capacity, or its request policy forbids the amount.

    Raises:
        CapacityArithmeticError: an amount is beyond int64, no multiple of a milli unit, or negative.
    """
    if not device.capacity:
        return None if requests else {}
    wanted = dict(requests or ())
    if not wanted.keys() <= device.capacity.keys():
        return None
    taken = {n: _amount(n, c, wanted.get(n), fractional=fractional) for n, c in device.capacity.items()}
    limited = [(n, c.policy) for n, c in device.capacity.items() if c.policy is not None]
    if any(_forbidden(taken[n], policy, fractional=fractional) for n, policy in limited):
        return None
    return taken


def least_requests(device: Device, *, fractional: bool) -> Requests:
    """The smallest amounts, none of them zero, that a request can ask for, of capacities whose default is more."""
    found = ((name, each, _smallest(each)) for name, each in device.capacity.items())
    return tuple([(n, ask) for n, c, ask in found if _is_less(n, c, ask, fractional=fractional)])


def gives_all(capacity: Mapping[str, Capacity]) -> bool:
    """Whether a request without wishes gets all of each capacity of a device that is free."""
    return all(each.policy is None and each.value.nano >= 0 for each in capacity.values())


def capacity_left(device: Device, used: DeviceUsage) -> Iterator[tuple[str, Quantity, Quantity]]:
    """Each capacity of a device: its name, what is left of it (negative: too much is held), and all of it."""
    for name, each in device.capacity.items():
        total = each.value
        left = 0 if used.holders else total.nano - used.consumed.get(name, 0)
        yield name, Quantity.from_nano(left, total.format), total


def exceeded(device: Device, taken: Mapping[str, Quantity], already: Mapping[str, int]) -> str | None:
    """The first capacity that does not suffice, given what is consumed already (units of 10**-9)."""
    for name, amount in taken.items():
        if already.get(name, 0) + amount.nano > device.capacity[name].value.nano:
            return name
    return None


def taken_by(asked: Asked, device: Device, features: Features) -> dict[str, Quantity] | None:
    """Like `consumption`.

    Raises:
        CapacityError: the amount cannot be computed.
    """
    try:
        return consumption(device, asked.request.capacity, fractional=features.fractional_capacity_range)
    except CapacityArithmeticError as error:
        raise CapacityError(str(asked.owner), asked.label, str(error), device.id) from error


def _speaks(situation: Situation, asked: Asked, candidate: Candidate, used: DeviceUsage) -> Refusal | None:
    """The first capacity that does not suffice. For all devices, the ledger checks what is left of it."""
    device, request = candidate.device, asked.request
    if not device.capacity and request.capacity is None:
        return None
    taken = taken_by(asked, device, situation.features)
    if taken is None:
        return Refusal(_CAUSE, "as requested")
    short = exceeded(device, taken, {} if request.mode is AllocationMode.ALL else used.consumed)
    return None if short is None else Refusal(_CAUSE, short)


def _obstacles(
    situation: Situation, asked: Asked, candidate: Candidate, used: DeviceUsage, _: object
) -> Iterator[Seen]:
    """The capacities that are missing or do not suffice, with what is left of them."""
    device, amounts = candidate.device, dict(asked.request.capacity or ())
    lacking = [name for name in amounts if name not in device.capacity]
    for name in lacking:
        meant = meant_by(name, device.capacity)
        obstacle = Obstacle(_CAUSE, f"without capacity {name}{did_you_mean(meant)}", name, str(amounts[name]))
        yield Seen(obstacle, remedies=partial(naming, name, meant))
    if lacking:
        return
    rests = {n: c.value.nano - used.consumed.get(n, 0) for n, c in device.capacity.items()}
    try:
        taken = taken_by(asked, device, situation.features)
    except CapacityError as error:
        yield _unobtainable("", error.problem, amounts, device, rests)
        return
    if taken is None:
        need = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
        limits = [(name, amount, _most(device.capacity[name])) for name, amount in amounts.items()]
        over = [f"at most {most} of {name}" for name, amount, most in limits if most is not None and amount > most]
        why = f"one request gets {' and '.join(over)}" if over else "the request policy does not allow it"
        yield _unobtainable(need, why, amounts, device, rests)
        return
    for name, amount in taken.items():
        if amount.nano > rests[name]:
            full = device.capacity[name].value
            named, rounding = amounts.get(name, amount), _rounding(amount, amounts.get(name))
            text = f"with too little capacity {name}: {named} needed{rounding}"
            short = Obstacle(_CAUSE, text, name, str(amount), str(named), rounding, held=Held.SHARED)
            values = ((name, f"{Quantity.from_nano(rests[name], full.format)} of {full} free"),)
            yield Seen(short, values, partial(asking_for_less, device, rests, {name: amount}, amounts))


def _most(capacity: Capacity) -> Quantity | None:
    """The most that a request may have by the capacity's policy; None if the policy says nothing of it."""
    policy = capacity.policy
    if policy is None:
        return None
    if policy.valid_values:
        return max(policy.valid_values, key=lambda each: each.nano)
    return None if policy.valid_range is None else policy.valid_range.max


def _rounding(taken: Quantity, asked: Quantity | None) -> str:
    """The way from the amount that a request names to the amount that it would take; empty if they are equal."""
    if asked is None:
        return ", which is what these devices give if no amount is named"
    return "" if asked == taken else f", which these devices round up to {taken}"


def _unobtainable(
    need: str, error: str, amounts: Mapping[str, Quantity], device: Device, rests: Mapping[str, int]
) -> Seen:
    asked = f" ({need})" if need else ""
    obstacle = Obstacle(_CAUSE, f"that cannot give the requested capacity{asked}: {error}", need=need)
    return Seen(obstacle, remedies=partial(asking_for_less, device, rests, amounts, amounts))


def as_refusal(error: CapacityError) -> Refusal:
    """An amount that cannot be computed, as what speaks against a device."""
    return Refusal(_CAUSE, error.problem)


def _state(device: Device, used: DeviceUsage) -> DeviceState:
    """The state of a device with too little capacity."""
    if not used.has_shares:
        return DeviceState.UNUSABLE
    is_too_much = any(left.nano < 0 for _, left, _ in capacity_left(device, used))
    return DeviceState.CLASH if is_too_much else DeviceState.ALLOCATED


def _words(_: Situation, candidate: Candidate, refusal: Refusal) -> str:
    is_short = refusal.detail in candidate.device.capacity
    return f"the default amount of {refusal.detail} is more than there is" if is_short else refusal.detail


def _reads(candidate: Candidate) -> Hashable:
    published = candidate.device.capacity.items()
    return tuple([(name, each.value.nano, each.value.format, each.policy) for name, each in published])


CAPACITY: Final = Check(
    _CAUSE,
    _speaks,
    fields=("capacity", "allow_multiple_allocations"),
    gate=("consumable_capacity", True),
    state=_state,
    words=_words,
    obstacles=_obstacles,
    reads=_reads,
    needs_search=lambda candidate: candidate.device.allow_multiple_allocations,
)


class Capacities:
    """The consumption of shared devices, by allocated claims and by the current search."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._taken: dict[DeviceId, int] = {}

    def consumed(self, device: DeviceId) -> Mapping[str, int]:
        """Capacity name to the amount consumed so far, in units of 10**-9."""
        return self._consumed.get(device) or self._usage.device(device).consumed

    def is_shared(self, device: DeviceId) -> bool:
        """Whether a share of the device is held, or taken by this search."""
        return bool(self._taken.get(device)) or self._usage.device(device).has_shares

    def key(self) -> Iterable[tuple[DeviceId, tuple[tuple[str, int], ...]]]:
        """What this search has consumed."""
        return ((d, tuple(self._consumed[d].items())) for d, n in self._taken.items() if n)

    def take(self, device: DeviceId, taken: Mapping[str, Quantity]) -> Undo:
        """Consume; returns the undo."""
        before = self._consumed.get(device)
        after = dict(self.consumed(device))
        for name, amount in taken.items():
            after[name] = after.get(name, 0) + amount.nano
        self._consumed[device] = after
        self._taken[device] = self._taken.get(device, 0) + 1

        def undo() -> None:
            self._taken[device] -= 1
            if before is None:
                del self._consumed[device]
            else:
                self._consumed[device] = before

        return undo


def _amount(name: str, capacity: Capacity, requested: Quantity | None, *, fractional: bool) -> Quantity:
    policy = capacity.policy
    if requested is None:
        amount = _default(capacity)
    elif policy is None:
        amount = requested
    elif policy.valid_range is not None:
        amount = _rounded_up(requested, policy.valid_range, fractional=fractional)
    else:
        amount = next((v for v in policy.valid_values if requested <= v), requested)
    if amount.nano < 0:
        raise CapacityArithmeticError(f"capacity {name} is negative: {amount}")
    return amount


def _default(capacity: Capacity) -> Quantity:
    policy = capacity.policy
    return policy.default if policy is not None and policy.default is not None else capacity.value


def _is_less(name: str, capacity: Capacity, ask: Quantity, *, fractional: bool) -> bool:
    """Whether a request for an amount takes less than a request that does not name the capacity."""
    try:
        return _amount(name, capacity, ask, fractional=fractional) < _default(capacity)
    except CapacityArithmeticError:
        return False


def _smallest(capacity: Capacity) -> Quantity:
    """The smallest request for more than nothing. A policy raises it to the smallest amount that it allows."""
    valid = capacity.policy.valid_range if capacity.policy is not None else None
    if valid is not None and valid.step is not None and valid.min.nano <= 0:
        return valid.step
    return Quantity.from_nano(1, capacity.value.format)


def _rounded_up(requested: Quantity, valid: ValidRange, *, fractional: bool) -> Quantity:
    """The amount, raised to the minimum and then to the next step, in milli units where the range is exact in them."""
    if requested < valid.min:
        return valid.min
    if valid.step is None:
        return requested
    unit = _unit(valid, fractional=fractional)
    if unit == _MILLI and not _fits(requested, _MILLI):
        raise CapacityArithmeticError(f"request {requested} is not a multiple of 1m in int64")
    amount, least, step = (_in_units(q, unit) for q in (requested, valid.min, valid.step))
    if amount > _INT64_MAX:
        raise CapacityArithmeticError(f"request {requested} is beyond int64")
    rounded = least + -(-(amount - least) // step) * step
    if rounded > _INT64_MAX:
        raise CapacityArithmeticError(f"request {requested}, rounded up to the next step, is beyond int64")
    return Quantity.from_nano(rounded * unit, valid.step.format)


def _forbidden(amount: Quantity, policy: RequestPolicy | None, *, fractional: bool) -> bool:
    if policy is None or (policy.default is not None and amount == policy.default):
        return False
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > valid.max:
            return True
        if valid.step is None:
            return False
        unit = _unit(valid, fractional=fractional)
        if unit == _MILLI and not _fits(amount, _MILLI):
            return True
        return (_in_units(amount, unit) - _in_units(valid.min, unit)) % _in_units(valid.step, unit) != 0
    return bool(policy.valid_values) and amount not in policy.valid_values


def _unit(valid: ValidRange, *, fractional: bool) -> int:
    """Milli units if the feature is on and the range is exact in them, with a step of at least 1m; else whole units."""
    set_ones = [q for q in (valid.min, valid.max, valid.step) if q is not None]
    exact = fractional and all(_fits(q, _MILLI) for q in set_ones)
    return _MILLI if exact and (valid.step is None or valid.step.nano >= _MILLI) else _NANO


def _fits(quantity: Quantity, unit: int) -> bool:
    return quantity.nano % unit == 0 and abs(quantity.nano // unit) <= _INT64_MAX


def _in_units(quantity: Quantity, unit: int) -> int:
    """Rounded up, as upstream reads a quantity as an integer."""
    return -(-quantity.nano // unit)


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
        most = _most_left(device.capacity[name], rests[name])
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


def _most_left(capacity: Capacity, rest: int) -> Quantity | None:
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
