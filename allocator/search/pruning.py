"""What a search need not try: too few devices left, values that can't suffice, devices that are as good as others.

Worked out once, at a search's first dead end, in time proportional to devices and requests. All of it only ever
cuts off what has no solution, so the first solution in order stays the first.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

from allocator.checks.counters import counter_demand
from allocator.checks.table import drawn_by
from allocator.model.claims import ConstraintSpec
from allocator.search.candidates import SUITS, UNJUDGED, Alternative, Candidates
from allocator.search.constraints import constraint_class, constraint_covers
from allocator.search.ledger import Ledger
from allocator.search.plan import Plan, Slot

Mask = int
"""A set of candidates, one bit each."""

_UNLIMITED = 1 << 62


class Pruning:
    """Facts about one plan on one node.

    Attributes:
        is_possible: False if counting alone shows that there is no solution.
        classes: per candidate: candidates of one class are interchangeable.
    """

    def __init__(self, plan: Plan, candidates: Candidates, ledger: Ledger) -> None:
        self._plan = plan
        self._candidates = candidates
        self._ledger = ledger
        self._suits: dict[int, Mask] = {}
        self._values: dict[tuple[int, int, int], dict[Hashable, Mask]] = {}
        self._traits: list[list[Hashable]] = [[] for _ in range(candidates.count)]
        self._feasible: dict[tuple[int, int, Hashable], bool] = {}
        self._shared: Mask = _mask(i for i in range(candidates.count) if candidates.is_shared(i))
        self._drains: list[tuple[Mask, int]] = []
        self.classes: Sequence[int] = range(candidates.count)
        self.is_possible = True

    @classmethod
    def of(cls, plan: Plan, candidates: Candidates, ledger: Ledger) -> "Pruning":
        """All that can be told in advance.

        Where judging a device raises an error, or an "all devices" request could, nothing is cut off: the search
        alone decides whether it meets the error, as upstream's would. Nor where the order of devices matters.
        """
        pruning = cls(plan, candidates, ledger)
        if plan.constrains_all:
            return pruning
        try:
            pruning._judge_all()
        except UNJUDGED:
            return cls(plan, candidates, ledger)
        pruning._work_out()
        return pruning

    def narrowed(self, alternative: Alternative, order: Sequence[int], need: int) -> Sequence[int]:
        """The candidates that constraints leave to a request; none if that is fewer than it still needs."""
        allowed = self._suits.get(id(alternative))
        if allowed is None:
            return order
        for number, _, common in self._bound(alternative):
            allowed &= self._having(alternative, number, common)
        left = [i for i in order if allowed >> i & 1]
        return left if len(left) >= need else []

    def is_hopeless(self, alternative: Alternative) -> bool:
        """After a device was taken: is a constraint bound to values of which there is not enough?"""
        if not self._suits:
            return False
        for number, spec, common in self._bound(alternative):
            key = (alternative.claim, number, common)
            if key not in self._feasible:
                self._feasible[key] = self._suffices(alternative.claim, number, spec, common)
            if not self._feasible[key]:
                return True
        return False

    def _judge_all(self) -> None:
        """Which candidates suit which alternative, and the values that constraints see in them."""
        for slot in self._plan.slots:
            for alternative in slot.alternatives:
                indexes = range(self._candidates.count) if alternative.members is None else alternative.members
                suits = [i for i in indexes if self._candidates.judge(alternative, i) is SUITS]
                self._suits[id(alternative)] = _mask(suits)
                for number, spec in alternative.covering:
                    masks = self._values.setdefault((alternative.claim, number, id(alternative)), {})
                    for index in suits:
                        values = self._candidates.values(alternative, index, spec.attribute)
                        self._traits[index].append((number, id(alternative), values))
                        for value in values:
                            masks[value] = masks.get(value, 0) | 1 << index

    def _work_out(self) -> None:
        self._find_drains()
        self._find_classes()
        self.is_possible = self._requests_fit() and self._values_suffice()

    def _find_drains(self) -> None:
        """Counter sets, as bounds: of the devices that draw on one, no more than it feeds can be taken."""
        groups: dict[tuple[Hashable, str], list[int]] = {}
        suiting = reduce(or_, self._suits.values(), 0)
        for index, candidate in enumerate(self._candidates.all):
            for consumed in candidate.device.consumes_counters if suiting >> index & 1 else ():
                groups.setdefault((candidate.device.id.pool_id, consumed.counter_set), []).append(index)
        for drawing in groups.values():
            members = [i for i in drawing if not self._shared >> i & 1]
            if members:
                self._drains.append((_mask(members), self._fed(members)))

    def _fed(self, members: list[int]) -> int:
        """How many of the devices the counters that all of them need can feed at the most."""
        demands = [dict(counter_demand(self._candidates.all[i].device)) for i in members]
        left = self._ledger.counters.left(self._candidates.all[members[0]].device.id.pool_id)
        bounds: list[int] = [len(members)]
        for key in demands[0]:
            least = min(d.get(key, 0) for d in demands)
            if least > 0:
                bounds.append(max(left[key], 0) // least)
        return min(bounds)

    def _find_classes(self) -> None:
        """Interchangeable: suits the same alternatives, same values for constraints, uses up the same."""
        seen: dict[Hashable, int] = {}
        classes = []
        for index in range(self._candidates.count):
            signature = index if self._shared >> index & 1 else self._signature(index)
            classes.append(seen.setdefault(signature, len(seen)))
        self.classes = classes

    def _signature(self, index: int) -> Hashable:
        bit = 1 << index
        device = self._candidates.all[index].device
        drawn = drawn_by(device)
        pool = device.id.pool_id if drawn else None
        return tuple([bool(m & bit) for m in self._suits.values()]), tuple(self._traits[index]), drawn, pool

    def _requests_fit(self) -> bool:
        """Do the requests that must choose among the same devices find enough of them (Hall's condition, in part)?"""
        demands = [(self._reach(slot), self._least(slot)) for slot in self._plan.slots]
        return all(
            sum(need for mask, need in demands if mask | within == within) <= self._supply(within)
            for within in {mask for mask, need in demands if need}
        )

    def _values_suffice(self) -> bool:
        """For each constraint: are there as many values as the devices needed must have?"""
        for claim, specs in enumerate(self._plan.constraints):
            for number, spec in enumerate(specs):
                slots = self._bound_slots(claim, spec)
                least = constraint_class(spec).least_values(sum(map(self._least, slots)))
                values = (self._values.get((claim, number, id(a)), ()) for s in slots for a in s.alternatives)
                if least and least > len(set().union(*values)):
                    return False
        return True

    def _suffices(self, claim: int, number: int, spec: ConstraintSpec, common: frozenset[Hashable]) -> bool:
        """Once a constraint is bound to some values: can all the requests that it covers be served with these?"""
        union, total = 0, 0
        for slot in self._bound_slots(claim, spec):
            needs = []
            for alternative in slot.alternatives:
                mask = self._having(alternative, number, common)
                union |= mask
                if alternative.need <= self._supply_to_one(mask):
                    needs.append(alternative.need)
            if not needs:
                return False
            total += 0 if self._may_overlap(slot) else min(needs)
        return total <= self._supply(union)

    def _bound_slots(self, claim: int, spec: ConstraintSpec) -> list[Slot]:
        """The requests of a claim of which every alternative is covered by a constraint."""
        return [
            s
            for s in self._plan.slots
            if s.claim == claim and all(constraint_covers(spec, a.request_name, a.request.name) for a in s.alternatives)
        ]

    def _bound(self, alternative: Alternative) -> Iterator[tuple[int, ConstraintSpec, frozenset[Hashable]]]:
        """The constraints on an alternative that have settled on some values, one of which all devices must have."""
        for number, spec in alternative.covering:
            common = self._ledger.constraints[alternative.claim][number].admitted_values()
            if common is not None:
                yield number, spec, common

    def _having(self, alternative: Alternative, number: int, common: frozenset[Hashable]) -> Mask:
        masks = self._values[alternative.claim, number, id(alternative)]
        having = 0
        for value in common:
            having |= masks.get(value, 0)
        return having

    def _reach(self, slot: Slot) -> Mask:
        reach = 0
        for alternative in slot.alternatives:
            reach |= self._suits[id(alternative)]
        return reach

    def _least(self, slot: Slot) -> int:
        """Devices that the request takes from the others at the least."""
        return 0 if self._may_overlap(slot) else min(a.need for a in slot.alternatives)

    def _may_overlap(self, slot: Slot) -> bool:
        """Admin access takes nothing from other requests."""
        return any(a.request.admin_access for a in slot.alternatives)

    def _supply(self, mask: Mask) -> int:
        """How many devices of a set several requests can take at the most."""
        return _UNLIMITED if mask & self._shared else self._supply_to_one(mask)

    def _supply_to_one(self, mask: Mask) -> int:
        """How many devices of a set one request can take at the most: a shared one, too, only once."""
        supply = mask.bit_count()
        for members, fed in self._drains:
            drawn = mask & members
            if drawn:
                supply -= max(0, drawn.bit_count() - fed)
                mask &= ~members
        return supply


def _mask(indexes: Iterable[int]) -> Mask:
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return mask
