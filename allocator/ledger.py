"""What an attempt has taken so far: try to take a device, get its undo back or what speaks against it."""

from collections.abc import Callable, Hashable
from functools import partial

from allocator.candidates import SUITS, Alternative, Candidates, Refusal
from allocator.capacity import exceeded
from allocator.compatibility import Compatibility
from allocator.constraints import Constraint, constraint_of
from allocator.counters import Counters
from allocator.features import Features
from allocator.model import Device
from allocator.outcome import Cause
from allocator.plan import Plan
from allocator.pools import NodePool

Undo = Callable[[], object]

_IN_USE = Refusal(Cause.IN_USE, "another request of the pod")


class Ledger:
    """The books of one attempt. A refusal has changed nothing; an undo takes back exactly one taking."""

    def __init__(self, plan: Plan, candidates: Candidates, pools: tuple[NodePool, ...], features: Features) -> None:
        self._candidates = candidates
        by_id = {pool.id: pool for pool in pools}
        self.counters = Counters(by_id, candidates.usage)
        self._compatibility = Compatibility(by_id, candidates.usage) if features.compatibility_groups else None
        self.constraints: tuple[tuple[Constraint, ...], ...] = tuple(
            tuple(constraint_of(spec, lists=features.list_type_attributes) for spec in specs)
            for specs in plan.constraints
        )
        self._holders: dict[int, list[int]] = {}

    def is_busy(self, alternative: Alternative, index: int) -> bool:
        """Has this attempt taken the device already? Admin access minds that only in its own claim."""
        holders = self._holders.get(index, ())
        return bool(holders) and (not alternative.request.admin_access or alternative.claim in holders)

    def take(self, alternative: Alternative, index: int) -> Undo | Refusal:
        """Take a candidate for a request.

        Raises:
            SelectorError, CapacityError: as `Candidates.judge`, and for derived attributes.
        """
        if self.is_busy(alternative, index):
            return _IN_USE
        verdict = self._candidates.judge(alternative, index)
        if verdict is not SUITS:
            return verdict
        device = self._candidates.all[index].device
        takes_all = alternative.members is not None
        undos: list[Undo] = []
        # Of "all devices", upstream looks at capacity last: a constraint that can't hold is an error, this is a no.
        refusal = (
            (None if takes_all else self._too_full(alternative, index, device))
            or self._shortage(index, device)
            or self._constrain(alternative, index, undos)
            or (self._too_full(alternative, index, device) if takes_all else None)
        )
        if refusal is not None:
            _undo_all(undos)
            return refusal
        self._enter(alternative, index, device, undos)
        return partial(_undo_all, undos)

    def key(self) -> Hashable:
        """The state of constraints and shared capacities; what is taken exclusively, the search knows."""
        return (
            tuple(c.key() for of_claim in self.constraints for c in of_claim),
            frozenset(self._candidates.capacities.key()),
        )

    def _too_full(self, alternative: Alternative, index: int, device: Device) -> Refusal | None:
        if not self._candidates.is_shared(index):
            return None
        short = exceeded(device, alternative.taken[index], self._candidates.capacities.consumed(device.id))
        return None if short is None else Refusal(Cause.CAPACITY, short)

    def _shortage(self, index: int, device: Device) -> Refusal | None:
        if not device.consumes_counters or self._draws_already(index, device):
            return None
        if self._compatibility is not None and not self._compatibility.admits(device):
            return Refusal(Cause.COMPATIBILITY)
        key = self.counters.shortage(device)
        return None if key is None else Refusal(Cause.COUNTERS, f"{key[1]}/{key[2]}")

    def _draws_already(self, index: int, device: Device) -> bool:
        """A further share of a device draws nothing from its counters."""
        return self._candidates.is_shared(index) and self._candidates.capacities.is_shared(device.id)

    def _constrain(self, alternative: Alternative, index: int, undos: list[Undo]) -> Refusal | None:
        for number, spec in alternative.covering:
            value = self._candidates.value(alternative, index, spec.attribute)
            undo = self.constraints[alternative.claim][number].add(value)
            if undo is None:
                return Refusal(Cause.CONSTRAINT, spec.attribute)
            undos.append(undo)
        return None

    def _enter(self, alternative: Alternative, index: int, device: Device, undos: list[Undo]) -> None:
        if device.consumes_counters and not self._draws_already(index, device):
            undos.append(self.counters.take(device))
            if self._compatibility is not None:
                undos.append(self._compatibility.take(device))
        if self._candidates.is_shared(index):
            undos.append(self._candidates.capacities.take(device.id, alternative.taken[index]))
            return
        self._holders.setdefault(index, []).append(alternative.claim)
        undos.append(self._holders[index].pop)


def _undo_all(undos: list[Undo]) -> None:
    for undo in reversed(undos):
        undo()
