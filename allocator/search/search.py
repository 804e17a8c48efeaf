"""Backtracking search: serve one request after the other, device by device; on failure undo a device and try the next.

The search knows slots, candidates and undo; the ledger knows what speaks against a device. A request takes
combinations, not permutations: each device comes later in the order than the device before it. The first solution in
the order wins, so the order is the policy.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from allocator.checks.check import Refusal, Undo
from allocator.checks.in_use import IN_USE
from allocator.errors import NodeUnsuitableError
from allocator.model.claims import MAX_RESULTS
from allocator.reason import CONSTRAINT, RESULTS
from allocator.search.candidates import Alternative, Candidates
from allocator.search.ledger import Ledger
from allocator.search.limits import SearchBudget
from allocator.search.plan import Plan
from allocator.search.pruning import Pruning


@dataclass(slots=True, eq=False)
class Place:
    """The place of one device in the solution, and which candidates have been tried for it.

    Attributes:
        option: position of the alternative in the request.
        number: position of the device in the request.
        before: how many devices earlier requests gave to the claim.
        order, cursor: candidates to try, and the position of the next one.
        chosen: the candidate taken; None before one is taken, or if the alternative needs no device.
        failed: classes of candidates that can't be taken here, or lead to no solution.
    """

    slot: int
    option: int
    number: int
    before: int
    alternative: Alternative
    order: Sequence[int]
    cursor: int = 0
    chosen: int | None = None
    undo: Undo | None = None
    failed: set[int] = field(default_factory=set)


class Search:
    """One search over a plan: `run` it once, then read the attributes.

    Args:
        prefers: whether it tries the alternatives of a request in their order, or only the last one.

    Attributes:
        places: the solution, or nothing.
        deepest: the last slot that was reached.
        refused: per slot, what spoke against candidates when the search tried to take them.
        busy: per slot, the candidates that were held, or taken by other requests of the pod.
    """

    def __init__(
        self,
        plan: Plan,
        candidates: Candidates,
        ledger: Ledger,
        orders: Callable[[Alternative], Sequence[int]],
        budget: SearchBudget,
        *,
        prefers: bool = True,
    ) -> None:
        self._plan = plan
        self._prefers = prefers
        self._candidates = candidates
        self._ledger = ledger
        self._orders = orders
        self._budget = budget
        self._pruning: Pruning | None = None
        self._hopeless: set[Hashable] = set()
        self.places: list[Place] = []
        self.deepest = 0
        self.refused: dict[int, set[Refusal]] = {}
        self.busy: dict[int, set[tuple[Alternative, int]]] = {}

    def run(self) -> bool:
        """Whether there is a solution. The search starts without `Pruning`, and starts again with it at a dead end.

        Raises:
            SearchLimitError: a limit was reached.
            SelectorError, NodeUnsuitableError: met while trying candidates, in upstream's order.
        """
        found = self._run()
        if found is None:
            while self.places:
                self._undone()
            self._pruning = Pruning.of(self._plan, self._candidates, self._ledger)
            found = self._pruning.is_possible and self._run()
        return bool(found)

    def _run(self) -> bool | None:
        """Whether there is a solution; None: a dead end, and there is no `Pruning` yet."""
        if not self._plan.slots:
            return True
        place = self._open(0)
        while True:
            if place is not None and self._advance(place):
                self.places.append(place)
                if place.number + 1 < place.alternative.need:
                    place = self._next(place)
                elif (broken := self._ledger.broken_by_choice(place.slot)) is not None:
                    self._note(place.slot, broken)
                    place = self._undone()
                elif place.slot + 1 < len(self._plan.slots):
                    place = self._open(place.slot + 1)
                else:
                    return True
                continue
            other = self._other_option(place)
            if other is not None:
                place = other
                continue
            if not self.places:
                return False
            if self._pruning is None:
                return None
            place = self._undone()

    def _undone(self) -> Place:
        """The latest place, without its device."""
        place = self.places.pop()
        self._release(place)
        return place

    def _open(self, slot: int) -> Place | None:
        """The first place of a slot; None if the state is known to have no solution."""
        self.deepest = max(self.deepest, slot)
        if self._pruning is not None and self._state(slot, self._pruning) in self._hopeless:
            return None
        return self._option(slot, 0 if self._prefers else len(self._plan.slots[slot].alternatives) - 1)

    def _option(self, slot: int, first: int) -> Place | None:
        """The first place of the first alternative, from position `first` on, that may be served."""
        claim = self._plan.slots[slot].claim
        before = sum(
            p.chosen is not None and self._plan.slots[p.slot].claim == claim and p.slot < slot for p in self.places
        )
        alternatives = self._plan.slots[slot].alternatives
        for option in range(first, len(alternatives)):
            alternative = alternatives[option]
            if alternative.members == ():
                continue
            if before + alternative.need > MAX_RESULTS:
                self._note(slot, Refusal(RESULTS))
            else:
                order = self._narrowed(alternative, self._orders(alternative), 0)
                return Place(slot, option, 0, before, alternative, order)
        return None

    def _other_option(self, place: Place | None) -> Place | None:
        """The first place of the next alternative, once this one is tried; after the last, remember the state."""
        if place is None or place.number > 0:
            return None
        other = self._option(place.slot, place.option + 1)
        if other is None and self._pruning is not None:
            self._hopeless.add(self._state(place.slot, self._pruning))
        return other

    def _next(self, place: Place) -> Place:
        """The place of the next device of the same request, later in the order than the one chosen."""
        number = place.number + 1
        order = self._narrowed(place.alternative, place.order[place.cursor :], number)
        return Place(place.slot, place.option, number, place.before, place.alternative, order)

    def _narrowed(self, alternative: Alternative, order: Sequence[int], number: int) -> Sequence[int]:
        """The candidates that `Pruning` leaves; none if they are too few for the rest of the request."""
        if self._pruning is None or alternative.members is not None:
            return order
        return self._pruning.narrowed(alternative, order, alternative.need - number)

    def _advance(self, place: Place) -> bool:
        """Take the next candidate that can be taken."""
        alternative = place.alternative
        if not alternative.need:
            place.cursor += 1
            return place.cursor == 1
        if alternative.members is not None:
            return self._advance_all(place, alternative.members[place.number])
        order, pruning = place.order, self._pruning
        if pruning is not None and place.cursor:
            place.failed.add(pruning.classes[order[place.cursor - 1]])
        while place.cursor < len(order):
            index = order[place.cursor]
            place.cursor += 1
            if pruning is not None and pruning.classes[index] in place.failed:
                continue
            self._budget.step()
            taken = self._ledger.take(alternative, index)
            if isinstance(taken, Refusal):
                if taken.cause is IN_USE.cause:
                    self.busy.setdefault(place.slot, set()).add((alternative, index))
                    continue  # another device of its class may be free
                self._note(place.slot, taken)
            elif pruning is not None and pruning.is_hopeless(alternative):
                taken()
            else:
                place.chosen, place.undo = index, taken
                return True
            if pruning is not None:
                place.failed.add(pruning.classes[index])
        return False

    def _advance_all(self, place: Place, index: int) -> bool:
        """Take a device of a request for all devices: there is no other candidate for its place."""
        if place.cursor:
            return False
        place.cursor = 1
        self._budget.step()
        taken = self._ledger.take(place.alternative, index)
        if not isinstance(taken, Refusal):
            place.chosen, place.undo = index, taken
            return True
        self._note(place.slot, taken)
        if taken.cause is CONSTRAINT:
            raise NodeUnsuitableError(
                str(self._plan.claims[place.alternative.claim]),
                place.alternative.label,
                f"asks for all devices, but one would violate the constraint on {taken.detail}",
                self._candidates.all[index].device.id,
            )
        return False

    def _release(self, place: Place) -> None:
        if place.undo is not None:
            place.undo()
        place.chosen = place.undo = None

    def _note(self, slot: int, refusal: Refusal) -> None:
        self.refused.setdefault(slot, set()).add(refusal)

    def _state(self, slot: int, pruning: Pruning) -> Hashable:
        """What the rest of the search depends on, by the classes of devices."""
        by_claim = self._plan.has_admin_access
        used: dict[tuple[int, int], int] = {}
        for place in self.places:
            if place.chosen is not None:
                claim = place.alternative.claim if by_claim else 0
                key = (pruning.classes[place.chosen], claim)
                used[key] = used.get(key, 0) + 1
        claim = self._plan.slots[slot].claim
        held = sum(p.chosen is not None and p.alternative.claim == claim for p in self.places)
        return slot, held, frozenset(used.items()), self._ledger.key(pruning.ahead[slot])
