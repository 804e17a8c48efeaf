"""The rules once more, naively: the first solution in order, found by trying everything.

Shares no code with the search. Good for a handful of devices; it judges a whole choice at once, from scratch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from allocator import (
    AllocationMode,
    AttributeValue,
    Claim,
    ConstraintKind,
    ConstraintSpec,
    Device,
    DeviceRequest,
    Features,
    Request,
    Usage,
    Version,
)

Number = Fraction


@dataclass(frozen=True)
class Choice:
    """A request that is served: by which alternative, with which devices."""

    claim: int
    request: Request
    alternative: DeviceRequest
    devices: tuple[Device, ...]

    @property
    def admin(self) -> bool:
        return self.alternative.admin_access


@dataclass(frozen=True)
class Reference:
    """One node: its devices in order, what its counters hold, and what is taken already."""

    devices: Sequence[Device]
    counters: dict[tuple[str, str], int]
    usage: Usage
    features: Features

    def first(self, *claims: Claim) -> list[list[str]] | None:
        """Device names per claim in the first solution, None if there is none."""
        slots = [(number, request) for number, claim in enumerate(claims) for request in claim.spec.requests]
        solution = next(self._solutions(claims, slots, ()), None)
        if solution is None:
            return None
        return [[d.id.device for c in solution if c.claim == n for d in c.devices] for n in range(len(claims))]

    def _solutions(
        self, claims: Sequence[Claim], slots: Sequence[tuple[int, Request]], made: tuple[Choice, ...]
    ) -> Iterator[tuple[Choice, ...]]:
        if len(made) == len(slots):
            yield made
            return
        number, request = slots[len(made)]
        for alternative in request.alternatives:
            for devices in self._ways(alternative):
                choices = (*made, Choice(number, request, alternative, devices))
                if self._holds(claims, choices):
                    yield from self._solutions(claims, slots, choices)

    def _ways(self, alternative: DeviceRequest) -> Iterator[tuple[Device, ...]]:
        matching = [d for d in self.devices if matches(alternative, d) and self._has_capacity(alternative, d)]
        if alternative.mode is not AllocationMode.ALL:
            yield from combinations(matching, alternative.count)
        elif matching:
            yield tuple(matching)

    def _holds(self, claims: Sequence[Claim], choices: Sequence[Choice]) -> bool:
        return (
            all(self._allowed(c.alternative, d) for c in choices for d in c.devices)
            and self._nothing_twice(choices)
            and self._counters_suffice(choices)
            and self._groups_agree(choices)
            and self._capacity_suffices(choices)
            and all(
                self._satisfied(spec, [c for c in choices if c.claim == number])
                for number, claim in enumerate(claims)
                for spec in claim.spec.constraints
            )
        )

    def _shared(self, device: Device) -> bool:
        return device.allow_multiple_allocations and self.features.consumable_capacity

    def _allowed(self, alternative: DeviceRequest, device: Device) -> bool:
        if self.usage.device(device.id).holders and not alternative.admin_access:
            return False
        if device.consumes_counters and not self.features.partitionable_devices:
            return False
        tolerated = {t.key for t in alternative.tolerations}
        blocking = {t.key for t in device.taints if t.effect in {"NoSchedule", "NoExecute"}}
        return not self.features.device_taints or blocking <= tolerated

    def _nothing_twice(self, choices: Sequence[Choice]) -> bool:
        taken: list[tuple[Device, int]] = []
        for choice in choices:
            for device in choice.devices:
                if self._shared(device):
                    continue
                if any(d is device and (not choice.admin or claim == choice.claim) for d, claim in taken):
                    return False
                taken.append((device, choice.claim))
        return True

    def _drawing(self, choices: Sequence[Choice]) -> tuple[list[Device], list[Device]]:
        """The devices that drew on counters before, and those that the choices add."""
        before = [d for d in self.devices if not self.usage.device(d.id).is_free]
        added: list[Device] = []
        for device in (d for c in choices for d in c.devices):
            in_use = self.usage.device(device.id)
            if not self._shared(device) or not (in_use.shares or in_use.consumed or device in added):
                added.append(device)
        return before, [d for d in added if d.consumes_counters]

    def _counters_suffice(self, choices: Sequence[Choice]) -> bool:
        before, added = self._drawing(choices)
        if not added:
            return True
        left = {key: Number(amount) for key, amount in self.counters.items()}
        for device in (*before, *added):
            for consumed in device.consumes_counters:
                for counter, amount in consumed.counters.items():
                    left[consumed.counter_set, counter] -= Number(amount.nano, 10**9)
        return all(amount >= 0 for amount in left.values())

    def _groups_agree(self, choices: Sequence[Choice]) -> bool:
        before, added = self._drawing(choices)
        if not self.features.compatibility_groups:
            return True
        for name in {consumed.counter_set for d in added for consumed in d.consumes_counters}:
            groups = [
                set(consumed.compatibility_groups)
                for d in (*before, *added)
                for consumed in d.consumes_counters
                if consumed.counter_set == name
            ]
            if any(groups) and not set.intersection(*groups):
                return False
        return True

    def _has_capacity(self, alternative: DeviceRequest, device: Device) -> bool:
        """Could the device serve the request if nobody else held any of it?"""
        if not self.features.consumable_capacity:
            return True
        consumed = consumption(alternative, device)
        return consumed is not None and all(
            amount <= Number(device.capacity[name].value.nano) for name, amount in consumed.items()
        )

    def _capacity_suffices(self, choices: Sequence[Choice]) -> bool:
        if not self.features.consumable_capacity:
            return True
        for device in self.devices:
            shares = [c.alternative for c in choices if device in c.devices]
            if shares and not device.allow_multiple_allocations:
                shares = shares[:1]
            for name, capacity in device.capacity.items() if shares else ():
                total = Number(self.usage.device(device.id).consumed.get(name, 0))
                total += sum((consumption(a, device) or {})[name] for a in shares)
                if total > capacity.value.nano:
                    return False
        return True

    def _satisfied(self, spec: ConstraintSpec, choices: Sequence[Choice]) -> bool:
        values = [
            d.attributes.get(spec.attribute)
            for c in choices
            if not spec.requests or {c.request.name, f"{c.request.name}/{c.alternative.name}"} & set(spec.requests)
            for d in c.devices
        ]
        if any(value is None or value == () for value in values):
            return False
        lists = [isinstance(value, tuple) for value in values]
        sets = [elements(value) for value in values if value is not None]
        if not self.features.list_type_attributes and any(lists):
            if any(lists[1:]) or (spec.kind is ConstraintKind.MATCH and len(lists) > 1):
                return False
            sets = sets[1:]
        if spec.kind is ConstraintKind.MATCH:
            return not sets or bool(set.intersection(*sets))
        return sum(map(len, sets)) == len(set().union(*sets))


def matches(alternative: DeviceRequest, device: Device) -> bool:
    """The selectors that the strategies write: each names a true attribute of the device's driver."""
    return all(
        device.attributes.get(f"{device.driver}/{text.rpartition('.')[2]}") is True for text in alternative.selectors
    )


def consumption(alternative: DeviceRequest, device: Device) -> dict[str, Number] | None:
    """Capacity to the amount taken (10**-9 units); None where the request can't be expressed."""
    asked = dict(alternative.capacity or ())
    if not set(asked) <= set(device.capacity):
        return None
    taken = {}
    for name, capacity in device.capacity.items():
        policy, wanted = capacity.policy, asked.get(name)
        if wanted is not None:
            allowed = policy.valid_values if policy is not None else ()
            fitting = [v for v in allowed if v >= wanted]
            if allowed and not fitting:
                return None
            amount = min(fitting) if fitting else wanted
        else:
            amount = policy.default if policy is not None and policy.default is not None else capacity.value
        taken[name] = Number(amount.nano)
    return taken


def elements(value: AttributeValue) -> set[object]:
    """The values that a constraint sees, told apart by type."""
    parts: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
    return {(type(p), str(p) if isinstance(p, Version) else p) for p in parts}
