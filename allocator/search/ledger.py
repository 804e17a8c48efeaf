"""The ledger of one search: `take` takes a device and returns the undo, or refuses it with the cause."""

from collections.abc import Hashable, Iterable
from functools import partial

from allocator.checks.capacity import CAPACITY, exceeded
from allocator.checks.check import Refusal, Undo
from allocator.checks.counters import Counters
from allocator.checks.in_use import IN_USE
from allocator.checks.table import books
from allocator.model.features import Features
from allocator.model.slices.device import Device
from allocator.pools import NodePool
from allocator.reason import CONSTRAINT
from allocator.search.candidates import SUITS, Alternative, Candidates
from allocator.search.constraints import Constraint, constraint_class
from allocator.search.plan import Plan

_IN_USE = Refusal(IN_USE.cause, "another request of the pod")


class Ledger:
    """The ledger of what one search has taken. A refusal has changed nothing; an undo takes back exactly one device.

    Attributes:
        counters: what is left of the counters.
        constraints: per claim, the state of each of its constraints.
        _last: the last request that each constraint covers, by claim and number of the constraint.
        _books: what devices use up together, such as the counters.
        _holders: per candidate that is taken as a whole, the claims that have it.
    """

    def __init__(self, plan: Plan, candidates: Candidates, pools: tuple[NodePool, ...], features: Features) -> None:
        self._candidates = candidates
        by_id = {pool.id: pool for pool in pools}
        self.counters = Counters(by_id, candidates.usage)
        self._books = books(candidates.fields, self.counters, by_id, candidates.usage, features)
        self.constraints: tuple[tuple[Constraint, ...], ...] = tuple(
            [
                tuple([constraint_class(spec)(lists=features.list_type_attributes) for spec in specs])
                for specs in plan.constraints
            ]
        )
        self._specs = plan.constraints
        self._last = {
            (each.claim, number): place
            for place, slot in enumerate(plan.slots)
            for each in slot.alternatives
            for number, _ in each.covering
        }
        self._holders: dict[int, list[int]] = {}

    def is_busy(self, alternative: Alternative, index: int) -> bool:
        """Has this search taken the device already? A request with admin access asks that only of its own claim."""
        holders = self._holders.get(index, ())
        return bool(holders) and (not alternative.request.admin_access or alternative.claim in holders)

    def take(self, alternative: Alternative, index: int) -> Undo | Refusal:
        """Take a candidate for a request; returns the undo, or what speaks against the candidate.

        Raises:
            SelectorError, CapacityError: as `Candidates.judge`, and for derived attributes.
        """
        if self.is_busy(alternative, index):
            return _IN_USE
        known = self._candidates.judge(alternative, index)
        if known is not SUITS:
            return known
        device = self._candidates.all[index].device
        takes_all = alternative.members is not None
        undos: list[Undo] = []
        # For "all devices", upstream looks at capacity last: a violated constraint is an error, full capacity a "no".
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

    def broken_by_choice(self, slot: int) -> Refusal | None:
        """A constraint that does not hold over all of its devices, if this is the last request that it covers."""
        for (claim, number), last in self._last.items():
            if last == slot and not self.constraints[claim][number].holds():
                return Refusal(CONSTRAINT, self._specs[claim][number].attribute)
        return None

    def key(self, ahead: Iterable[tuple[int, int]]) -> Hashable:
        """The state of some constraints, by claim and number, and of shared capacities.

        The search knows which devices are taken as a whole.
        """
        return (
            tuple([self.constraints[claim][number].key() for claim, number in ahead]),
            frozenset(self._candidates.capacities.key()),
        )

    def _too_full(self, alternative: Alternative, index: int, device: Device) -> Refusal | None:
        if not self._candidates.has_consumption(index):
            return None
        short = exceeded(
            device, self._candidates.taken(alternative, index), self._candidates.capacities.consumed(device.id)
        )
        return None if short is None else Refusal(CAPACITY.cause, short)

    def _shortage(self, index: int, device: Device) -> Refusal | None:
        if self._books and not self._draws_already(index, device):
            for book in self._books:
                refusal = book.refusal(device)
                if refusal is not None:
                    return refusal
        return None

    def _draws_already(self, index: int, device: Device) -> bool:
        """Whether a share of the device is taken already: a further share draws nothing."""
        return self._candidates.is_shared(index) and self._candidates.capacities.is_shared(device.id)

    def _constrain(self, alternative: Alternative, index: int, undos: list[Undo]) -> Refusal | None:
        for number, spec in alternative.covering:
            value = self._candidates.value(alternative, index, spec.attribute)
            undo = self.constraints[alternative.claim][number].take(value)
            if undo is None:
                return Refusal(CONSTRAINT, spec.attribute)
            undos.append(undo)
        return None

    def _enter(self, alternative: Alternative, index: int, device: Device, undos: list[Undo]) -> None:
        if self._books and not self._draws_already(index, device):
            taken = [book.take(device) for book in self._books]
            undos += [undo for undo in taken if undo is not None]
        if self._candidates.is_shared(index):
            undos.append(self._candidates.capacities.take(device.id, self._candidates.taken(alternative, index)))
            return
        self._holders.setdefault(index, []).append(alternative.claim)
        undos.append(self._holders[index].pop)


def _undo_all(undos: list[Undo]) -> None:
    for undo in reversed(undos):
        undo()
