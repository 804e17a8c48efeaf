"""Pruning: branches that a search skips, because they lead to no solution.

There are three reasons: too few devices are left, the values of an attribute can't satisfy a constraint, or an
interchangeable device has failed in the same place. The facts are computed once, at the first dead end of a search, in
time proportional to devices and requests. Pruning cuts off no solution, so the first solution in order stays first.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final

from allocator.checks.counters import counter_demand
from allocator.checks.table import drawn_by
from allocator.model.claims import ConstraintSpec
from allocator.search.candidates import SUITS, UNJUDGED, Alternative, Candidates
from allocator.search.constraints import constraint_class, constraint_covers, exact
from allocator.search.ledger import Ledger
from allocator.search.plan import Plan, Slot

Mask = int
"""A set of candidates: bit i is set if candidate i is in it."""

_UNLIMITED: Final = 1 << 62


class Pruning:
    """Facts about one plan on one node.

    Attributes:
        is_possible: False if counting alone shows that there is no solution.
        classes: the class of each candidate; candidates of one class are interchangeable.
        ahead: per slot, the constraints that it or a later slot may have to meet, by claim and number. Devices that the
            other constraints are bound to decide nothing any more.
        _suits: by the id of an alternative, the candidates that suit it.
        _values: by claim, number of the constraint and id of the alternative: the candidates that have each value.
        _traits: per candidate, what constraints read of it.
        _feasible: whether a constraint can be satisfied, once it is bound to some values.
        _feeds: devices that consume the same counter set, and how many of them its counters can feed.
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
        self._feeds: list[tuple[Mask, int]] = []
        self.classes: Sequence[int] = range(candidates.count)
        self.ahead = _ahead(plan)
        self.is_possible = True

    @classmethod
    def of(cls, plan: Plan, candidates: Candidates, ledger: Ledger) -> "Pruning":
        """The facts about a plan; none if judging a device raises an error, or a request for all devices may.

        Without facts nothing is cut off, and the search alone decides whether it meets the error, as upstream does.
        """
        pruning = cls(plan, candidates, ledger)
        if plan.constrains_all:
            return pruning
        try:
            pruning._judge_all()
        except UNJUDGED:
            return cls(plan, candidates, ledger)
        pruning._find_feeds()
        pruning._find_classes()
        pruning.is_possible = pruning._requests_fit() and pruning._values_suffice()
        return pruning

    def narrowed(self, alternative: Alternative, order: Sequence[int], need: int) -> Sequence[int]:
        """The candidates that constraints leave to a request; none if they are fewer than the request still needs."""
        allowed = self._suits.get(id(alternative))
        if allowed is None:
            return order
        for number, _, values in self._bound(alternative):
            allowed &= self._having(alternative, number, values)
        left = [i for i in order if allowed >> i & 1]
        return left if len(left) >= need else []

    def is_hopeless(self, alternative: Alternative) -> bool:
        """After a device was taken: are there too few devices with the values that a constraint is now bound to?"""
        if not self._suits:
            return False
        for number, spec, values in self._bound(alternative):
            key = (alternative.claim, number, values)
            if key not in self._feasible:
                self._feasible[key] = self._suffices(alternative.claim, number, spec, values)
            if not self._feasible[key]:
                return True
        return False

    # --- facts -----------------------------------------------------------------------------------------------

    def _judge_all(self) -> None:
        """Find the candidates that suit each alternative, and the values that constraints see in them."""
        for slot in self._plan.slots:
            for alternative in slot.alternatives:
                indexes = range(self._candidates.count) if alternative.members is None else alternative.members
                suits = [i for i in indexes if self._candidates.judge(alternative, i) is SUITS]
                self._suits[id(alternative)] = _mask(suits)
                for number, spec in alternative.covering:
                    masks = self._values.setdefault((alternative.claim, number, id(alternative)), {})
                    reads_values = constraint_class(spec).reads_values
                    for index in suits:
                        values = self._candidates.values(alternative, index, spec.attribute)
                        read = self._exact(alternative, index, spec.attribute) if reads_values else values
                        self._traits[index].append((number, id(alternative), read))
                        for value in values:
                            masks[value] = masks.get(value, 0) | 1 << index

    def _exact(self, alternative: Alternative, index: int, attribute: str) -> Hashable:
        return exact(self._candidates.value(alternative, index, attribute))

    def _find_feeds(self) -> None:
        """Find the bound that each counter set puts on the number of its devices that can be taken."""
        consumers: dict[tuple[Hashable, str], list[int]] = {}
        suiting = reduce(or_, self._suits.values(), 0)
        for index, candidate in enumerate(self._candidates.all):
            for consumed in candidate.device.consumes_counters if suiting >> index & 1 else ():
                consumers.setdefault((candidate.device.id.pool_id, consumed.counter_set), []).append(index)
        for indexes in consumers.values():
            members = [i for i in indexes if not self._shared >> i & 1]
            if members:
                self._feeds.append((_mask(members), self._fed(members)))

    def _fed(self, members: list[int]) -> int:
        """The most devices that can be taken, by the counters that all of them consume."""
        demands = [dict(counter_demand(self._candidates.all[i].device)) for i in members]
        left = self._ledger.counters.left(self._candidates.all[members[0]].device.id.pool_id)
        bounds: list[int] = [len(members)]
        for key in demands[0]:
            least = min(d.get(key, 0) for d in demands)
            if least > 0:
                bounds.append(max(left[key], 0) // least)
        return min(bounds)

    def _find_classes(self) -> None:
        """Interchangeable candidates suit the same alternatives, have the same traits and draw the same."""
        seen: dict[Hashable, int] = {}
        classes = []
        for index in range(self._candidates.count):
            signature = index if self._shared >> index & 1 else self._signature(index)
            classes.append(seen.setdefault(signature, len(seen)))
        self.classes = classes

    def _signature(self, index: int) -> Hashable:
        device = self._candidates.all[index].device
        drawn = drawn_by(device)
        pool = device.id.pool_id if drawn else None
        return tuple([bool(m >> index & 1) for m in self._suits.values()]), tuple(self._traits[index]), drawn, pool

    def _requests_fit(self) -> bool:
        """Do the requests that must choose among the same devices find enough of them (Hall's condition, in part)?"""
        demands = [(self._reach(slot), self._least(slot)) for slot in self._plan.slots]
        return all(
            sum(need for mask, need in demands if mask | within == within) <= self._supply(within)
            for within in {mask for mask, need in demands if need}
        )

    def _values_suffice(self) -> bool:
        """Do the candidates have as many different values as each constraint demands?"""
        for claim, specs in enumerate(self._plan.constraints):
            for number, spec in enumerate(specs):
                slots = self._covered_slots(claim, spec)
                least = constraint_class(spec).least_values(sum(map(self._least, slots)))
                values = (self._values.get((claim, number, id(a)), ()) for s in slots for a in s.alternatives)
                if least and least > len(set().union(*values)):
                    return False
        return True

    def _suffices(self, claim: int, number: int, spec: ConstraintSpec, values: frozenset[Hashable]) -> bool:
        """Can all requests that a constraint covers be served by devices that have one of these values?"""
        union, total = 0, 0
        for slot in self._covered_slots(claim, spec):
            needs = []
            for alternative in slot.alternatives:
                mask = self._having(alternative, number, values)
                union |= mask
                if alternative.need <= self._supply_to_one(mask):
                    needs.append(alternative.need)
            if not needs:
                return False
            total += 0 if slot.may_overlap else min(needs)
        return total <= self._supply(union)

    # --- supply and demand -----------------------------------------------------------------------------------

    def _covered_slots(self, claim: int, spec: ConstraintSpec) -> list[Slot]:
        """The requests of a claim that a constraint covers in every alternative."""
        return [
            s
            for s in self._plan.slots
            if s.claim == claim and all(constraint_covers(spec, a.request_name, a.request.name) for a in s.alternatives)
        ]

    def _bound(self, alternative: Alternative) -> Iterator[tuple[int, ConstraintSpec, frozenset[Hashable]]]:
        """The constraints on an alternative that are bound to values: each further device must have one of these."""
        for number, spec in alternative.covering:
            values = self._ledger.constraints[alternative.claim][number].admitted_values()
            if values is not None:
                yield number, spec, values

    def _having(self, alternative: Alternative, number: int, values: frozenset[Hashable]) -> Mask:
        """The candidates that have one of the values."""
        masks = self._values[alternative.claim, number, id(alternative)]
        return reduce(or_, [masks.get(value, 0) for value in values], 0)

    def _reach(self, slot: Slot) -> Mask:
        """The candidates that suit any alternative of a request."""
        return reduce(or_, [self._suits[id(alternative)] for alternative in slot.alternatives], 0)

    def _least(self, slot: Slot) -> int:
        """The least number of devices that the request takes from other requests."""
        return 0 if slot.may_overlap else min(a.need for a in slot.alternatives)

    def _supply(self, mask: Mask) -> int:
        """The most devices that several requests can take."""
        return _UNLIMITED if mask & self._shared else self._supply_to_one(mask)

    def _supply_to_one(self, mask: Mask) -> int:
        """The most devices that one request can take: each device once, a shared device too."""
        supply = mask.bit_count()
        for members, fed in self._feeds:
            drawn = mask & members
            if drawn:
                supply -= max(0, drawn.bit_count() - fed)
                mask &= ~members
        return supply


def _ahead(plan: Plan) -> Sequence[Sequence[tuple[int, int]]]:
    found: set[tuple[int, int]] = set()
    per_slot = []
    for slot in reversed(plan.slots):
        found |= {(each.claim, number) for each in slot.alternatives for number, _ in each.covering}
        per_slot.append(sorted(found))
    return per_slot[::-1]


def _mask(indexes: Iterable[int]) -> Mask:
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return mask
